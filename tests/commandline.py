"""Commands of `abaca`, run in this process."""

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from abaca.cli import app, main


class Outcome(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.done)

    @property
    def error(self) -> str:
        """Its errors in one line."""
        return " ".join(self.err.split())

    @property
    def done(self) -> str:
        """The output of a command that succeeds."""
        assert self.code == 0, self.error
        return self.out


Cli = Callable[..., Outcome]


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """A function that runs a command, given by its words."""

    def run(*words: Any) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["abaca", *map(str, words)])
        monkeypatch.setattr(app, "registered_commands", [])  # `main` adds them
        monkeypatch.setattr(app, "registered_groups", [])
        capsys.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return run

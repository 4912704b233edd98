"""The trials of a search within a budget, and the notes by which it is resumed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abaca.durable import append_line, write_text
from abaca.errors import ModelError
from abaca.shapes import loads
from abaca.training.budget import Clock
from abaca.training.state import TRIALS


@dataclass(frozen=True)
class Trial:
    """A candidate that was trained for some epochs, and its validation figure; None where training failed."""

    candidate: int
    encoder: str
    options: dict[str, Any]
    epochs: int
    figure: float | None
    seconds: float
    seconds_per_epoch: float
    overhead: float
    """Seconds besides the epochs: start vectors and evidence."""
    error: str | None = None

    @property
    def rank(self) -> float:
        """For sorting: failed trials come last."""
        return float("-inf") if self.figure is None else self.figure


class Notes:
    """The finished trials and the plan of an unfinished search, in a file of its folder; without one in memory."""

    def __init__(self, folder: Path | None, identity: dict[str, Any]) -> None:
        self.path = None if folder is None else folder / TRIALS
        self.identity = identity
        self.trials: list[Trial] = []
        self.plan: dict[str, int] | None = None

    @property
    def begun(self) -> dict[str, Any] | None:
        """The identity of the search whose notes are in the folder; None where there are none."""
        lines = _whole_lines(self.path) if self.path is not None and self.path.exists() else []
        found: dict[str, Any] | None = loads(lines[0]) if lines else None
        return found

    def resume(self, clock: Clock) -> None:
        """Read what an interrupted search has noted, and count its time."""
        if self.path is None or not self.path.exists():
            return
        first, *lines = [loads(line) for line in _whole_lines(self.path)] or [{}]
        if first != self.identity:
            raise ModelError(
                f"{self.path.parent} holds a search with another budget, log or options; resume with those it began "
                "with, or replace it with `overwrite=True`"
            )
        self.trials = [Trial(**line["trial"]) for line in lines if "trial" in line]
        self.plan = next((line["plan"] for line in lines if "plan" in line), None)
        clock.add(max((line["spent"] for line in lines), default=0.0))

    def begin(self) -> None:
        """Write the file, with what was resumed."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            kept = _whole_lines(self.path) if self.trials or self.plan else [json.dumps(self.identity)]
            write_text(self.path, "".join(f"{line}\n" for line in kept), ModelError)

    def add(self, clock: Clock, **values: Any) -> None:
        """Append a line, with the time that is spent so far."""
        if self.path is not None:
            append_line(self.path, json.dumps({**values, "spent": round(clock.spent, 3)}), ModelError)

    def end(self) -> None:
        """The model is saved, with the trials in it."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file without the unfinished one of a killed process."""
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()

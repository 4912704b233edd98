"""`abaca index`: made, measured, used, taken away."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from abaca.cli import app, main
from models import untrained


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["abaca", *map(str, words)])
    monkeypatch.setattr(app, "registered_commands", [])
    try:
        main()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code or 0
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())


def test_an_index_is_made_checked_used_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    untrained(model, ids=[f"i{i}" for i in range(600)])
    (tmp_path / "log.csv").write_text("user,item\n" + "".join(f"u{i % 9},i{i * i % 600}\n" for i in range(90)))

    def cli(*words: Any) -> str:
        code, out, err = run(monkeypatch, capsys, *words)
        assert code == 0, err
        return out

    made = json.loads(cli("index", model, "--kind", "ivf", "--recall", "0.9", "--json"))
    assert made["kind"] == "ivf"
    assert made["recall@10"] > 0.7
    checked = json.loads(cli("index", model, "--check", "--histories", tmp_path / "log.csv", "--json"))
    assert (checked["queries"], checked["effort"]) == (4, made["effort"])
    assert json.loads(cli("recommend", model, "i1", "i2", "--json"))["estimated"]
    assert not json.loads(cli("recommend", model, "i1", "i2", "--json", "--exact"))["estimated"]
    assert "(estimated)" in cli("recommend", model, "i1", "i2")
    shown = cli("index", model, "--check")
    assert "ivf over 600 items" in shown
    assert "batches of 64" in shown
    cli("index", model, "--remove")
    code, out, err = run(monkeypatch, capsys, "index", model, "--check")
    assert (code, out) == (2, "")
    assert "no search index" in err


@pytest.mark.parametrize(
    ("output", "words", "message"),
    [
        ("repeatnet", [], "served by exact search only"),
        ("softmax", ["--kind", "tree"], "'tree' is not one of auto, ivf, hnsw, flat"),
        ("softmax", ["--recall", "1.2"], "at most 1"),
    ],
)
def test_what_cannot_be_indexed_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    output: str,
    words: list[str],
    message: str,
) -> None:
    untrained(tmp_path / "model", output)
    code, out, err = run(monkeypatch, capsys, "index", tmp_path / "model", *words)
    assert (code, out) == (2, "")
    assert message in err

"""`abaca update`: from logs and from a store, counted and trained on."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abaca
from abaca.cli import app, main
from abaca.serve.events import Event
from abaca.serve.store import open_store

BEGIN = 1_600_000_000
QUICK = ["--epochs", "1", "--dim", "8", "--encoder", "gru4rec", "--output", "softmax+followers", "--lr", "0.02"]


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


def test_a_model_takes_new_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cli(*words: Any, code: int = 0) -> Any:
        got, out, err = run(monkeypatch, capsys, *words)
        assert got == code, err
        return out if code == 0 else err

    rng = np.random.default_rng(0)
    rows = [(f"u{place % 40}", f"i{rng.integers(0, 15)}", BEGIN + place) for place in range(600)]
    (tmp_path / "old.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    later = [(f"u{place % 40}", ["i1", "pesto"][place // 40 % 2], BEGIN + 1000 + place) for place in range(160)]
    (tmp_path / "new.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in later))
    model, counted = tmp_path / "model", tmp_path / "counted"
    cli("train", tmp_path / "old.csv", model, *QUICK, "--updatable")
    (tmp_path / "gone.txt").write_text("i3\ni4\n")
    told = json.loads(
        cli(
            "update",
            model,
            tmp_path / "new.csv",
            counted,
            "--retire",
            tmp_path / "gone.txt",
            "--retire",
            "i5",
            "--json",
        )
    )
    assert (told["how"], told["rows"], told["skipped"], told["items"]) == ("counts", 160, 0, 1)
    assert told["drift"]["repeats"][1] != told["drift"]["repeats"][0]
    first = abaca.load(counted)
    assert first.recommend(["i1"], n=1, exclude=["i1"]).ids == ["pesto"]
    assert {"i3", "i4", "i5"}.isdisjoint(first.recommend(["i1"], n=100).ids)

    store = open_store(str(tmp_path / "events.db"))
    store.add([[Event(str(place), *row) for place, row in enumerate(later)]])
    store.close()
    cli("update", model, tmp_path / "stored", "--from-store", tmp_path / "events.db")
    second = abaca.load(tmp_path / "stored")
    assert first.saved is not None
    assert second.saved is not None
    assert np.array_equal(first.saved.popularity, second.saved.popularity)
    assert np.array_equal(first.saved.evidence.transitions.units, second.saved.evidence.transitions.units)  # type: ignore[union-attr]

    said = cli("update", model, tmp_path / "new.csv", tmp_path / "trained", "--train")
    assert "weights updated with 160 new rows" in said
    assert "holds a model" in cli("update", model, tmp_path / "new.csv", counted, code=2)
    assert "takes a model, a log" in cli("update", model, tmp_path / "new.csv", code=2)
    assert "no rows after" in cli("update", counted, tmp_path / "new.csv", tmp_path / "again", code=2)
    assert not (tmp_path / "again").exists()
    monkeypatch.delenv("ABACA_STORE", raising=False)
    assert "give --store" in cli("serve", model, "--learn", code=2)

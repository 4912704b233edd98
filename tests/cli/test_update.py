"""`abaca update`: from logs and from a store, counted and trained on."""

from pathlib import Path

import numpy as np
import pytest

import abaca
from abaca.serve.events import Event
from abaca.serve.store import open_store
from commandline import Cli, Outcome

BEGIN = 1_600_000_000
QUICK = ["--epochs", "1", "--dim", "8", "--encoder", "gru4rec", "--output", "softmax+followers", "--lr", "0.02"]


def refused(outcome: Outcome) -> str:
    """The message of a user's mistake."""
    assert outcome.code == 2, outcome.error
    return outcome.error


def test_a_model_takes_new_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    rng = np.random.default_rng(0)
    rows = [(f"u{place % 40}", f"i{rng.integers(0, 15)}", BEGIN + place) for place in range(600)]
    (tmp_path / "old.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    later = [(f"u{place % 40}", ["i1", "pesto"][place // 40 % 2], BEGIN + 1000 + place) for place in range(160)]
    (tmp_path / "new.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in later))
    model, counted = tmp_path / "model", tmp_path / "counted"
    assert cli("train", tmp_path / "old.csv", model, *QUICK, "--updatable").code == 0
    (tmp_path / "gone.txt").write_text("i3\ni4\n")
    retired = ["--retire", tmp_path / "gone.txt", "--retire", "i5"]
    told = cli("update", model, tmp_path / "new.csv", counted, *retired, "--json").json
    assert (told["how"], told["rows"], told["skipped"], told["items"]) == ("counts", 160, 0, 1)
    assert told["drift"]["repeats"][1] != told["drift"]["repeats"][0]
    first = abaca.load(counted)
    assert first.recommend(["i1"], n=1, exclude=["i1"]).ids == ["pesto"]
    assert {"i3", "i4", "i5"}.isdisjoint(first.recommend(["i1"], n=100).ids)

    store = open_store(str(tmp_path / "events.db"))
    store.add([[Event(str(place), *row) for place, row in enumerate(later)]])
    store.close()
    assert cli("update", model, tmp_path / "stored", "--from-store", tmp_path / "events.db").code == 0
    second = abaca.load(tmp_path / "stored")
    assert first.saved is not None
    assert second.saved is not None
    assert np.array_equal(first.saved.popularity, second.saved.popularity)
    assert np.array_equal(first.saved.evidence.transitions.units, second.saved.evidence.transitions.units)  # type: ignore[union-attr]

    gone = ["--retire", f"@{tmp_path / 'gone.txt'}"]
    assert cli("update", counted, tmp_path / "new.csv", tmp_path / "fewer", *gone).code == 0
    wrong = ["--retire", "no.txt"]
    assert "knows no such item" in refused(cli("update", model, tmp_path / "new.csv", tmp_path / "x", *wrong))
    said = cli("update", model, tmp_path / "new.csv", tmp_path / "trained", "--train").done
    assert "weights updated with 160 new rows" in said
    assert "holds a model" in refused(cli("update", model, tmp_path / "new.csv", counted))
    assert "takes a model, a log" in refused(cli("update", model, tmp_path / "new.csv"))
    assert "no rows after" in refused(cli("update", counted, tmp_path / "new.csv", tmp_path / "again"))
    assert not (tmp_path / "again").exists()
    monkeypatch.delenv("ABACA_STORE", raising=False)
    assert "give --store" in refused(cli("serve", model, "--learn"))


def test_events_of_a_type_that_the_model_does_not_know_have_the_usual_one(tmp_path: Path, cli: Cli) -> None:
    taken = ["view", "view", "buy"] * 100
    rows = [(f"u{place % 20}", f"i{place % 7}", BEGIN + place, kind) for place, kind in enumerate(taken)]
    lines = "".join(f"{user},{item},{time},{kind}\n" for user, item, time, kind in rows)
    (tmp_path / "log.csv").write_text("user,item,time,event\n" + lines)
    typed = ["--updatable", "--event", "event", "--targets-of", "buy"]
    assert cli("train", tmp_path / "log.csv", tmp_path / "model", *QUICK, *typed).code == 0
    kinds = ["wish", None, "buy"]
    for name, given in (("wish", kinds), ("usual", [None, None, "buy"])):
        store = open_store(str(tmp_path / f"{name}.db"))
        store.add([[Event(str(place), "u1", "i1", BEGIN + 1000 + place, kind) for place, kind in enumerate(given)]])
        store.close()
        assert cli("update", tmp_path / "model", tmp_path / name, "--from-store", tmp_path / f"{name}.db").code == 0
    one, other = (abaca.load(tmp_path / name).saved for name in ("wish", "usual"))
    assert one is not None
    assert other is not None
    assert one.training["updates"][0]["rows"] == len(kinds)
    assert one.training["fingerprint"] == other.training["fingerprint"]

"""The terms of a logit over HTTP: they add up to it, and the reason is the library's."""

from pathlib import Path
from typing import Any

import pytest

from models import untrained

from .samples import Serve

HISTORY = ["i3", "i7", "i3", "i9", "nothing", "i7", "i3", "i12"]
HOURS = [3600.0 * at for at in (0, 5, 24, 30, 31, 47, 48, 50)]
EVIDENCE = "+habits+followers"
KNOWN: dict[str, dict[str, Any]] = {
    "order": {},
    "times": {"times": HOURS},
    "now": {"times": HOURS, "now": 3600.0 * 72},
}


@pytest.mark.parametrize("evidence", ["", EVIDENCE])
@pytest.mark.parametrize("output", ["softmax", "softmax+CP", "softmax+CPR:4"])
def test_the_terms_add_up_to_the_logit(serve: Serve, tmp_path: Path, output: str, evidence: str) -> None:
    model = untrained(tmp_path / "model", output + evidence)
    client = serve([tmp_path / "model"])
    for known in KNOWN.values():
        body = {"history": HISTORY, "n": 30, **known}
        (answer,) = client.post("/recommend", json=body).json()["answers"]
        expected = model.recommend(HISTORY, 30, **known)
        assert len(answer["items"]) == 30
        for found, item in zip(answer["items"], expected, strict=True):
            assert sum(found["terms"].values()) == pytest.approx(found["logit"], abs=1e-5)
            assert found["terms"] == pytest.approx(item.terms, abs=1e-4)
            assert (found["reason"], found["argued_by"]) == (item.reason, item.argued_by)
            assert (found["argued_by"] is None) == (not evidence)
            assert ("own" in found["terms"]) == (bool(evidence) and found["repeat"])
        logits = [found["logit"] for found in answer["items"]]
        assert logits == sorted(logits, reverse=True)


def test_habits_of_time_are_there_where_times_are_known(serve: Serve, tmp_path: Path) -> None:
    untrained(tmp_path / "model", "softmax" + EVIDENCE)
    client = serve([tmp_path / "model"])
    names = {}
    for kind, known in KNOWN.items():
        body = {"history": HISTORY, "n": 30, **known}
        items = client.post("/recommend", json=body).json()["answers"][0]["items"]
        names[kind] = [set(item["terms"]) for item in items if item["repeat"]]
        assert {frozenset(item["terms"]) for item in items if not item["repeat"]} == {
            frozenset({"network", "followers"})
        }
    order = {"network", "own", "count", "since", "follow", "rhythm", "window", "followers"}
    assert all(found == order for found in names["order"])
    assert all(found == order | {"time", "time rhythm"} for found in names["times"])
    assert all(found == order | {"time", "time rhythm", "hour", "week", "at hour"} for found in names["now"])


def test_popular_items_have_no_terms(serve: Serve, tmp_path: Path) -> None:
    untrained(tmp_path / "model", "softmax" + EVIDENCE)
    (answer,) = serve([tmp_path / "model"]).post("/recommend", json={"history": []}).json()["answers"]
    assert {(item["logit"], item["argued_by"], *item["terms"]) for item in answer["items"]} == {(None, None)}

"""The split by time: two cuts, targets after them, a catalogue from training rows."""

from pathlib import Path
from typing import Any

import pytest

from abaca.data.prepare import PrepareOptions
from abaca.data.splits import as_date, moment
from abaca.errors import SpecError

from .samples import prepared, targets

ROWS = [
    ("a", "x", 1), ("a", "y", 2), ("a", "x", 11), ("a", "z", 12), ("a", "x", 21), ("a", "new", 22),
    ("b", "y", 3), ("b", "y", 20),
    ("c", "x", 15), ("c", "y", 16), ("c", "x", 25),
    ("d", "y", 30),
    ("e", "y", 5),
]  # fmt: skip
"""Validation from 10, test from 20; c comes during validation, d during test; z and new are never in training."""


def split(tmp_path: Path, target: str = "last", **cuts: Any) -> Any:
    cuts = cuts or {"valid_from": 10, "test_from": 20}
    return prepared(tmp_path / "s", ROWS, PrepareOptions(min_user=1, split="time", target=target, **cuts))  # type: ignore[arg-type]


def test_the_last_of_each_user_after_the_cut(tmp_path: Path) -> None:
    sequences = split(tmp_path)
    assert sequences.train_end.tolist() == [2, 7, 8, 11, 13]
    assert sequences.catalogue.ids == ["y", "x", "new", "z"]
    assert sequences.catalogue.size == 2
    assert targets(sequences, "valid") == [("a", "z", ["x", "y", "x"]), ("c", "y", ["x"])]
    assert targets(sequences, "test") == [
        ("a", "new", ["x", "y", "x", "z", "x"]),
        ("b", "y", ["y"]),
        ("c", "x", ["x", "y"]),
    ]
    counts = sequences.manifest["counts"]
    assert (counts["valid_cold_targets"], counts["test_cold_targets"]) == (1, 1)
    assert counts["targets_without_history"] == 1
    assert sequences.manifest["split"]["cuts"] == [10, 20]
    assert "the last one of each user" in sequences.manifest["split"]["rule"]


def test_the_first_of_each_user_after_the_cut(tmp_path: Path) -> None:
    sequences = split(tmp_path, "first")
    assert targets(sequences, "valid") == [("a", "x", ["x", "y"])]  # c's first has no history
    assert targets(sequences, "test") == [("a", "x", ["x", "y", "x", "z"]), ("b", "y", ["y"]), ("c", "x", ["x", "y"])]
    assert sequences.manifest["counts"]["targets_without_history"] == 2


def test_all_after_the_cut(tmp_path: Path) -> None:
    sequences = split(tmp_path, "all")
    found = [(user, item, len(history)) for user, item, history in targets(sequences, "valid")]
    assert found == [("a", "x", 2), ("a", "z", 3), ("c", "y", 1)]
    found = [(user, item, len(history)) for user, item, history in targets(sequences, "test")]
    assert found == [("a", "x", 4), ("a", "new", 5), ("b", "y", 1), ("c", "x", 2)]
    assert sequences.manifest["counts"]["targets_without_history"] == 2


def test_cuts_as_shares_of_the_interactions(tmp_path: Path) -> None:
    # thirteen times: 1 2 3 5 11 12 15 16 20 21 22 25 30; the sixth of them from 0 is 15, the eleventh 25
    sequences = split(tmp_path, valid_from="50%", test_from="85%")
    assert sequences.manifest["split"]["cuts"] == [15, 25]


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        ({"valid_from": 20, "test_from": 10}, "not before test"),
        ({"valid_from": 1, "test_from": 10}, "nothing is left to train on; the log goes from 1 to 30"),
        ({"valid_from": 10, "test_from": 31}, "after the last interaction"),
    ],
)
def test_cuts_that_make_no_sense_are_refused(cuts: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        split(tmp_path, **cuts)


def test_moments_in_words() -> None:
    assert moment(12.5) == "12.5"
    assert moment(1577836800.0) == "1577836800 (2020-01-01T00:00:00Z)"
    assert as_date(1577836800000.0) == "2020-01-01T00:00:00Z"
    assert as_date(0.0) is None

"""Types of events in prepared folders: kept, and targets restricted to some of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.errors import LogError, SequencesError, SpecError
from abaca.histories import EventTypes, Histories

from .samples import targets

ROWS = [
    ("a", "x", 1, "view"), ("a", "x", 2, "buy"), ("a", "y", 3, "view"), ("a", "y", 4, "buy"), ("a", "z", 5, "view"),
    ("a", "x", 6, "buy"), ("a", "y", 7, "view"),
    ("b", "y", 1, "buy"), ("b", "x", 2, "view"), ("b", "z", 3, "buy"),
    ("c", "x", 1, "view"), ("c", "z", 2, "view"), ("c", "x", 3, "view"), ("c", "z", 4, "buy"),
]  # fmt: skip
"""a buys x, y and x; b's first purchase has no history; c buys once."""


def log_of(rows: list[tuple[Any, ...]]) -> pyarrow.Table:
    names = ("user", "item", "time", "event")
    return pyarrow.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


def made(folder: Path, rows: list[tuple[Any, ...]] = ROWS, **options: Any) -> Sequences:
    with read_log(log_of(rows)) as log:
        return prepare(log, folder, options=PrepareOptions(min_user=1, **options))


def test_a_folder_keeps_the_type_of_each_interaction(tmp_path: Path) -> None:
    plain, typed = made(tmp_path / "plain"), made(tmp_path / "typed", types=True)
    assert plain.types is None
    assert plain.events is None
    assert plain.manifest["format"] == 1
    assert typed.types == EventTypes(("buy", "view"), (0, 1), 1)
    assert typed.manifest["format"] == 2
    assert typed.manifest["event_types"]["counts"] == {"buy": 6, "view": 8}
    assert typed.events is not None
    names = [typed.types.names[number] for number in typed.events]
    assert names == [row[3] for row in ROWS]
    for name in ("items", "times", "offsets", "train_end", "valid", "test"):  # types alone change nothing else
        assert (typed.path / f"{name}.npy").read_bytes() == (plain.path / f"{name}.npy").read_bytes()
    assert typed.fingerprint != plain.fingerprint


def test_histories_carry_types(tmp_path: Path) -> None:
    typed = made(tmp_path / "s", types=True)
    found = typed.histories(np.array([0, 2]), np.array([3, 13]))
    assert found.types is not None
    assert found.types.tolist() == [1, 0, 1, 1, 1, 1]
    assert found.take([1]).types.tolist() == [1, 1, 1]  # type: ignore[union-attr]
    assert found.known(1).types.tolist() == [1, 0, 1, 1]  # type: ignore[union-attr]
    assert found.of_types([0])[0].tolist() == [0]
    assert not len(found.of_types([0])[1])


def test_the_last_two_purchases_are_held_out_and_nothing_after_the_first_of_them_trains(tmp_path: Path) -> None:
    sequences = made(tmp_path / "s", targets_of=("buy",))
    assert targets(sequences, "valid") == [("a", "y", ["x", "x", "y"])]
    assert targets(sequences, "test") == [("a", "x", ["x", "x", "y", "y", "z"])]
    assert sequences.train_end.tolist() == [3, 10, 14]  # b and c only train
    assert sequences.training_targets == 3  # x of a, z of b, z of c; the first of b has no history
    assert sequences.manifest["counts"]["training_targets"] == 3
    assert "events of type buy" in sequences.manifest["split"]["rule"]


@pytest.mark.parametrize(("target", "valid", "test"), [("last", ["y"], ["x", "z"]), ("all", ["y"], ["x", "z"])])
def test_a_split_by_time_holds_out_purchases_only(
    tmp_path: Path, target: str, valid: list[str], test: list[str]
) -> None:
    rows = [*ROWS, ("d", "x", 0, "view"), ("d", "z", 6, "buy"), ("d", "x", 7, "view")]
    sequences = made(tmp_path / "s", rows, targets_of=("buy",), split="time", valid_from=4, test_from=5, target=target)
    assert [item for _, item, _ in targets(sequences, "valid")] == [*valid, "z"]
    assert [item for _, item, _ in targets(sequences, "test")] == test
    assert (sequences.train_end - sequences.offsets[:-1]).tolist() == [3, 3, 3, 1]


def test_consecutive_events_of_different_types_stay(tmp_path: Path) -> None:
    rows = [("a", "x", 1, "view"), ("a", "x", 2, "view"), ("a", "x", 3, "buy"), ("a", "x", 4, "buy")]
    assert made(tmp_path / "typed", rows, drop_consecutive=True, types=True).events.tolist() == [1, 0]  # type: ignore[union-attr]
    assert len(made(tmp_path / "plain", rows, drop_consecutive=True).items) == 1


def test_types_among_the_events_that_are_kept(tmp_path: Path) -> None:
    rows = [*ROWS, ("c", "x", 9, "return"), ("c", "x", 10, None)]
    sequences = made(tmp_path / "s", rows, types=True, events=["view", "buy"])
    assert sequences.types is not None
    assert sequences.types.names == ("buy", "view")
    with pytest.raises(LogError, match="1 interactions have nothing in column 'event'; keep the others with `events`"):
        made(tmp_path / "t", rows, types=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets_of": ("bought",)}, "`targets_of` 'bought' is no type .* column 'event' has view, buy"),
        ({"targets_of": ("view",), "events": ("buy",)}, "`targets_of` 'view' is no type of the events that are kept"),
        ({"targets_of": "buy"}, "targets_of is a list of at least one value"),
        ({"types": True, "events": ("no",)}, "`events` no is no type of the events"),
    ],
)
def test_wrong_types_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        made(tmp_path / "s", **options)


def test_too_many_types_are_refused(tmp_path: Path) -> None:
    rows = [("a", "x", place, f"type {place}") for place in range(40)]
    with pytest.raises(SpecError, match="has 40 types of events, 32 at most are read"):
        made(tmp_path / "s", rows, types=True)


def test_types_need_a_column(tmp_path: Path) -> None:
    with (
        read_log(log_of(ROWS).drop_columns(["event"])) as log,
        pytest.raises(SpecError, match="`targets_of` needs a column of event types; pass `event=COLUMN`"),
    ):
        prepare(log, tmp_path / "s", options=PrepareOptions(min_user=1, targets_of=("buy",)))


def test_a_folder_of_a_later_release_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "s", types=True)
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text(encoding="utf-8"))
    (tmp_path / "s" / "manifest.json").write_text(json.dumps(manifest | {"format": 3}), encoding="utf-8")
    with pytest.raises(SequencesError, match="is in format 3, this release reads 1 and 2; update abaca"):
        Sequences.open(tmp_path / "s")


def test_events_without_a_type_have_the_usual_one() -> None:
    types = EventTypes(("buy", "cart", "view"), (0, 1), 1)
    filled = types.fill(Histories.of([[4, 5], [6]]))
    assert filled.types is not None
    assert filled.types.tolist() == [1, 1, 1]
    given = Histories.of([[4, 5], [6]], types=[[2, 0], [2]])
    assert types.fill(given) is given
    assert [history.tolist() for history in types.owned(given)] == [[5], []]
    assert EventTypes.of(types.to_json()) == types

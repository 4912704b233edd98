"""Ids of any signs go through CSV, Parquet and a prepared folder and come back unchanged."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .samples import histories, prepared, write_csv, write_json, write_parquet

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
odd = st.sampled_from(
    ["a b", " a", "a ", "a,b", '"', 'a"b', '""', "😀", "007", "null", "NaN", "-1", "\n", "\r", "é", "'", "#"]
)
rows = st.lists(st.tuples(ids | odd, ids | odd), min_size=1, max_size=12)


def by_user(interactions: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for user, item in interactions:
        found.setdefault(user, []).append(item)
    return found


@pytest.mark.parametrize("format", ["csv", "tsv"])
@given(rows)
@settings(max_examples=15, deadline=None)
def test_ids_round_trip_through_text(format: str, interactions: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_csv(
            Path(folder) / f"log.{format}", interactions, ("user", "item"), sep="," if format == "csv" else "\t"
        )
        assert histories(prepared(Path(folder) / "sequences", path)) == by_user(interactions)


@given(rows)
@settings(max_examples=6, deadline=None)
def test_ids_round_trip_through_json_and_parquet(interactions: list[tuple[str, str]]) -> None:
    timed = [(user, item, place) for place, (user, item) in enumerate(interactions)]
    with tempfile.TemporaryDirectory() as folder:
        for path in (write_json(Path(folder) / "log.jsonl", timed), write_parquet(Path(folder) / "log.parquet", timed)):
            assert histories(prepared(Path(folder) / path.suffix, path)) == by_user(interactions)


def test_users_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    assert prepared(tmp_path / "text", [("b", "x", 1), ("10", "x", 1), ("9", "x", 1)]).user_ids == ["10", "9", "b"]
    assert prepared(tmp_path / "numbers", [(10, "x", 1), (9, "x", 1), (-1, "x", 1)]).user_ids == [-1, 9, 10]

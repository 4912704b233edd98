"""Histories from logs and from lists, in a steady order, from any place on."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abaca.data.queries import HistorySource, Queries, Query
from abaca.errors import LogError

LISTS: list[dict[str, Any]] = [
    {"customer": "b", "bought": ["milk", "tea", "milk"]},
    {"customer": "a", "bought": []},
    {"customer": "b", "bought": ["jam"]},
    {"customer": "c", "bought": None},
    {"customer": "d", "bought": ["tea"]},
]
EXPECTED = [("b", ["milk", "tea", "milk"]), ("a", []), ("b", ["jam"]), ("c", []), ("d", ["tea"])]


def read(source: Queries, start: int = 0) -> list[tuple[Any, list[Any]]]:
    """Keys and ids from a place on."""
    return [(query.key, query.ids) for query in source.read(start)]


def parquet(path: Path, rows: list[dict[str, Any]], group: int = 2) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def lists(folder: Path, kind: str) -> Path:
    """The same lists as one file, or as two files of a folder."""
    if kind == "jsonl":
        return jsonl(folder / "in.jsonl", LISTS)
    if kind == "parquet":
        return parquet(folder / "in.parquet", LISTS)
    (folder / "in").mkdir()
    parquet(folder / "in" / "1.parquet", LISTS[:3])
    jsonl(folder / "in" / "2.jsonl", LISTS[3:])
    return folder / "in"


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "folder"])
def test_lists_are_read_row_by_row_from_any_place_on(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abaca.data.lists.ROWS", 1)
    source = HistorySource(lists(tmp_path, kind)).open()
    assert (source.key, source.key_kind, source.total) == ("user", "text", 5)
    for start in range(7):
        assert read(source, start) == EXPECTED[start:]
    assert {query.times for query in source.read(0)} == {None}


def test_lists_without_users_are_known_by_their_row(tmp_path: Path) -> None:
    rows = [{"h": [3, 1]}, {"h": [2]}, {"h": [3]}]
    source = HistorySource(parquet(tmp_path / "in.parquet", rows)).open()
    assert (source.key, source.key_kind) == ("row", "integer")
    assert read(source, 1) == [(1, [2]), (2, [3])]


@pytest.mark.parametrize("numbers", [False, True])
def test_a_log_gives_a_history_per_user_in_time_order(
    tmp_path: Path, numbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abaca.data.database.BATCH_ROWS", 2048)
    users = [i * 7919 % 900 for i in range(9000)]
    rows = [
        {"user": user if numbers else f"u'{user:03}", "item": f"i{place}", "time": -place // 2}
        for place, user in enumerate(users)
    ]
    expected: dict[Any, tuple[list[str], list[float]]] = {}
    for row in sorted(rows, key=lambda row: row["time"]):  # ties keep the order of the file
        ids, times = expected.setdefault(row["user"], ([], []))
        ids.append(row["item"])
        times.append(row["time"])
    source = HistorySource(parquet(tmp_path / "log.parquet", rows, 500)).open()
    assert (source.key, source.key_kind, source.total) == ("user", "integer" if numbers else "text", 900)
    for start in (0, 1, 450, 899, 900):
        wanted = [Query(user, *parts) for user, parts in sorted(expected.items())[start:]]
        assert list(source.read(start)) == wanted


def test_a_log_with_a_column_of_lists_is_a_log_unless_the_lists_are_named(tmp_path: Path) -> None:
    rows = [{"user": "a", "item": "milk", "tags": ["x", "y"]}, {"user": "a", "item": "tea", "tags": ["z"]}]
    path = parquet(tmp_path / "in.parquet", rows)
    assert list(HistorySource(path).open().read(0)) == [Query("a", ["milk", "tea"])]
    assert read(HistorySource(path, history="tags").open()) == [("a", ["x", "y"]), ("a", ["z"])]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"a": ["x"], "b": ["y"]}], {}, "a, b are all lists.*--history"),
        ([{"a": ["x"]}], {"history": "nope"}, "no column 'nope'; it has a"),
        ([{"a": ["x"], "n": 1}], {"history": "n"}, "'n' does not hold lists"),
        ([{"a": ["x"]}], {"user": "who"}, "no column 'who'"),
        ([{"a": [1.5]}], {}, "is not a list of ids|lists of double"),
        ([{"a": ["x"]}, {"a": ["x", None]}], {}, r"(row|line) 2: \[\"x\", null\] is not a list of ids"),
        ([{"user": "u", "a": ["x"]}, {"user": None, "a": ["x"]}], {}, "(row|line) 2: the user None is not text"),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_lists_that_make_no_sense_are_refused(
    tmp_path: Path, kind: str, rows: list[dict[str, Any]], options: dict[str, Any], message: str
) -> None:
    path = parquet(tmp_path / "in.parquet", rows) if kind == "parquet" else jsonl(tmp_path / "in.jsonl", rows)
    with pytest.raises(LogError, match=message):
        list(HistorySource(path, **options).open().read(0))


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"h": ["x"]}\n{"h": ["x"\n')
    with pytest.raises(LogError, match="line 2: not a JSON object"):
        list(HistorySource(path).open().read(0))


def test_the_fingerprint_follows_the_content_and_how_it_is_read(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "in.jsonl", LISTS)
    prints = {HistorySource(path).fingerprint(), HistorySource(path, history="bought").fingerprint()}
    jsonl(path, LISTS[1:])
    prints.add(HistorySource(path).fingerprint())
    assert len(prints) == 3
    jsonl(path, LISTS)
    assert HistorySource(path).fingerprint() in prints

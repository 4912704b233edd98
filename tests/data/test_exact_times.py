"""Times beyond 2⁵³ keep their order, in every format and in the histories to recommend after."""

from pathlib import Path
from typing import Any

import numpy
import pandas
import polars
import pytest

from abaca.data.inspect import inspect
from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions
from abaca.data.queries import HistorySource
from abaca.study.repetition import repetition

from .samples import COLUMNS, KEEP_ALL, histories, prepared, rows_of, table, write_csv, write_json, write_parquet

NANOSECONDS = 1_700_000_000_000_000_000
ORDER = [3, 0, 5, 1, 4, 2, 7, 6]
"""Interactions of one user in the order of the file; each number is the time beyond NANOSECONDS, and the item."""

ROWS: list[tuple[Any, ...]] = [("ann", f"i{n}", NANOSECONDS + n) for n in ORDER]
WANTED = {"ann": [f"i{n}" for n in sorted(ORDER)]}


def frame() -> pandas.DataFrame:
    return pandas.DataFrame(ROWS, columns=list(COLUMNS))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_nanoseconds_that_differ_by_one_keep_their_order(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"log.{kind}"
    if kind in ("csv", "tsv"):
        write_csv(path, ROWS, sep="," if kind == "csv" else "\t")
    elif kind == "jsonl":
        write_json(path, ROWS)
    else:
        write_parquet(path, ROWS)
    assert len({float(row[2]) for row in ROWS}) == 1  # as doubles they are all the same
    assert histories(prepared(tmp_path / "s", path)) == WANTED
    (query,) = HistorySource(path).open().read(0)
    assert query.ids == WANTED["ann"]
    assert query.times == [float(NANOSECONDS)] * len(ORDER)


def test_of_tables_too(tmp_path: Path) -> None:
    dates = frame().assign(time=pandas.to_datetime(frame()["time"]))
    assert dates["time"].dtype == "datetime64[ns]"
    unsigned = frame().assign(time=numpy.array([row[2] for row in ROWS], numpy.uint64) + numpy.uint64(2**63))
    sources = {"pandas": frame(), "polars": polars.DataFrame(frame()), "dates": dates, "unsigned": unsigned}
    for name, source in sources.items():
        assert histories(prepared(tmp_path / name, source)) == WANTED, name


def test_negative_and_largest_integers(tmp_path: Path) -> None:
    ends = [2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 2**53 + 1, 2**53, 2**53 + 2, 0]
    rows = [("ann", f"i{end}", end) for end in ends]
    assert histories(prepared(tmp_path / "s", rows)) == {"ann": [f"i{end}" for end in sorted(ends)]}


def test_equal_times_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [("ann", item, text) for item, text in [("a", "2.5"), ("b", "2.50"), ("c", "0.1"), ("d", "1e-1")]]
    rows += [("ann", "e", f"{NANOSECONDS}.0"), ("ann", "f", str(NANOSECONDS))]
    path = write_csv(tmp_path / "log.csv", rows)
    assert histories(prepared(tmp_path / "s", path)) == {"ann": ["c", "d", "a", "b", "e", "f"]}


def test_single_precision_leaves_the_order_of_the_file(tmp_path: Path) -> None:
    """As RecBole orders them: what single precision does not hold decides nothing."""
    single = PrepareOptions(min_user=1, time_precision="single")
    in_file = {"ann": [f"i{n}" for n in ORDER]}
    assert histories(prepared(tmp_path / "s", ROWS, single)) == in_file
    (query,) = HistorySource(write_parquet(tmp_path / "log.parquet", ROWS), options=single).open().read(0)
    assert query.ids == in_file["ann"]


def test_consecutive_repeats_are_found_in_the_exact_order(tmp_path: Path) -> None:
    rows = [("ann", "a", NANOSECONDS), ("ann", "b", NANOSECONDS + 2), ("ann", "a", NANOSECONDS + 1)]
    options = PrepareOptions(min_user=1, drop_consecutive=True)
    assert histories(prepared(tmp_path / "s", rows, options)) == {"ann": ["a", "b"]}


def test_statistics_read_the_exact_times() -> None:
    rows = [("ann", "a", NANOSECONDS), ("ann", "a", NANOSECONDS + 2), ("ann", "b", NANOSECONDS + 1)]
    with read_log(table(rows)) as log:
        summary = inspect(log)
        assert (summary.tied_share, summary.duplicates, summary.last_repeat_share) == (0.0, 0, 1.0)
        assert repetition(log).counts == (0, 1)


def test_times_are_read_as_doubles(tmp_path: Path) -> None:
    assert rows_of(write_csv(tmp_path / "log.csv", ROWS))[0] == ("ann", "i3", float(NANOSECONDS))
    times = prepared(tmp_path / "s", ROWS, KEEP_ALL).times
    assert times is not None
    assert times.dtype == numpy.float64

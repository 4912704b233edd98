"""What an executor makes of lines and columns is what DuckDB's reader makes of the same file; no Spark is started."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from abaca.data.database import Database
from abaca.data.log import read_log
from abaca.data.reading.columns import Wanted
from abaca.data.reading.staging import Staging
from abaca.data.reading.values import BAD, Reading
from abaca.errors import LogError, SpecError
from abaca.spark.files import TextLines, _opened, shown_names
from abaca.spark.log import own_error
from abaca.spark.rows import FILE_BITS, ReadColumns, ReadLines, plain_uri
from abaca.spark.session import settings_of
from abaca.spark.tables import SparkTables

from .samples import BAD_LINES, GOOD_LINES, bad_csv, bad_json

BLOCK = 300
"""Bytes of a block of a file."""


def blocks(path: Path) -> list[pyarrow.RecordBatch]:
    """The lines of a file as Spark gives them: a line belongs to the block in which it begins."""
    lines = path.read_bytes().replace(b"\r\n", b"\n").split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    begin, starts = 0, []
    for line in lines:
        starts.append(begin // BLOCK * BLOCK)
        begin += len(line) + 1
    names = [path.as_uri()] * len(lines)
    table = pyarrow.table({"file": names, "start": pyarrow.array(starts, pyarrow.int64()), "line": lines})
    return [batch for start in sorted(set(starts)) for batch in table.filter(
        pyarrow.compute.equal(table["start"], start)).to_batches(max_chunksize=7)]  # fmt: skip


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All rows of a file, each block read by a task of its own, in the order of their places."""
    first = tuple(line.decode("utf-8", "surrogateescape") for line in path.read_bytes().splitlines())
    lines = TextLines((path.as_uri(),), (_opened(path.as_uri(), path.name, list(first)),), (first,))
    staging = lines.sampled(Wanted())
    reader = ReadLines(staging.reading, lines.files(staging.wanted))
    rows = [row for block in _tasks(blocks(path)) for batch in reader(block) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["row"])


def _tasks(batches: list[pyarrow.RecordBatch]) -> list[list[pyarrow.RecordBatch]]:
    starts = sorted({batch["start"][0].as_py() for batch in batches})
    return [[batch for batch in batches if batch["start"][0].as_py() == start] for start in starts]


@pytest.mark.parametrize("write", [bad_csv, bad_json])
def test_lines_are_read_as_duckdb_reads_the_file(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path)
    rows = read_lines(path)
    with read_log(path, on_bad_row="skip") as log:
        kept = log.database.rows('SELECT "user", item, "time", rest, event FROM log ORDER BY "row"')
        bad_rows = log.bad_rows
    columns = ("user", "item", "time", "rest", "event")
    assert [tuple(row[name] for name in columns) for row in rows if not row["bad"]] == kept
    assert Counter(BAD[row["bad"]] for row in rows if row["bad"]) == bad_rows
    assert len({row["row"] for row in rows}) == len(rows), "places are unique, whatever the blocks"


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_is_described_as_by_duckdb(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(GOOD_LINES + BAD_LINES[kind] + b"cid,jam,3,view\n")
    with pytest.raises(LogError) as error:
        read_log(path)
    (fault,) = [row["fault"] for row in read_lines(path) if row["bad"]]
    assert str(error.value) == f"log.csv line 3: {fault}; fix the line, or pass `on_bad_row='skip'`"


def test_columns_are_read_as_duckdb_reads_them_and_placed_by_file_and_row() -> None:
    table = pyarrow.table(
        {
            "user": ["a", "", None, "d", "é"],
            "item": [7, 8, 9, None, 10],
            "time": ["2024-01-31", "2024-02-01", "2024-02-02", "2024-02-03", "soon"],
        }
    )
    staging = Staging(Database(), Wanted(), skip=True)
    staging.add_table(table)
    renamed = table.rename_columns(["c0", "c1", "c2"]).append_column("row", pyarrow.array(range(5)))
    batch = renamed.append_column("file", pyarrow.array(["file:///x/a%20b.parquet"] * 5)).to_batches()
    reader = ReadColumns(staging.reading, [0, 1, 2, None], {"file:/x/a b.parquet": 3})
    rows = [row for part in reader(batch) for row in part.to_pylist()]
    assert [row["bad"] for row in rows] == [0, 2, 2, 3, 4]
    assert [row["row"] for row in rows] == [(3 << FILE_BITS) + place for place in range(5)]
    assert rows[4]["fault"] == "time 'soon' is not an ISO date, as the other times are"
    with read_log(table, on_bad_row="skip") as log:
        assert log.database.rows('SELECT "user", item, "time" FROM log') == [("a", 7, rows[0]["time"])]


def test_rows_that_share_a_place_are_refused() -> None:
    """As those of a list that was exploded: nothing says which comes first."""
    rows = {"c0": ["a", "a", "b"], "c1": ["x", "y", "z"], "row": [0, 0, 1], "file": ["file:/x.parquet"] * 3}
    reader = ReadColumns(Reading(("text", "text"), None), [0, 1, None, None], {"file:/x.parquet": 0})
    with pytest.raises(LogError, match="several rows for one row of a file"):
        list(reader([pyarrow.record_batch(rows)]))
    halves = pyarrow.table(rows).to_batches(max_chunksize=1)
    with pytest.raises(LogError, match="pass `order=COLUMN`"):
        list(reader(halves))


def test_an_error_of_an_executor_is_the_same_error_on_the_driver() -> None:
    said = "An exception was thrown from the Python worker:\nTraceback …\nabaca.errors.LogError: a row; fix the row\n"
    error = own_error(RuntimeError(said))
    assert isinstance(error, LogError)
    assert str(error) == "a row; fix the row"
    other = RuntimeError("out of memory")
    assert own_error(other) is other


def test_paths_and_names() -> None:
    assert plain_uri("file:///tmp/a%20b.csv") == plain_uri("file:/tmp/a b.csv") == "file:/tmp/a b.csv"
    assert plain_uri("s3a://bucket/x") == "s3a:/bucket/x"
    assert shown_names(["file:///t/log/a.csv", "file:///t/log/b%20c/z.csv"]) == ("a.csv", "b c/z.csv")
    assert shown_names(["file:///t/log/b/z.csv"], "/t/log") == ("b/z.csv",)
    assert shown_names(["file:///t/log.csv"], "/t/log.csv") == ("log.csv",)


def test_settings_are_spelled_key_equals_value() -> None:
    assert settings_of(["spark.master=local[2]", "spark.a=b=c"]) == {"spark.master": "local[2]", "spark.a": "b=c"}
    for wrong in ("spark.master", "master=local"):
        with pytest.raises(SpecError, match="is not a setting; write it like spark"):
            settings_of([wrong])


def test_literals_escape_what_spark_reads_as_an_escape() -> None:
    assert SparkTables.text(None, "it's a \\ here") == "'it\\'s a \\\\ here'"  # type: ignore[arg-type]

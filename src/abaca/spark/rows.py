"""What executors do with the rows of a log: read ids and times by the rules of `data/reading`, and mark bad rows.

The rules are those of DuckDB's reader, run by DuckDB on one batch of rows after another.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow

from abaca.data.database import Database
from abaca.data.reading.formats import LogFile
from abaca.data.reading.lines import Row, delimited_row, json_row
from abaca.data.reading.values import BAD, Places, Reading
from abaca.errors import LogError

FILE_BITS = 42
"""A row of a file is at `file number << FILE_BITS` plus its place in the file."""

ARROW = {"text": pyarrow.string(), "integer": pyarrow.int64()}
SPARK = {"text": "string", "integer": "bigint"}

NUMBERS = {kind: number for number, kind in BAD.items()}

MULTIPLIED = (
    "the frame has several rows for one row of a file, so their order is not known; add a column that holds it, and "
    "pass `order=COLUMN`"
)

Batches = Iterable[pyarrow.RecordBatch]


def plain_uri(uri: str) -> str:
    """A URI of a file as a path without escapes: file:///a%20b and file:/a b are the same."""
    scheme, separator, path = unquote(uri).partition(":")
    return f"{scheme}:/{path.lstrip('/')}" if separator else scheme


def schema_of(reading: Reading) -> str:
    """The columns of rows that were read, as Spark spells a schema."""
    user, item = (SPARK[kind] for kind in reading.ids)
    return f"row bigint, user {user}, item {item}, time double, rest smallint, event string, bad smallint, fault string"


def arrow_schema(reading: Reading) -> pyarrow.Schema:
    """The same for Arrow."""
    user, item = (ARROW[kind] for kind in reading.ids)
    small, text = pyarrow.int16(), pyarrow.string()
    types = (pyarrow.int64(), user, item, pyarrow.float64(), small, text, small, text)
    names = ("row", "user", "item", "time", "rest", "event", "bad", "fault")
    return pyarrow.schema(list(zip(names, types, strict=True)))


@dataclass(frozen=True)
class ReadColumns:
    """Reads the rows of a frame with the columns `c0`, `c1`, … and, of its files, `file` and `row`."""

    reading: Reading
    places: Places
    files: dict[str, int] | None
    """The number of each file; None where the rows have their place already."""

    def __call__(self, batches: Batches) -> Iterator[pyarrow.RecordBatch]:
        database, last = Database(threads=1), -1
        for batch in batches:
            table = pyarrow.table(batch)
            if self.files is not None and len(table):
                paths = table["file"].combine_chunks().dictionary_encode()
                numbers = np.array([self.files[plain_uri(path)] for path in paths.dictionary.to_pylist()], np.int64)
                rows = table["row"].to_numpy() + (numbers[paths.indices.to_numpy()] << FILE_BITS)
                if np.any(np.diff(rows, prepend=last) == 0):
                    raise LogError(MULTIPLIED)
                last = int(rows[-1])
                table = table.drop_columns(["file", "row"]).append_column("row", pyarrow.array(rows))
            yield from read_rows(database, self.reading, table, self.places)
        database.close()


@dataclass(frozen=True)
class TextFile:
    """A file of lines: its number, its format, and where its columns are."""

    number: int
    file: LogFile
    used: tuple[int | None, ...]
    """The places of the user, the item, the time and the event."""

    def row(self, number: int, line: str) -> Row | None:
        """The row that a line holds; None for a blank line."""
        if self.file.format == "json":
            return json_row(number, line)
        used = [place for place in self.used if place is not None]
        return delimited_row(number, line, self.file.delimiter, len(self.file.columns), used)


@dataclass(frozen=True)
class ReadLines:
    """Reads the lines of text files, given as `file`, `start` (of the block in its file) and `line`."""

    reading: Reading
    files: dict[str, TextFile]

    def __call__(self, batches: Batches) -> Iterator[pyarrow.RecordBatch]:
        database = Database(threads=1)
        for file, numbered in _segments(batches, self.files):
            rows = [row for number, line in numbered if (row := file.row(number, line)) is not None]
            yield _faulty([row for row in rows if row.fault is not None], self.reading)
            yield from self._sound(database, file, [row for row in rows if row.fault is None])
        database.close()

    def _sound(self, database: Database, file: TextFile, rows: list[Row]) -> Iterator[pyarrow.RecordBatch]:
        places = [0] if file.file.format == "json" else [p for p in file.used if p is not None]
        columns: dict[str, Any] = {
            f"c{place}": pyarrow.array([row.fields[place] for row in rows], pyarrow.string()) for place in places
        }
        columns["row"] = pyarrow.array([row.line for row in rows], pyarrow.int64())
        sql = "SELECT * FROM arrow_part"
        if file.file.format == "json":
            sql = file.file.json_sql("SELECT c0 AS line, row FROM arrow_part", "row")
        yield from read_rows(database, self.reading, pyarrow.table(columns), list(file.used), sql)


def line_numbers(files: dict[str, TextFile]) -> Any:
    """A function that gives the place of every line, blank ones and headers included."""

    def numbered(batches: Batches) -> Iterator[pyarrow.RecordBatch]:
        for _, lines in _segments(batches, files, headers=True):
            yield pyarrow.record_batch({"row": pyarrow.array([number for number, _ in lines], pyarrow.int64())})

    return numbered


def _segments(
    batches: Batches, files: dict[str, TextFile], *, headers: bool = False
) -> Iterator[tuple[TextFile, list[tuple[int, str]]]]:
    """Lines of one file with their places, without the line of column names.

    A task reads a block of a file from its beginning to its end. A line has at least one byte, so the beginning of the
    block and the number of the line in it give a place that ascends in the file.
    """
    block: tuple[str, int] | None = None
    place, header = 0, False
    for batch in batches:
        paths, starts, lines = (column.to_pylist() for column in batch.columns)
        found: list[tuple[int, str]] = []
        for path, start, line in zip(paths, starts, lines, strict=True):
            if (path, start) != block:
                if found and block is not None:
                    yield files[block[0]], found
                found, block, place = [], (path, start), start
                header = start == 0 and files[path].file.format != "json" and not headers
            text = line.decode("utf-8", "surrogateescape")
            if header and text.strip():
                header = False
            else:
                found.append(((files[path].number << FILE_BITS) + place, text))
            place += 1
        if found and block is not None:
            yield files[block[0]], found


def _faulty(rows: list[Row], reading: Reading) -> pyarrow.RecordBatch:
    """Rows that are no rows of their file."""
    faults = [row.fault for row in rows if row.fault is not None]
    columns: dict[str, Any] = {
        "row": [row.line for row in rows],
        "bad": [NUMBERS[kind] for kind, _ in faults],
        "fault": [words for _, words in faults],
    }
    schema = arrow_schema(reading)
    arrays = [pyarrow.array(columns.get(field.name, [None] * len(rows)), field.type) for field in schema]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def read_rows(
    database: Database, reading: Reading, table: pyarrow.Table, places: Places, sql: str = "SELECT * FROM arrow_part"
) -> Iterator[pyarrow.RecordBatch]:
    """Read ids and times of rows with their place; what is wrong with a bad row is told in words."""
    roles = [(role, place) for role, place in enumerate(places[:3]) if place is not None]
    values = ", ".join(f"c{place}::VARCHAR AS v{role}" for role, place in roles)
    beside = ("row", *(f"v{role}" for role, _ in roles))
    spelled = " ".join(f"WHEN {role + 2} THEN v{role}" for role, _ in roles)
    with database.registered("arrow_part", table):
        read = reading.sql(f"SELECT *, {values} FROM ({sql})", places, database.types(sql), beside)
        columns = 'row, "user", item, "time", rest, event, bad'
        found = database.batches(f"SELECT {columns}, CASE bad {spelled} END AS fault FROM ({read})").read_all()
    bad, values = found["bad"].to_numpy(), found["fault"]
    faults = np.full(len(bad), None, dtype=object)
    for at in np.flatnonzero(bad).tolist():
        faults[at] = reading.fault(int(bad[at]), values[at].as_py())
    found = found.set_column(found.num_columns - 1, "fault", pyarrow.array(faults, pyarrow.string()))
    yield from found.cast(arrow_schema(reading)).to_batches()

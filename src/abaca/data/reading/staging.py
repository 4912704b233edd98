"""Staging: every row of a log goes into one DuckDB table, and bad rows are marked.

DuckDB reads text files. Python reads again a file that DuckDB refuses, and names the bad line.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import pyarrow

from abaca.data.database import Database
from abaca.data.reading.columns import Columns, Wanted, choose, passed_over
from abaca.data.reading.formats import SAMPLE, LogFile
from abaca.data.reading.lines import Row
from abaca.data.reading.values import BAD, Places, Reading, TimeKind, id_kind, id_kind_of, time_kind, time_kind_of
from abaca.errors import LogError
from abaca.shapes import loads

SQL_TYPES = {"text": "VARCHAR", "integer": "BIGINT"}

CHUNK = 200_000
"""Rows that Python passes to DuckDB at once."""


@dataclass(frozen=True)
class Part:
    """Rows to stage: a query with the columns `c0`, `c1`, …, and where they come from."""

    where: str
    unit: str
    columns: tuple[str, ...]
    sql: str
    locate: Callable[[int], int]
    """The line, or row, of a row of the query."""


@dataclass(frozen=True)
class Found:
    """What the rows of a log turned out to be."""

    columns: Columns
    passed_over: dict[str, list[str]]
    dates: bool
    """Whether times were spelled as dates."""
    skip: bool
    """Whether bad rows are left out, and not an error."""
    bad_rows: dict[str, int]
    without_event: str | None = None
    """A part without a column of event types, where others have one."""


class Staging:
    """Collects the rows of a log in the table `staged(user, item, time, rest, event, bad)`."""

    def __init__(self, database: Database, wanted: Wanted, *, skip: bool) -> None:
        self.bad_rows: Counter[str] = Counter()
        self.columns: Columns
        self.passed_over: dict[str, list[str]]
        self.without_event: str | None = None
        """A part without a column of event types, where others have one."""
        self.begun = False
        self.reading: Reading
        self._first = ""
        self._database = database
        self.wanted = wanted
        self.skip = skip

    def found(self) -> Found:
        """What the rows turned out to be."""
        dates = self.reading.times == "date"
        return Found(self.columns, self.passed_over, dates, self.skip, dict(self.bad_rows), self.without_event)

    def add_file(self, file: LogFile) -> None:
        """Stage the rows of a file."""
        import duckdb

        sql = replace(file, path=self._database.without_wildcards(file.path)).sql()
        part = Part(file.name, file.unit, file.columns, sql, file.locate)
        if file.format == "parquet":
            try:
                self._stage(part)
                return None
            except duckdb.Error as error:
                first = str(error).splitlines()[0]
                raise LogError(f"{file.name}: cannot be read as Parquet ({first}); write the file again") from error
        if file.header_line == 1:
            try:
                if self._stage(part):
                    return None
            except (
                duckdb.InvalidInputException, duckdb.ConversionException, duckdb.IOException,
                duckdb.NotImplementedException,
            ):  # fmt: skip
                pass
        return self._stage_by_line(file, file.rows)  # Python reads the file again and finds the line that is wrong

    def add_table(self, table: pyarrow.Table, where: str = "the table") -> None:
        """Stage the rows of a table in memory."""
        import duckdb

        places = [f"c{place}" for place in range(table.num_columns)]
        part = Part(where, "row", tuple(table.column_names), "SELECT * FROM arrow_part", lambda row: row + 1)
        with self._database.registered("arrow_part", table.rename_columns(places)):
            try:
                self._stage(part)
            except duckdb.Error as error:
                first = str(error).splitlines()[0]
                raise LogError(f"{where} cannot be read ({first}); convert its columns to plainer types") from error

    def add_rows(self, file: LogFile, rows: Callable[[list[int]], Iterator[Row]]) -> None:
        """Stage rows of a text file that were read elsewhere, given the places of the columns that are used."""
        self._stage_by_line(file, rows)

    def _stage_by_line(self, file: LogFile, read: Callable[[list[int]], Iterator[Row]]) -> None:
        chosen = choose(file.columns, self.wanted, file.name)
        is_json = file.format == "json"
        used = [0] if is_json else [file.columns.index(column) for column in chosen if column is not None]
        sql = file.json_sql("SELECT c0 AS line FROM arrow_part") if is_json else "SELECT * FROM arrow_part"
        part = Part(file.name, file.unit, file.columns, sql, file.locate)
        rows, done = self._sound(file, read(used)), 0
        try:
            while (chunk := [row.fields for row in islice(rows, CHUNK)]) or not self.begun:
                columns = {
                    f"c{place}": pyarrow.array([row[place] for row in chunk], pyarrow.string()) for place in used
                }
                with self._database.registered("arrow_part", pyarrow.table(columns)):
                    self._stage(replace(part, locate=partial(_locate_after, file, done)))
                done += len(chunk)
        except (OSError, EOFError) as error:
            raise LogError(f"{file.name}: cannot be read ({error}); write the file again") from error

    def _sound(self, file: LogFile, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            if row.fault is None:
                yield row
            elif self.skip:
                self.bad_rows[row.fault[0]] += 1
            else:
                raise LogError(
                    f"{file.name} line {row.line}: {row.fault[1]}; fix the line, or pass `on_bad_row='skip'`"
                )

    def _stage(self, part: Part) -> int:
        """Stage a part; the number of its rows."""
        columns = choose(part.columns, self.wanted, part.where)
        types = self._database.types(part.sql)
        places = [None if column is None else part.columns.index(column) for column in columns]
        if self.begun:
            self._agree(part, columns, places, types)
        else:
            self._begin(part, columns, places, types)
        before = self._database.value("SELECT coalesce(max(rowid), -1) FROM staged")
        self._database.run(f"INSERT INTO staged {self.reading.sql(part.sql, places, types)}")
        counts = self._database.rows(
            "SELECT bad, count(*) FROM staged WHERE rowid > $1 AND bad > 0 GROUP BY bad", [before]
        )
        if counts and not self.skip:
            raise LogError(self._complaint(part, places, before))
        self.bad_rows.update({BAD[bad]: count for bad, count in counts})
        return int(self._database.value("SELECT coalesce(max(rowid), -1) FROM staged") - before)

    def _begin(self, part: Part, columns: Columns, places: Places, types: dict[str, str]) -> None:
        """The first part decides whether ids are text or integers, and times numbers or dates."""
        user, item = (
            id_kind(role, types[f"c{place}"], part.where) or id_kind_of(self._sample(part, place, types))
            for role, place in zip(("user", "item"), places, strict=False)
        )
        self.reading = Reading((user, item), self._time_kind(part, places[2], types))
        self.columns, self.begun, self._first = columns, True, part.where
        self.passed_over = passed_over(part.columns, self.wanted, columns)
        ids = ", ".join(
            f'"{role}" {SQL_TYPES[kind]}' for role, kind in zip(("user", "item"), (user, item), strict=True)
        )
        rest = '"time" DOUBLE, rest SMALLINT, event VARCHAR, bad UTINYINT'
        self._database.run(f"CREATE TABLE staged ({ids}, {rest})")

    def _time_kind(self, part: Part, time: int | None, types: dict[str, str]) -> TimeKind | None:
        """Whether the times of a part are numbers or dates; None where there are none."""
        if time is None:
            return None
        return time_kind(types[f"c{time}"], part.where) or time_kind_of(self._sample(part, time, types))

    def _agree(self, part: Part, columns: Columns, places: Places, types: dict[str, str]) -> None:
        """Refuse a part whose ids or times are of another kind than those before."""
        for role, place, kind in zip(("user", "item"), places, self.reading.ids, strict=False):
            if (found := id_kind(role, types[f"c{place}"], part.where)) not in (None, kind):
                raise LogError(
                    f"{part.where}: the {role} ids are {found}, but {kind} in the files before; make them alike"
                )
        if (columns.time is None) != (self.columns.time is None):
            raise LogError(
                f"{part.where}: some files of the log have a time column and some have none; pass `time=COLUMN`"
            )
        if (columns.event is None) != (self.columns.event is None):
            self.without_event = part.where if columns.event is None else self._first
        if columns.time is not None and self.reading.times is None:
            self.reading = replace(self.reading, times=self._time_kind(part, places[2], types))
        elif columns.time is not None:
            times = time_kind(types[f"c{places[2]}"], part.where)
            if times not in (None, self.reading.times):
                raise LogError(f"{part.where}: the times are {times}s, but {self.reading.times}s before; use one type")

    def _complaint(self, part: Part, places: Places, before: int) -> str:
        """What is wrong with the first bad row of the latest part, where, and what to do."""
        first, row, bad = self._database.row(
            "SELECT min(rowid), min(rowid) FILTER (bad > 0), arg_min(bad, rowid) FILTER (bad > 0) "
            "FROM staged WHERE rowid > $1",
            [before],
        )
        ordinal = row - first
        sql = f"SELECT c{places[bad - 2]}::VARCHAR FROM ({part.sql}) LIMIT 1 OFFSET {ordinal}"
        fault = self.reading.fault(bad, None if bad == 1 else self._database.value(sql))
        place = f"{part.where} {part.unit} {part.locate(ordinal)}"
        return f"{place}: {fault}; fix the {part.unit}, or pass `on_bad_row='skip'`"

    def _sample(self, part: Part, place: int | None, types: dict[str, str]) -> list[object]:
        """Values of one column in the first rows."""
        rows = self._database.rows(f"SELECT c{place} FROM ({part.sql}) WHERE c{place} IS NOT NULL LIMIT {SAMPLE}")
        return [loads(value) if types[f"c{place}"] == "JSON" else value for (value,) in rows]


def _locate_after(file: LogFile, done: int, row: int) -> int:
    return file.locate(done + row)

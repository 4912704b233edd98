"""Lists of a file: one history per row, with its times, its moment and its own rules."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow.parquet

from abaca.data.database import Database
from abaca.data.moments import moments_of
from abaca.data.query import Query
from abaca.data.reading.columns import recognise
from abaca.data.reading.formats import LogFile
from abaca.data.reading.values import IdKind, id_kind, id_kind_of
from abaca.errors import LogError, QueryError
from abaca.shapes import loads
from abaca.types import Id

ROWS = 8192
"""Rows of a file with lists that are in memory at once."""

LISTS = ("list", "large_list", "fixed_size_list")
"""Arrow types of lists."""

OWN_LISTS = ("exclude", "candidates")
"""Columns of lists beside the histories: the rules of each query."""

OWN_RULES = (
    *("repeats", "max_repeat_share", "max_repeats", "min_new", "min_cold", "cooldown", "at_most"),
    *("at_least", "boost", "boost_category", "diversity"),
)
"""Columns of any type beside the histories: other rules of each query."""

TIMES, NOW, TYPES = "times", "now", "types"
"""The columns with the times and types of each history, and with the moment of each query unless another is named."""


class ListColumns(NamedTuple):
    """The columns of histories, of users (None: queries are named by their row) and of moments."""

    history: str
    user: str | None
    now: str
    typed: bool = False
    """Whether the column of types is read."""


class Place(NamedTuple):
    """A row of a file or of a frame, and what its cells hold."""

    where: str
    unit: str
    """What a row is called."""
    line: Callable[[], Any]
    """Its line, or what else names it."""
    json: bool = False
    """Whether cells are JSON."""

    def __str__(self) -> str:
        return f"{self.where} {self.unit} {self.line()}"

    def cell(self, value: Any) -> Any:
        """A value as Python has it."""
        return loads(value) if self.json and value is not None else value

    def ids(self, ids: Any) -> list[Id] | None:
        """A list of ids; None where there is none."""
        if ids is None:
            return None
        if not isinstance(ids, list) or not all(isinstance(id, str | int) and not isinstance(id, bool) for id in ids):
            shown = json.dumps(ids, default=str)[:60]
            raise LogError(f"{self}: {shown} is not a list of ids (text or whole numbers); fix the {self.unit}")
        return ids

    def names(self, names: Any) -> list[str | None] | None:
        """A list of types of events; None where there is none."""
        if names is not None and not (
            isinstance(names, list) and all(name is None or isinstance(name, str) for name in names)
        ):
            shown = json.dumps(names, default=str)[:60]
            raise LogError(f"{self}: {shown} is not a list of types of events; fix the {self.unit}")
        return names

    def moments(self, values: Any, column: str, unit: str | None) -> list[float]:
        """Moments as numbers."""
        try:
            found: list[float] = moments_of(values, f"column {column!r}", unit).tolist()
        except QueryError as error:
            raise LogError(f"{self}: {error}") from error
        return found


@dataclass(frozen=True)
class RowReader:
    """Makes a query of the cells of a row."""

    columns: ListColumns
    key_kind: IdKind
    unit: str | None
    """The unit of the training log's times."""
    now: float | None
    """The moment of the rows that have none of their own."""

    @property
    def own(self) -> list[str]:
        """The columns to read; one that has another role is not read for its name."""
        history, user, now, _ = self.columns
        named = [history, now] if user is None else [history, now, user]
        beside = (*OWN_LISTS, TIMES, *OWN_RULES, *([TYPES] if self.columns.typed else []))
        return [*named, *(name for name in beside if name not in named)]

    def query(self, number: int, cells: dict[str, Any], at: Place) -> Query:
        """The query of a row, which is named by its number where there is no column of users."""
        history, user, now, _ = self.columns
        row = {name: at.cell(value) for name, value in cells.items()}
        key = number if user is None else self._key(at, row.pop(user))
        ids = at.ids(row.pop(history)) or []
        moment, times = row.get(now), row.get(TIMES)
        if times is not None:
            times = at.moments(times, TIMES, self.unit)
            if len(times) != len(ids):
                raise LogError(f"{at}: it has {len(ids)} items and {len(times)} times; fix the {at.unit}")
        queried = self.now if moment is None else at.moments([moment], now, self.unit)[0]
        exclude, candidates = (at.ids(row.get(name)) for name in OWN_LISTS)
        rules = {name: row[name] for name in OWN_RULES if name != now and row.get(name) is not None}
        types = at.names(row.get(TYPES)) if self.columns.typed else None
        if types is not None and len(types) != len(ids):
            raise LogError(f"{at}: it has {len(ids)} items and {len(types)} types; fix the {at.unit}")
        return Query(key, ids, times, exclude, candidates, queried, rules or None, types)

    def _key(self, at: Place, key: Any) -> Id:
        fault = None
        if not isinstance(key, str if self.key_kind == "text" else int) or isinstance(key, bool):
            wanted = "text" if self.key_kind == "text" else "a whole number"
            fault = f"the user {key!r} is not {wanted}; fix the {at.unit}"
        elif isinstance(key, int) and not -(1 << 63) <= key < 1 << 63:
            fault = f"the user {key} is beyond 64 bits; write users as text"
        if fault is not None:
            raise LogError(f"{at}: {fault}")
        return key  # type: ignore[no-any-return]


class ListQueries:
    """One query per row: a list column of Parquet files, or of JSON lines."""

    def __init__(self, files: list[LogFile], columns: ListColumns, unit: str | None, now: float | None) -> None:
        for file in files:
            _check_column(file, columns.history)
            if columns.now != NOW:
                _check_column(file, columns.now)
            if columns.history not in list_columns(file):
                raise LogError(
                    f"{file.name}: column {columns.history!r} does not hold lists; leave --history-column out for a log"
                )
        self.database = Database()
        self.files = [_with_own(replace(file, path=self.database.without_wildcards(file.path))) for file in files]
        self.key = "row" if columns.user is None else "user"
        self.bad_rows: dict[str, int] = {}
        self.key_kind: IdKind = "integer" if columns.user is None else self._key_kind(files[0], columns.user)
        self.reader = RowReader(columns, self.key_kind, unit, now)
        self.lengths = [int(next(self._rows(file, "SELECT count(*)"))[0]) for file in self.files]
        self.total = sum(self.lengths)

    def read(self, start: int) -> Iterator[Query]:
        before = 0
        for file, length in zip(self.files, self.lengths, strict=True):
            skipped = min(max(0, start - before), length)
            broken = "broken" if file.format == "json" else "false"
            own = [name for name in self.reader.own if name in file.columns]
            fields = ", ".join([broken, *self._fields(file, own)])
            rows = self._rows(file, f"SELECT {fields}", f"OFFSET {skipped}")
            for place, (bad, *values) in enumerate(rows, start=skipped):
                if bad:
                    raise LogError(f"{file.name} line {file.locate(place)}: not a JSON object; fix the line")
                at = Place(file.name, file.unit, partial(file.locate, place), file.format == "json")
                yield self.reader.query(before + place, dict(zip(own, values, strict=True)), at)
            before += length

    def _fields(self, file: LogFile, names: list[str]) -> Iterator[str]:
        """The columns in SQL; times with a zone become those of UTC, which Python can read."""
        types = self.database.types(file.sql())
        for name in names:
            field = f"c{file.columns.index(name)}"
            zoned = types[field].startswith("TIMESTAMP WITH TIME ZONE")
            yield f"{field}::TIMESTAMP{'[]' if types[field].endswith(']') else ''}" if zoned else field

    def _rows(self, file: LogFile, select: str, end: str = "") -> Iterator[tuple[Any, ...]]:
        import duckdb

        try:
            found = self.database.connection.cursor().execute(f"{select} FROM ({file.sql()}) {end}")
            while rows := found.fetchmany(ROWS):
                yield from rows
        except duckdb.Error as error:
            raise file.refusal(error) from error

    def _key_kind(self, file: LogFile, user: str) -> IdKind:
        _check_column(file, user)
        type = self.database.types(self.files[0].sql())[f"c{file.columns.index(user)}"]
        return id_kind("user", type, file.name) or id_kind_of(file.sample(user))


def history_column(lists: Sequence[str], columns: Sequence[str], where: str, *, typed: bool) -> str | None:
    """The only column of lists that can be histories; None where another column is the item of a log."""
    beside = (*OWN_LISTS, TIMES, *OWN_RULES, *([TYPES] if typed else []))
    found = [name for name in lists if name not in beside]
    plain = [name for name in columns if name not in found]
    if not found or recognise("item", plain, where) is not None:
        return None
    if len(found) > 1:
        raise LogError(f"{where}: {', '.join(found)} are all lists; name the histories' with --history-column")
    return found[0]


def list_columns(file: LogFile) -> list[str]:
    """The columns of a file that hold lists."""
    if file.format == "parquet":
        types = {field.name: str(field.type) for field in pyarrow.parquet.read_schema(file.path)}
        return [name for name, type in types.items() if type.split("<")[0] in LISTS]
    if file.format == "json":
        return [name for name in file.columns if isinstance(next(iter(file.sample(name)), None), list)]
    return []


def _with_own(file: LogFile) -> LogFile:
    """The file with all columns that a row may have: lines far from the first may have some that those do not."""
    known = (*OWN_LISTS, TIMES, NOW, TYPES, *OWN_RULES)
    later = [name for name in known if file.format == "json" and name not in file.columns]
    return replace(file, columns=(*file.columns, *later))


def _check_column(file: LogFile, column: str) -> None:
    if column not in file.columns:
        raise LogError(f"{file.name}: there is no column {column!r}; it has {', '.join(file.columns)}")

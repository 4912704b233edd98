"""The queries of a file: histories of a log's users, or lists, one per row; oldest item first."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from abaca.data.database import Database, text
from abaca.data.duckdb_engine import event_sql, without_consecutive
from abaca.data.log import ORDER, Log, OnBadRow, read_log
from abaca.data.prepare import PrepareOptions
from abaca.data.reading.columns import recognise
from abaca.data.reading.formats import LogFile, open_files
from abaca.data.reading.values import IdKind, id_kind, id_kind_of
from abaca.durable import checksum
from abaca.errors import LogError
from abaca.types import Id

ROWS = 8192
"""Rows of a file with lists that are in memory at once."""

LISTS = ("list", "large_list", "fixed_size_list")
"""Arrow types of lists."""

OWN_LISTS = ("exclude", "candidates")
"""Columns of lists beside the histories: the rules of each query."""

MEMORY = "500MB"
"""What DuckDB may hold while a log is read: the model that answers needs its share."""


class Query(NamedTuple):
    """One history and whose it is."""

    key: Id
    ids: list[Id]
    times: list[float] | None = None
    """When each interaction happened, as in `times.npy`; None where the log has no times."""
    exclude: list[Id] | None = None
    """Ids that may not be recommended to this user; None where the file has no such column."""
    candidates: list[Id] | None = None
    """The only ids that may be; None for all."""


class Queries(Protocol):
    """Queries in an order that does not change from one reading to the next."""

    @property
    def key(self) -> str:
        """What names a query: its `user`, or its `row` (from 0) where lists come without users."""

    @property
    def key_kind(self) -> IdKind: ...

    @property
    def total(self) -> int:
        """How many queries there are."""

    @property
    def bad_rows(self) -> dict[str, int]:
        """Rows that were left out, by what was wrong with them."""

    def read(self, start: int) -> Iterator[Query]:
        """The queries from number `start` on."""


class LogQueries:
    """The history of each user of a log, users by id, each in time order, ties in file order."""

    key = "user"

    def __init__(self, log: Log, options: PrepareOptions) -> None:
        self.database = log.database
        self.database.run(f"SET memory_limit = {text(MEMORY)}")
        self.bad_rows = log.bad_rows
        self.timed = log.has_time
        time = '"time"::FLOAT::DOUBLE AS "time", 0 AS rest' if options.time_precision == "single" else '"time", rest'
        counts = event_sql(options.events) if options.events is not None and log.has_event else "true"
        counted = f'(SELECT "row", "user", item, {time} FROM log WHERE {counts})'
        rows = without_consecutive(counted) if options.drop_consecutive else f"SELECT * FROM {counted}"
        self.database.run(f"CREATE OR REPLACE TEMPORARY VIEW history AS {rows}")
        self.total: int = self.database.value('SELECT count(DISTINCT "user") FROM history')
        kind = self.database.types('SELECT "user" FROM log')["user"]
        self.key_kind: IdKind = "integer" if kind == "BIGINT" else "text"

    def read(self, start: int) -> Iterator[Query]:
        if start >= self.total:
            return
        first = self.database.value(f'SELECT DISTINCT "user" FROM history ORDER BY "user" LIMIT 1 OFFSET {start}')
        where = f'WHERE "user" >= {text(first) if isinstance(first, str) else first}' if start else ""
        rows = f'SELECT "user", item, "time" FROM history {where} ORDER BY "user", {ORDER}'
        pending: Query | None = None
        for batch in self.database.batches(rows):
            for query in self._runs(batch):
                if pending is not None and pending.key == query.key:  # of a user whose rows two batches share
                    pending.ids.extend(query.ids)
                    (pending.times or []).extend(query.times or [])
                    continue
                if pending is not None:
                    yield pending
                pending = query
        if pending is not None:
            yield pending

    def _runs(self, batch: pyarrow.RecordBatch) -> Iterator[Query]:
        """Consecutive rows (user, item, time) of one user together."""
        users, items, times = batch.columns
        if not len(users):
            return
        changes = pyarrow.compute.not_equal(users[1:], users[:-1]).to_numpy(zero_copy_only=False).nonzero()[0] + 1
        ids, moments = items.to_pylist(), times.to_pylist()
        for begin, end in pairwise([0, *changes.tolist(), len(users)]):
            yield Query(users[begin].as_py(), ids[begin:end], moments[begin:end] if self.timed else None)


class ListQueries:
    """One query per row: a list column of Parquet files, or of JSON lines."""

    def __init__(self, files: list[LogFile], column: str, user: str | None) -> None:
        for file in files:
            _check_column(file, column)
            if column not in _list_columns(file):
                raise LogError(
                    f"{file.name}: column {column!r} does not hold lists; leave --history-column out for a log"
                )
        self.database = Database()
        self.files = [_with_own_lists(replace(file, path=self.database.without_wildcards(file.path))) for file in files]
        self.column, self.user = column, user
        self.key = "row" if user is None else "user"
        self.bad_rows: dict[str, int] = {}
        self.key_kind: IdKind = "integer" if user is None else self._key_kind(files[0], user)
        self.lengths = [int(next(self._rows(file, "SELECT count(*)"))[0]) for file in self.files]
        self.total = sum(self.lengths)

    def read(self, start: int) -> Iterator[Query]:
        before = 0
        for file, length in zip(self.files, self.lengths, strict=True):
            skipped = min(max(0, start - before), length)
            broken = "broken" if file.format == "json" else "false"
            own = [name for name in OWN_LISTS if name in file.columns and name != self.column]
            columns = [self.column, *own] if self.user is None else [self.column, *own, self.user]
            fields = ", ".join([broken, *(f"c{file.columns.index(column)}" for column in columns)])
            rows = self._rows(file, f"SELECT {fields}", f"OFFSET {skipped}")
            for place, (bad, *row) in enumerate(rows, start=skipped):
                if bad:
                    raise LogError(f"{file.name} line {file.locate(place)}: not a JSON object; fix the line")
                key = before + place if self.user is None else self._key(file, place, row.pop())
                ids, *lists = (_ids(file, place, part) for part in row)
                rules = dict(zip(own, lists, strict=True))
                yield Query(key, ids or [], None, *(rules.get(name) for name in OWN_LISTS))
            before += length

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

    def _key(self, file: LogFile, place: int, key: Any) -> Id:
        key = json.loads(key) if file.format == "json" and key is not None else key
        fault = None
        if not isinstance(key, str if self.key_kind == "text" else int) or isinstance(key, bool):
            wanted = "text" if self.key_kind == "text" else "a whole number"
            fault = f"the user {key!r} is not {wanted}; fix the {file.unit}"
        elif isinstance(key, int) and not -(1 << 63) <= key < 1 << 63:
            fault = f"the user {key} is beyond 64 bits; write users as text"
        if fault is not None:
            raise LogError(f"{file.name} {file.unit} {file.locate(place)}: {fault}")
        return key  # type: ignore[no-any-return]


@dataclass(frozen=True)
class HistorySource:
    """Where histories are: a file or a folder of files."""

    path: Path
    user: str | None = None
    """Column of users; None: recognise it, and without one name a query by its row."""
    item: str | None = None
    """Column of a log's items."""
    time: str | None = None
    """Column of a log's times."""
    history: str | None = None
    """Column of lists; None: the only one, where no other column is the item of a log."""
    on_bad_row: OnBadRow | None = None
    """`error` refuses a log with bad rows, `skip` leaves them out; None: as in training."""
    like: dict[str, Any] = field(default_factory=dict)
    """How the training log was read, as arguments of `read_log`."""
    options: PrepareOptions = PrepareOptions()  # noqa: RUF009
    """How the training log was prepared: which events count, and whether consecutive repeats do."""

    def open(self) -> Queries:
        """The lists of a column, else what the users of a log did."""
        files = open_files(self.path)
        lists = self.history or self._list_column(files[0])
        if lists is None:
            for file, name in product(files, OWN_LISTS):
                if name in _list_columns(file):
                    raise LogError(
                        f"{file.name}: column {name!r} cannot be used, a log has no rules of its own; rename it"
                    )
            bad = {} if self.on_bad_row is None else {"on_bad_row": self.on_bad_row}
            log = read_log(self.path, user=self.user, item=self.item, time=self.time, **{**self.like, **bad})
            return LogQueries(log, self.options)
        first = files[0]
        user = self.user or recognise("user", [name for name in first.columns if name != lists], first.name)
        return ListQueries(files, lists, user)

    def fingerprint(self) -> str:
        """Names what the files hold, and how they are read."""
        read = [value for name, value in sorted(vars(self).items()) if name != "path"]
        digest = hashlib.sha256(repr(read).encode())
        for file in open_files(self.path):
            digest.update(f"{file.name} {checksum(file.path)}\n".encode())
        return digest.hexdigest()

    def _list_column(self, file: LogFile) -> str | None:
        """The column of lists, None where the file is a log."""
        found = [name for name in _list_columns(file) if name not in OWN_LISTS]
        plain = [name for name in file.columns if name not in found]
        if not found or self.item is not None or recognise("item", plain, file.name) is not None:
            return None
        if len(found) > 1:
            raise LogError(f"{file.name}: {', '.join(found)} are all lists; name the histories' with --history-column")
        return found[0]


def _list_columns(file: LogFile) -> list[str]:
    if file.format == "parquet":
        types = {field.name: str(field.type) for field in pyarrow.parquet.read_schema(file.path)}
        return [name for name, type in types.items() if type.split("<")[0] in LISTS]
    if file.format == "json":
        return [name for name in file.columns if isinstance(next(iter(file.sample(name)), None), list)]
    return []


def _with_own_lists(file: LogFile) -> LogFile:
    """The file with all columns of rules: lines far from the first may have some that those do not."""
    later = [name for name in OWN_LISTS if file.format == "json" and name not in file.columns]
    return replace(file, columns=(*file.columns, *later))


def _check_column(file: LogFile, column: str) -> None:
    if column not in file.columns:
        raise LogError(f"{file.name}: there is no column {column!r}; it has {', '.join(file.columns)}")


def _ids(file: LogFile, place: int, ids: Any) -> list[Id] | None:
    """A list of ids; None where there is none."""
    ids = json.loads(ids) if file.format == "json" and ids is not None else ids
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(id, str | int) and not isinstance(id, bool) for id in ids):
        shown, where = json.dumps(ids, default=str)[:60], f"{file.name} {file.unit} {file.locate(place)}"
        raise LogError(f"{where}: {shown} is not a list of ids (text or whole numbers); fix the {file.unit}")
    return ids

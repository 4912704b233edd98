"""Histories to recommend after: those of a log's users, or lists, one per row; streamed, oldest item first."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from abaca.data.filters import event_sql, without_consecutive
from abaca.data.log import Log, OnBadRow, read_log
from abaca.data.prepare import PrepareOptions
from abaca.data.reading.columns import recognise
from abaca.data.reading.formats import LogFile, open_files
from abaca.data.reading.lines import json_rows
from abaca.data.reading.values import IdKind
from abaca.data.store import text
from abaca.durable import checksum
from abaca.errors import LogError
from abaca.types import Id

ROWS = 8192
"""Rows of a file with lists that are in memory at once."""

MEMORY = "500MB"
"""What DuckDB may hold while a log is read: the model that answers needs its share."""


class History(NamedTuple):
    """One history and whose it is."""

    key: Id
    ids: list[Id]


class Histories(Protocol):
    """Histories in an order that does not change from one reading to the next."""

    @property
    def key(self) -> str:
        """What a history is known by: `user`, or `row` (from 0) where lists come without users."""
        ...

    @property
    def key_kind(self) -> IdKind: ...

    @property
    def total(self) -> int:
        """How many there are."""
        ...

    @property
    def bad_rows(self) -> dict[str, int]:
        """Rows that were left out, by what was wrong with them."""
        ...

    def read(self, start: int) -> Iterator[History]:
        """The histories from number `start` on."""
        ...


class LogHistories:
    """What each user of a log did, users by id, each in time order, ties in file order."""

    key = "user"

    def __init__(self, log: Log, options: PrepareOptions) -> None:
        self.store = log.store
        self.store.run(f"SET memory_limit = {text(MEMORY)}")
        self.bad_rows = log.bad_rows
        time = '"time"::FLOAT' if options.time_precision == "single" else '"time"'
        counts = event_sql(options.events) if options.events is not None and log.has_event else "true"
        counted = f'(SELECT "row", "user", item, {time} AS "time" FROM log WHERE {counts})'
        rows = without_consecutive(counted) if options.drop_consecutive else f"SELECT * FROM {counted}"
        self.store.run(f"CREATE OR REPLACE TEMPORARY VIEW history AS {rows}")
        self.total: int = self.store.value('SELECT count(DISTINCT "user") FROM history')
        kind = self.store.types('SELECT "user" FROM log')["user"]
        self.key_kind: IdKind = "integer" if kind == "BIGINT" else "text"

    def read(self, start: int) -> Iterator[History]:
        if start >= self.total:
            return
        first = self.store.value(f'SELECT DISTINCT "user" FROM history ORDER BY "user" LIMIT 1 OFFSET {start}')
        where = f'WHERE "user" >= {text(first) if isinstance(first, str) else first}' if start else ""
        pending: History | None = None
        for batch in self.store.batches(f'SELECT "user", item FROM history {where} ORDER BY "user", "time", "row"'):
            for user, ids in _runs(batch):
                if pending is not None and pending.key == user:
                    pending.ids.extend(ids)
                    continue
                if pending is not None:
                    yield pending
                pending = History(user, ids)
        if pending is not None:
            yield pending


def _runs(batch: pyarrow.RecordBatch) -> Iterator[tuple[Id, list[Id]]]:
    """Consecutive rows (user, item) of one user together."""
    users, items = batch.columns
    if not len(users):
        return
    changes = pyarrow.compute.not_equal(users[1:], users[:-1]).to_numpy(zero_copy_only=False).nonzero()[0] + 1
    bounds = [0, *changes.tolist(), len(users)]
    ids = items.to_pylist()
    for begin, end in pairwise(bounds):
        yield users[begin].as_py(), ids[begin:end]


@dataclass(frozen=True)
class ListHistories:
    """One history per row: a list column of Parquet files, or of JSON lines."""

    files: list[LogFile]
    column: str
    user: str | None
    key_kind: IdKind
    lengths: list[int]
    """Rows of each file."""

    @property
    def total(self) -> int:
        return sum(self.lengths)

    @property
    def bad_rows(self) -> dict[str, int]:
        return {}

    @property
    def key(self) -> str:
        return "row" if self.user is None else "user"

    def read(self, start: int) -> Iterator[History]:
        number = start
        for file, line, key, ids in self._rows(start):
            yield History(number if self.user is None else self._key(file, line, key), _ids(file, line, ids))
            number += 1

    def _rows(self, start: int) -> Iterator[tuple[LogFile, int, Any, Any]]:
        """The file, its row or line, the key and the list, from number `start` on."""
        for file, length in zip(self.files, self.lengths, strict=True):
            if start < length:
                read = self._parquet if file.format == "parquet" else self._json
                for line, key, ids in read(file, start):
                    yield file, line, key, ids
            start = max(0, start - length)

    def _parquet(self, file: LogFile, start: int) -> Iterator[tuple[int, Any, Any]]:
        columns = [self.column] if self.user is None else [self.column, self.user]
        with pyarrow.parquet.ParquetFile(file.path) as table:
            before, groups = 0, range(table.num_row_groups)
            while before + (size := table.metadata.row_group(groups[0]).num_rows) <= start:
                before, groups = before + size, groups[1:]
            for batch in table.iter_batches(ROWS, row_groups=list(groups), columns=columns):
                part = batch.slice(max(0, start - before))
                before += batch.num_rows
                lists = part.column(self.column).to_pylist()
                keys = part.column(self.user).to_pylist() if self.user is not None else [None] * len(lists)
                first = before - len(lists) + 1
                yield from zip(range(first, before + 1), keys, lists, strict=True)

    def _json(self, file: LogFile, start: int) -> Iterator[tuple[int, Any, Any]]:
        for row in islice(json_rows(file.path), start, None):
            try:
                document = json.loads(row.fields[0])
            except ValueError:
                document = None
            if row.fault is not None or not isinstance(document, dict):
                raise LogError(f"{file.name} line {row.line}: not a JSON object; fix the line")
            yield row.line, None if self.user is None else document.get(self.user), document.get(self.column)

    def _key(self, file: LogFile, line: int, key: Any) -> Id:
        kind = str if self.key_kind == "text" else int
        if not isinstance(key, kind) or isinstance(key, bool):
            wanted = "text" if self.key_kind == "text" else "a whole number"
            raise LogError(f"{file.name} {file.unit} {line}: the user {key!r} is not {wanted}; fix the {file.unit}")
        if isinstance(key, int) and not -(1 << 63) <= key < 1 << 63:
            raise LogError(f"{file.name} {file.unit} {line}: the user {key} is beyond 64 bits; write users as text")
        return key


@dataclass(frozen=True)
class HistorySource:
    """Where histories are: a file or a folder of files."""

    path: Path
    user: str | None = None
    """Column of users; None: recognise it, and without one a history is known by its row."""
    item: str | None = None
    """Column of a log's items."""
    time: str | None = None
    """Column of a log's times."""
    history: str | None = None
    """Column of lists; None: the only one, where no other column is the item of a log."""
    on_bad_row: OnBadRow | None = None
    """What a log's bad rows do: `error` stops, `skip` leaves them out; None: as in the log it is like, else `error`."""
    like: dict[str, Any] = field(default_factory=dict)
    """How the log was read that the model learned from, as arguments of `read_log`."""
    options: PrepareOptions = PrepareOptions()  # noqa: RUF009
    """What the model learned from: which events count, and whether a repetition at once does."""

    def open(self) -> Histories:
        """The lists of a column, else what the users of a log did."""
        files = open_files(self.path)
        lists = self.history or self._list_column(files[0])
        if lists is None:
            bad = {} if self.on_bad_row is None else {"on_bad_row": self.on_bad_row}
            log = read_log(self.path, user=self.user, item=self.item, time=self.time, **{**self.like, **bad})
            return LogHistories(log, self.options)
        for file in files:
            _check_lists(file, lists)
        first = files[0]
        user = self.user or recognise("user", [name for name in first.columns if name != lists], first.name)
        if user is not None and user not in first.columns:
            raise LogError(f"{first.name}: there is no column {user!r}; it has {', '.join(first.columns)}")
        return ListHistories(files, lists, user, _key_kind(first, user), [_length(file) for file in files])

    def fingerprint(self) -> str:
        """Names what the files hold, and how they are read."""
        read = [value for name, value in sorted(vars(self).items()) if name != "path"]
        digest = hashlib.sha256(repr(read).encode())
        for file in open_files(self.path):
            digest.update(f"{file.name} {checksum(file.path)}\n".encode())
        return digest.hexdigest()

    def _list_column(self, file: LogFile) -> str | None:
        """The column of lists, None where the file is a log."""
        found = _list_columns(file)
        plain = [name for name in file.columns if name not in found]
        if not found or self.item is not None or recognise("item", plain, file.name) is not None:
            return None
        if len(found) > 1:
            raise LogError(f"{file.name}: {', '.join(found)} are all lists; name the histories' with --history-column")
        return found[0]


def _list_columns(file: LogFile) -> list[str]:
    if file.format == "parquet":
        return [field.name for field in pyarrow.parquet.read_schema(file.path) if _is_list(field.type)]
    if file.format == "json":
        samples = {name: file.sample(place) for place, name in enumerate(file.columns)}
        return [name for name, values in samples.items() if values and isinstance(values[0], list)]
    return []


def _is_list(type: pyarrow.DataType) -> bool:
    types = pyarrow.types
    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _check_lists(file: LogFile, column: str) -> None:
    if column not in file.columns:
        raise LogError(f"{file.name}: there is no column {column!r}; it has {', '.join(file.columns)}")
    if column not in _list_columns(file):
        raise LogError(f"{file.name}: column {column!r} does not hold lists; leave --history-column out for a log")
    if file.format == "parquet":
        kind = pyarrow.parquet.read_schema(file.path).field(column).type.value_type
        if not (pyarrow.types.is_integer(kind) or _is_text(kind)):
            raise LogError(f"{file.name}: column {column!r} holds lists of {kind}; ids are text or whole numbers")


def _is_text(type: pyarrow.DataType) -> bool:
    types = pyarrow.types
    value = type.value_type if types.is_dictionary(type) else type
    return bool(types.is_string(value) or types.is_large_string(value) or types.is_string_view(value))


def _key_kind(file: LogFile, user: str | None) -> IdKind:
    if user is None:
        return "integer"
    if file.format == "parquet":
        type = pyarrow.parquet.read_schema(file.path).field(user).type
        if not (pyarrow.types.is_integer(type) or _is_text(type)):
            raise LogError(f"{file.name}: the user column is {type}; ids are text or whole numbers")
        return "text" if _is_text(type) else "integer"
    values = file.sample(file.columns.index(user))
    return "integer" if values and isinstance(values[0], int) else "text"


def _length(file: LogFile) -> int:
    if file.format == "parquet":
        return int(pyarrow.parquet.read_metadata(file.path).num_rows)
    return sum(1 for _ in json_rows(file.path))


def _ids(file: LogFile, line: int, ids: Any) -> list[Id]:
    """A list as a history; no list at all is an empty one."""
    if ids is None:
        return []
    if not isinstance(ids, list) or not all(isinstance(id, str | int) and not isinstance(id, bool) for id in ids):
        shown = json.dumps(ids, default=str)[:60]
        raise LogError(
            f"{file.name} {file.unit} {line}: {shown} is not a list of ids (text or whole numbers); fix the {file.unit}"
        )
    return ids

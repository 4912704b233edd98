"""The queries of a file: histories of a log's users, or lists, one per row; oldest item first."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute

from abaca.data.database import text
from abaca.data.engine import ORDER, Tables, event_sql, time_sql, without_consecutive
from abaca.data.lists import NOW, OWN_LISTS, ListColumns, ListQueries, history_column, list_columns
from abaca.data.log import BaseLog, Log, OnBadRow, read_log
from abaca.data.moments import Moment, now_of, parse_moment
from abaca.data.prepare import PrepareOptions
from abaca.data.query import Queries, Query
from abaca.data.reading.columns import recognise
from abaca.data.reading.formats import LogFile, open_files
from abaca.data.reading.values import UNITS, IdKind, unix_unit
from abaca.durable import checksum
from abaca.errors import LogError, QueryError

__all__ = ["HistorySource", "LogQueries", "Queries", "Query"]

MEMORY = "500MB"
"""What DuckDB may hold while a log is read: the model that answers needs its share."""


class LogQueries:
    """The history of each user of a log, users by id, each in time order, ties in file order."""

    key = "user"

    def __init__(self, log: Log, options: PrepareOptions, unit: str | None = None, now: float | None = None) -> None:
        self.database, self.now = log.database, now
        self.database.run(f"SET memory_limit = {text(MEMORY)}")
        self.bad_rows = log.bad_rows
        self.timed = log.has_time
        self.typed = options.types and log.has_event
        self.database.run(f"CREATE OR REPLACE TEMPORARY VIEW history AS {history_sql(log, self.database, options)}")
        self.total: int = self.database.value('SELECT count(DISTINCT "user") FROM history')
        kind = self.database.types('SELECT "user" FROM log')["user"]
        self.key_kind: IdKind = "integer" if kind == "BIGINT" else "text"
        self.factor = time_factor(log, self.database.value('SELECT max("time") FROM log'), unit)

    def read(self, start: int) -> Iterator[Query]:
        if start >= self.total:
            return
        first = self.database.value(f'SELECT DISTINCT "user" FROM history ORDER BY "user" LIMIT 1 OFFSET {start}')
        where = f'WHERE "user" >= {text(first) if isinstance(first, str) else first}' if start else ""
        rows = f'SELECT "user", item, "time", type FROM history {where} ORDER BY "user", {ORDER}'
        pending: Query | None = None
        for batch in self.database.batches(rows):
            for query in self._runs(batch):
                if pending is not None and pending.key == query.key:  # of a user whose rows two batches share
                    pending.ids.extend(query.ids)
                    (pending.times or []).extend(query.times or [])
                    (pending.types or []).extend(query.types or [])
                    continue
                if pending is not None:
                    yield pending
                pending = query
        if pending is not None:
            yield pending

    def _runs(self, batch: pyarrow.RecordBatch) -> Iterator[Query]:
        """Consecutive rows (user, item, time, type) of one user together."""
        users, items, times, types = batch.columns
        if not len(users):
            return
        changes = pyarrow.compute.not_equal(users[1:], users[:-1]).to_numpy(zero_copy_only=False).nonzero()[0] + 1
        ids = items.to_pylist()
        moments = pyarrow.compute.multiply(times, self.factor).to_pylist() if self.timed else None
        for begin, end in pairwise([0, *changes.tolist(), len(users)]):
            known = None if moments is None else moments[begin:end]
            kinds = types[begin:end].to_pylist() if self.typed else None
            yield Query(users[begin].as_py(), ids[begin:end], known, now=self.now, types=kinds)


def history_sql(log: BaseLog, tables: Tables, options: PrepareOptions) -> str:
    """The rows (row, user, item, time, rest, type) of a log that histories are made of, as in training."""
    counts = event_sql(options.events, tables) if options.events is not None and log.has_event else "true"
    columns = ("row", "user", "item", "time", "rest", "type")
    counted = (
        f"(SELECT log.row AS row, log.user AS user, log.item, {time_sql(single=options.time_precision == 'single')}, "
        f"log.event AS type FROM {tables.named('log')} AS log WHERE {counts}) AS kept"
    )
    if not options.drop_consecutive:
        return f"SELECT * FROM {counted}"
    return without_consecutive(counted, columns, typed=options.types and log.has_event)


def time_factor(log: BaseLog, latest: float | None, unit: str | None) -> float:
    """What turns times of a log, whose last one is given, into the unit of the training log."""
    own = "seconds" if log.dates else unix_unit(latest or 0.0)
    return 1.0 if own is None or unit is None else UNITS[unit] / UNITS[own]


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
    now: Moment | None = None
    """The moment of the queries that have none of their own; or, beside lists, the column of each one's."""
    time_unit: str | None = None
    """The unit of the training log's times, where they count from 1970."""

    def open(self) -> Queries:
        """The lists of a column, else what the users of a log did."""
        files = open_files(self.path)
        lists = self.history or self._list_column(files[0])
        column, moment = self._now(files[0], of_lists=lists is not None)
        if lists is None:
            for file, name in product(files, OWN_LISTS):
                if name in list_columns(file):
                    raise LogError(
                        f"{file.name}: column {name!r} cannot be used, a log has no rules of its own; rename it"
                    )
            bad = {} if self.on_bad_row is None else {"on_bad_row": self.on_bad_row}
            log = read_log(self.path, user=self.user, item=self.item, time=self.time, **{**self.like, **bad})
            return LogQueries(log, self.options, self.time_unit, moment)
        first = files[0]
        user = self.user or recognise("user", [name for name in first.columns if name != lists], first.name)
        return ListQueries(files, ListColumns(lists, user, column, self.options.types), self.time_unit, moment)

    def fingerprint(self) -> str:
        """Names what the files hold, and how they are read."""
        read = [value for name, value in sorted(vars(self).items()) if name != "path"]
        digest = hashlib.sha256(repr(read).encode())
        for file in open_files(self.path):
            digest.update(f"{file.name} {checksum(file.path)}\n".encode())
        return digest.hexdigest()

    def _list_column(self, file: LogFile) -> str | None:
        """The column of lists, None where the file is a log."""
        if self.item is not None:
            return None
        return history_column(list_columns(file), file.columns, file.name, typed=self.options.types)

    def _now(self, file: LogFile, *, of_lists: bool) -> tuple[str, float | None]:
        """The column of moments, and the moment where it has none."""
        if of_lists and self.now in file.columns:
            return str(self.now), None
        try:
            if isinstance(self.now, str):
                return NOW, parse_moment(self.now, "`now`", self.time_unit)
            return NOW, now_of([self.now], 1, self.time_unit)[0]
        except QueryError as error:
            columns = f"; nor is it a column of {file.name}: {', '.join(file.columns)}" if of_lists else ""
            raise QueryError(f"{error}{columns}") from error

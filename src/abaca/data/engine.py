"""Preparing a log, step by step: what an engine gives, and the steps in the SQL that DuckDB and Spark share.

The rules in `prepare.py` call the steps of an `Engine`. Options, filters, item numbers, splits and manifest are the
same for every engine. `SQLEngine` is the engine of DuckDB and of Spark; what these do differently is in `Tables`, of
which `database.py` is DuckDB's and `spark/tables.py` Spark's.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow

Ints = npt.NDArray[np.int64]
Role = Literal["user", "item"]

ORDER = "time, rest, row"
"""The order of a user's interactions: by exact time, and at the same time by place in the log."""


class Engine(Protocol):
    """The interactions of one log that are kept, at first none.

    A *code* is the place, from 0, of an id among all user or item ids of the log, ascending.
    The order of a user's interactions is by exact time, and at the same time by place in the log.
    """

    def latest(self) -> float | None:
        """The last time of the whole log; None without times."""

    def keep(
        self,
        events: Sequence[str] | None,
        since: float | None,
        until: float | None,
        *,
        single: bool,
        types: Sequence[str] = (),
    ) -> int:
        """Keep these events with since ≤ time < until; returns how many have another event.

        With `single`, times and their order are only what single precision holds of them. With `types`, the place of
        each event among them is kept too.
        """

    def count(self) -> int:
        """How many interactions are kept."""

    def drop_consecutive(self) -> None:
        """Of a user's consecutive interactions with one item, and of one type where types are kept, keep the first."""

    def drop_rare(self, role: Role, least: int, unless_after: float | None) -> None:
        """Drop the users, or the items, that have fewer than `least` interactions, and none after a time."""

    def span(self) -> tuple[float, float]:
        """The first and the last time of what is kept."""

    def time_at(self, place: int) -> float:
        """The time at a place, from 0, of all that is kept in the order of time."""

    def lengths(self, cuts: tuple[float, float] | None) -> tuple[Ints, Ints, Ints]:
        """Interactions of each user, by code: all, before the first cut, before the second."""

    def ordered(self) -> Iterable[pyarrow.RecordBatch]:
        """Item codes, times and, where they are kept, types: users by code, each in order."""

    def ids(self, role: Role) -> Iterable[pyarrow.RecordBatch]:
        """The ids of all items by code, or those of the users that are kept."""

    def close(self) -> None:
        """Free what preparing needed; the log stays."""


class Tables(Protocol):
    """Tables that SQL can read and replace, one of them `log(row, user, item, time, rest, event)`.

    The SQL is what DuckDB and Spark both read. Columns named like functions or types are written with their table.
    """

    def named(self, table: str) -> str:
        """How SQL names a table."""

    def text(self, value: str) -> str:
        """A string as a literal."""

    def replace(self, table: str, sql: str) -> None:
        """Replace a table by the result of a query, which may read the table itself."""

    def replace_numbered(self, table: str, sql: str) -> None:
        """The same for a query of one column `id`, with the place `code` of each row, from 0, by ascending id."""

    def drop(self, *tables: str) -> None:
        """Drop tables that are no longer needed."""

    def row(self, sql: str) -> tuple[Any, ...]:
        """The first row of an answer that has one."""

    def at(self, sql: str, place: int) -> Any:
        """The value at a place, from 0, among the ascending values of a query of one column `id`."""

    def batches(self, sql: str) -> Iterable[pyarrow.RecordBatch]:
        """A large answer, batch by batch and in its order."""


class SQLEngine:
    """What is kept is the table `kept(row, user, item, time, rest, type)`, users and items as codes."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.typed = tables, False
        self._count: int | None = None
        self.log, self.kept = f"{tables.named('log')} AS log", f"{tables.named('kept')} AS kept"
        for role in ("user", "item"):
            tables.replace_numbered(f"{role}_codes", f"SELECT DISTINCT log.{role} AS id FROM {self.log}")

    def latest(self) -> float | None:
        latest: float | None = self._value(f"SELECT max(log.time) FROM {self.log}")
        return latest

    def keep(
        self,
        events: Sequence[str] | None,
        since: float | None,
        until: float | None,
        *,
        single: bool,
        types: Sequence[str] = (),
    ) -> int:
        self.typed = bool(types)
        is_event = "true" if events is None else event_sql(events, self.tables)
        bounds = [
            f"log.time {sign} {number(bound)}" for sign, bound in ((">=", since), ("<", until)) if bound is not None
        ]
        places = " ".join(f"WHEN {self.tables.text(name)} THEN {place}" for place, name in enumerate(types))
        type = f"CAST(CASE log.event {places} END AS SMALLINT)" if types else "0"
        self._replace(
            f"SELECT log.row AS row, u.code AS user, i.code AS item, {time_sql(single=single)}, {type} AS type "
            f"FROM {self.log} JOIN {self._codes('user')} AS u ON u.id = log.user "
            f"JOIN {self._codes('item')} AS i ON i.id = log.item WHERE {' AND '.join([is_event, *bounds])}",
        )
        return 0 if events is None else int(self._value(f"SELECT count(*) FROM {self.log} WHERE NOT ({is_event})"))

    def count(self) -> int:
        if self._count is None:
            self._count = int(self._value(f"SELECT count(*) FROM {self.kept}"))
        return self._count

    def drop_consecutive(self) -> None:
        columns = ("row", "user", "item", "time", "rest", "type")
        self._replace(without_consecutive(self.kept, columns, typed=self.typed))

    def drop_rare(self, role: Role, least: int, unless_after: float | None) -> None:
        stays = f"count(*) >= {least}"
        if unless_after is not None:
            stays += f" OR coalesce(max(kept.time) > {number(unless_after)}, false)"
        grouped = f"SELECT kept.{role} FROM {self.kept} GROUP BY kept.{role} HAVING"
        if self._value(f"SELECT count(*) FROM ({grouped} NOT ({stays})) AS rare"):  # else the rows need no new copy
            self._replace(f"SELECT * FROM {self.kept} WHERE kept.{role} IN ({grouped} {stays})")

    def span(self) -> tuple[float, float]:
        first, last = self.tables.row(f"SELECT min(kept.time), max(kept.time) FROM {self.kept}")
        return first, last

    def time_at(self, place: int) -> float:
        return float(self.tables.at(f"SELECT kept.time AS id FROM {self.kept}", place))

    def lengths(self, cuts: tuple[float, float] | None) -> tuple[Ints, Ints, Ints]:
        before = ["0", "0"]
        if cuts is not None:
            before = [f"count(*) FILTER (WHERE kept.time < {number(cut)})" for cut in cuts]
        sql = (
            f"SELECT count(*) AS a, {before[0]} AS b, {before[1]} AS c FROM {self.kept} "
            "GROUP BY kept.user ORDER BY kept.user"
        )
        batches = [[np.asarray(column, dtype=np.int64) for column in part.columns] for part in self.tables.batches(sql)]
        whole, first, second = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        return whole, first, second

    def ordered(self) -> Iterable[pyarrow.RecordBatch]:
        types = ", kept.type" if self.typed else ""
        return self.tables.batches(f"SELECT kept.item, kept.time{types} FROM {self.kept} ORDER BY kept.user, {ORDER}")

    def ids(self, role: Role) -> Iterable[pyarrow.RecordBatch]:
        kept = f"WHERE codes.code IN (SELECT kept.user FROM {self.kept})" if role == "user" else ""
        return self.tables.batches(f"SELECT codes.id FROM {self._codes(role)} AS codes {kept} ORDER BY codes.code")

    def close(self) -> None:
        self.tables.drop("kept", "user_codes", "item_codes")

    def _replace(self, sql: str) -> None:
        self.tables.replace("kept", sql)
        self._count = None

    def _codes(self, role: str) -> str:
        return self.tables.named(f"{role}_codes")

    def _value(self, sql: str) -> Any:
        return self.tables.row(sql)[0]


class _Text(Protocol):
    def text(self, value: str) -> str: ...


def number(value: float) -> str:
    """A number as an SQL literal, exact: plain digits would be read as a decimal first."""
    return f"CAST('{value!r}' AS DOUBLE)"


def time_sql(*, single: bool) -> str:
    """The columns `time` and `rest` of the log, or only what single precision holds of them."""
    return "CAST(CAST(log.time AS FLOAT) AS DOUBLE) AS time, 0 AS rest" if single else "log.time, log.rest"


def event_sql(events: Sequence[str], literals: _Text) -> str:
    """Whether an interaction of the log is one of these events."""
    return f"coalesce(log.event IN ({', '.join(literals.text(str(event)) for event in events)}), false)"


def without_consecutive(rows: str, columns: Sequence[str], *, typed: bool = False) -> str:
    """Of a user's consecutive interactions with one item, and of one type where they are typed, the first."""
    window = f"OVER (PARTITION BY kept.user ORDER BY {ORDER})"
    changes = " OR ".join(
        f"lag(kept.{column}) {window} IS DISTINCT FROM kept.{column}"
        for column in (("item", "type") if typed else ("item",))
    )
    listed = ", ".join(f"flagged.{column}" for column in columns)
    return f"SELECT {listed} FROM (SELECT kept.*, {changes} AS changed FROM {rows}) AS flagged WHERE flagged.changed"

"""Preparing by DuckDB: the steps of `engine.py` as SQL over the view `log` of a log's database."""

from collections.abc import Sequence

import numpy as np
import pyarrow

from abaca.data.database import number, text
from abaca.data.engine import Ints, Role
from abaca.data.log import ORDER, Log


class DuckDBEngine:
    """What is kept is the table `kept(row, user, item, time, rest, type)`, users and items as codes."""

    def __init__(self, log: Log) -> None:
        self.database, self.typed = log.database, False
        for role in ("user", "item"):
            ids = f'SELECT DISTINCT "{role}" AS id FROM log'
            codes = f"SELECT id, (row_number() OVER (ORDER BY id) - 1)::INTEGER AS code FROM ({ids})"
            self.database.replace(f"{role}_codes", codes)

    def latest(self) -> float | None:
        latest: float | None = self.database.value('SELECT max("time") FROM log')
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
        is_event = "true" if events is None else event_sql(events)
        bounds = [
            f'"time" {sign} {number(bound)}' for sign, bound in ((">=", since), ("<", until)) if bound is not None
        ]
        time = '"time"::FLOAT::DOUBLE AS "time", 0 AS rest' if single else '"time", rest'
        type = f"(list_position([{', '.join(map(text, types))}], event) - 1)::UTINYINT" if types else "0"
        self.database.replace(
            "kept",
            f'SELECT "row", u.code AS "user", i.code AS item, {time}, {type} AS type FROM log '
            'JOIN user_codes u ON u.id = log."user" JOIN item_codes i ON i.id = log.item '
            f"WHERE {' AND '.join([is_event, *bounds])}",
        )
        return 0 if events is None else int(self.database.value(f"SELECT count(*) FROM log WHERE NOT ({is_event})"))

    def count(self) -> int:
        return int(self.database.value("SELECT count(*) FROM kept"))

    def drop_consecutive(self) -> None:
        self.database.replace("kept", without_consecutive("kept", typed=self.typed))

    def drop_rare(self, role: Role, least: int) -> None:
        frequent = f'SELECT "{role}" FROM kept GROUP BY "{role}" HAVING count(*) >= {least}'
        self.database.replace("kept", f'SELECT * FROM kept WHERE "{role}" IN ({frequent})')

    def span(self) -> tuple[float, float]:
        first, last = self.database.row('SELECT min("time"), max("time") FROM kept')
        return first, last

    def time_at(self, place: int) -> float:
        return float(self.database.value(f'SELECT "time" FROM kept ORDER BY "time" LIMIT 1 OFFSET {place}'))

    def lengths(self, cuts: tuple[float, float] | None) -> tuple[Ints, Ints, Ints]:
        before = [f'count(*) FILTER ("time" < {number(cut)})' for cut in cuts] if cuts is not None else ["0", "0"]
        sql = f'SELECT count(*) AS a, {before[0]} AS b, {before[1]} AS c FROM kept GROUP BY "user" ORDER BY "user"'
        batches = [
            [np.asarray(column, dtype=np.int64) for column in part.columns] for part in self.database.batches(sql)
        ]
        whole, first, second = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        return whole, first, second

    def ordered(self) -> pyarrow.RecordBatchReader:
        columns = 'item, "time", type' if self.typed else 'item, "time"'
        return self.database.batches(f'SELECT {columns} FROM kept ORDER BY "user", {ORDER}')

    def ids(self, role: Role) -> pyarrow.RecordBatchReader:
        kept = 'WHERE code IN (SELECT "user" FROM kept)' if role == "user" else ""
        return self.database.batches(f"SELECT id FROM {role}_codes {kept} ORDER BY code")

    def close(self) -> None:
        self.database.drop("kept", "user_codes", "item_codes")


def event_sql(events: Sequence[str]) -> str:
    """Whether an interaction is one of these events."""
    return f"coalesce(event IN ({', '.join(text(str(event)) for event in events)}), false)"


def without_consecutive(rows: str, *, typed: bool = False) -> str:
    """Of a user's consecutive interactions with one item, and of one type where they are typed, the first."""
    columns = ("item", "type") if typed else ("item",)
    changes = (
        f'lag({column}) OVER (PARTITION BY "user" ORDER BY {ORDER}) IS DISTINCT FROM {column}' for column in columns
    )
    return f"SELECT * FROM {rows} QUALIFY {' OR '.join(changes)}"

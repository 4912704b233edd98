"""What ids and times may look like in a log, and the SQL that reads them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from abaca.errors import LogError

IdKind = Literal["text", "integer"]
TimeKind = Literal["number", "date"]

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
TEXTS = ("VARCHAR", "ENUM", "UUID", '"NULL"', "NULL")
NUMBERS = (*INTEGERS, "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
DATES = ("TIMESTAMP", "DATE")

BAD = {
    1: "not a JSON object",
    2: "missing user",
    3: "missing item",
    4: "unreadable time",
    5: "ragged line",
    6: "wrong encoding",
    7: "broken quotes",
}
"""What is wrong with a row, by number; 0 is a good row."""

Places = list[int | None]
"""The places of the user, the item, the time and the event among the columns of a part."""

UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Units of times since 1970, and how many of them a second has."""


@dataclass(frozen=True)
class Reading:
    """How the rows of a log are read, which its first part decides: the kind of ids and of times."""

    ids: tuple[IdKind, IdKind]
    """Of users and of items."""
    times: TimeKind | None
    """None where there are no times, or none that can be read."""

    def sql(self, rows: str, places: Places, types: dict[str, str], beside: tuple[str, ...] = ()) -> str:
        """The query that reads ids and times of rows with the columns `c0`, `c1`, …, and marks bad ones.

        `types` are the columns of the rows; `beside` names those that go on as they are.
        """
        user, item, time, event = places
        when, rest = "NULL", "0"
        if time is not None:
            spelled = (f"c{time}", types[f"c{time}"], self.times or "number")
            when, rest = time_sql(*spelled), rest_sql(*spelled)
        fields = [
            id_sql(f"c{user}", types[f"c{user}"], self.ids[0]) + ' AS "user"',
            id_sql(f"c{item}", types[f"c{item}"], self.ids[1]) + " AS item",
            f'{when} AS "time", {rest} AS rest',
            ("NULL" if event is None else text_sql(f"c{event}", types[f"c{event}"])) + " AS event",
            ("broken" if "broken" in types else "false") + " AS broken",
            *beside,
        ]
        untimely = "false" if time is None else '"time" IS NULL'
        return (
            'SELECT "user", item, "time", rest, event, CASE WHEN broken THEN 1 WHEN "user" IS NULL THEN 2 '
            f"WHEN item IS NULL THEN 3 WHEN {untimely} THEN 4 ELSE 0 END AS bad{''.join(f', {b}' for b in beside)} "
            f"FROM (SELECT {', '.join(fields)} FROM ({rows}))"
        )

    def fault(self, bad: int, value: str | None) -> str:
        """What is wrong with a row, of which a value could not be read."""
        if bad == 1:
            return "not a JSON object"
        role = ("user", "item", "time")[bad - 2]
        if value is None or value in ("", '""', "null"):
            return f"the {role} is missing"
        if role == "time":
            kinds = {None: "a number or an ISO date", "number": "a number", "date": "an ISO date"}
            alike = ", as the other times are" if self.times else ""
            return f"time {value.strip(chr(34))!r} is not {kinds[self.times]}{alike}"
        wanted = "text" if self.ids[bad - 2] == "text" else "a whole number of 64 bits"
        return f"{role} {value} is not {wanted}, as the other ids are"


def id_kind(role: str, type: str, where: str) -> IdKind | None:
    """Whether a column of ids holds text or integers; None where the values decide (JSON)."""
    if type == "JSON":
        return None
    if type in INTEGERS:
        return "integer"
    if type.startswith(TEXTS) and not _is_list(type):
        return "text"
    cure = "write one row for each of a list" if _is_list(type) else "convert it to one of them"
    if type in ("FLOAT", "DOUBLE"):
        cure += " (a missing value makes pandas use floats: `.astype('Int64')`)"
    raise LogError(f"{where}: the {role} column is {type}; ids are text or whole numbers, so {cure}")


def id_kind_of(values: list[object]) -> IdKind:
    """Whether JSON ids are text or integers: as the first one is."""
    first = next((value for value in values if isinstance(value, str | int) and not isinstance(value, bool)), "")
    return "text" if isinstance(first, str) else "integer"


def id_sql(column: str, type: str, kind: IdKind) -> str:
    """An id as VARCHAR or BIGINT; NULL where it is missing or of the other kind."""
    if type == "JSON":
        value = f"json_extract_string({column}, '$')"
        if kind == "text":
            return f"CASE WHEN json_type({column}) = 'VARCHAR' THEN nullif({value}, '') END"
        return f"CASE WHEN json_type({column}) IN ('BIGINT', 'UBIGINT') THEN try_cast({value} AS BIGINT) END"
    return f"nullif({column}::VARCHAR, '')" if kind == "text" else f"try_cast({column} AS BIGINT)"


def time_kind(type: str, where: str) -> TimeKind | None:
    """Whether a column of times holds numbers or dates; None where the values decide (text)."""
    plain = "" if _is_list(type) else type
    if plain.startswith(DATES):
        return "date"
    if plain.startswith(NUMBERS):
        return "number"
    if plain == "JSON" or plain.startswith(TEXTS):
        return None
    raise LogError(f"{where}: the time column is {type}; times are numbers or dates, so convert it to one of them")


def time_kind_of(values: list[object]) -> TimeKind | None:
    """Whether times in text are numbers or dates, as the first that is either; None if none is."""
    for number, date in _parsed(values):
        if number is not None or date is not None:
            return "number" if number is not None else "date"
    return None


def time_sql(column: str, type: str, kind: TimeKind) -> str:
    """A time as DOUBLE, seconds where it was a date; NULL where it cannot be read."""
    if type.startswith(DATES):
        zoned = "TZ" in type or "ZONE" in type  # which DuckDB compares in microseconds only
        moment = f"{column}::TIMESTAMPTZ" if zoned else column
        return f"CASE WHEN isfinite({moment}) THEN epoch({moment}) END"
    if type.startswith(NUMBERS):
        return f"CASE WHEN isfinite({column}::DOUBLE) THEN {column}::DOUBLE END"
    value = text_sql(column, type)
    return _number(value) if kind == "number" else _date(value)


def rest_sql(column: str, type: str, kind: TimeKind) -> str:
    """What a time has beyond its DOUBLE, as SMALLINT; it orders times that are equal as DOUBLE.

    Nanoseconds since 1970 are beyond 2⁵³, and a DOUBLE holds only every 256th of them.
    """
    if type == "TIMESTAMP_NS":
        rest = f"epoch_ns({column}) - try_cast(epoch({column}) * 1e9 AS BIGINT)"
    elif kind == "date" or type in ("FLOAT", "DOUBLE"):
        return "0"
    else:
        value = column if type.startswith(NUMBERS) else f"({text_sql(column, type)} || '')"
        double = f"try_cast({value} AS DOUBLE)"
        exact = f"try_cast({value} AS HUGEINT) - try_cast({double} AS HUGEINT)"
        rest = f"CASE WHEN abs({double}) >= {1 << 53} THEN {exact} END"
    return f"coalesce(try_cast({rest} AS SMALLINT), 0)"


def text_sql(column: str, type: str) -> str:
    """Any value as text."""
    return f"json_extract_string({column}, '$')" if type == "JSON" else f"{column}::VARCHAR"


def parse_time(value: str | float, option: str, latest: float | None, *, dates: bool) -> float:
    """A moment given as an option: a number as in the log, or an ISO date in the unit of its times.

    `latest` is the log's last time, which decides that unit: seconds, milliseconds, … since 1970.
    """
    ((number, date),) = _parsed([value])
    scale = 1 if dates or latest is None else unix_scale(latest)
    if number is not None:
        if scale is not None and re.fullmatch(r"(19|20)\d\d(\d{4})?", str(value).strip()):
            raise LogError(f"{option} {value} would be a time soon after 1970; write a date like 2024-01-31")
        return float(number)
    if date is None:
        raise LogError(f"{option} {value!r} is not a number or an ISO date like 2024-01-31")
    if scale is None:
        raise LogError(f"{option} is a date, but the log's times, up to {latest:.15g}, are not; give such a number")
    return float(date) * scale


def unix_scale(time: float) -> int | None:
    """The unit, 1, 1000, … per second, in which a time lies between 1980 and 2100; else None."""
    return next((scale for scale in UNITS.values() if 315_532_800 <= time / scale < 4_102_444_800), None)


def unix_unit(time: float) -> str | None:
    """The unit in which a time since 1970 lies between 1980 and 2100; else None."""
    return next((unit for unit, scale in UNITS.items() if scale == unix_scale(time)), None)


def _parsed(values: Iterable[object]) -> Iterator[tuple[float | None, float | None]]:
    """Each value as a number and as a date in seconds, None where it is none."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for value in values:
            yield from connection.execute(f"SELECT {_number('$1')}, {_date('$1')}", [str(value)]).fetchall()


def _is_list(type: str) -> bool:
    return type.endswith("]")


def _number(value: str) -> str:
    """`|| ''` keeps the cast out of the CSV reader, where a bad value is an error, not NULL."""
    number = f"try_cast({value} || '' AS DOUBLE)"
    return f"CASE WHEN isfinite({number}) THEN {number} END"


def _date(value: str) -> str:
    """The year comes first and in full: DuckDB would take the day of 31/12/21 for a year."""
    moment = f"CASE WHEN regexp_matches({value}, '^\\s*\\d{{4,}}[-/]\\d') THEN try_cast({value} AS TIMESTAMPTZ) END"
    return f"CASE WHEN isfinite({moment}) THEN epoch({moment}) END"

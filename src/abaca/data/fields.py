"""What ids and times may look like in a log, and the SQL that reads them."""

from typing import Literal

from abaca.data.store import Store
from abaca.errors import LogError

IdKind = Literal["text", "integer"]
TimeKind = Literal["number", "date"]

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
TEXTS = ("VARCHAR", "ENUM", "UUID", '"NULL"', "NULL")
NUMBERS = (*INTEGERS, "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
DATES = ("TIMESTAMP", "DATE")


def id_kind(role: str, type: str, where: str) -> IdKind | None:
    """Whether a column of ids holds text or integers; None where only the values can say (JSON)."""
    if type == "JSON":
        return None
    if type.startswith(TEXTS):
        return "text"
    if type in INTEGERS:
        return "integer"
    raise LogError(f"{where}: the {role} column is {type}; ids are text or whole numbers, so convert it to one of them")


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
    """Whether a column of times holds numbers or dates; None where only the values can say (text)."""
    if type.startswith(DATES):
        return "date"
    if type.startswith(NUMBERS):
        return "number"
    if type == "JSON" or type.startswith(TEXTS):
        return None
    raise LogError(f"{where}: the time column is {type}; times are numbers or dates, so convert it to one of them")


def time_kind_of(store: Store, values: list[object]) -> TimeKind:
    """Whether times in text are numbers or dates: as the first that is either."""
    for value in values:
        number, date = store.row(f"SELECT {_number('$1')}, {_date('$1')}", [str(value)])
        if number is not None or date is not None:
            return "number" if number is not None else "date"
    return "number"


def time_sql(column: str, type: str, kind: TimeKind) -> str:
    """A time as DOUBLE, seconds where it was a date; NULL where it cannot be read."""
    if type.startswith(DATES):
        return f"CASE WHEN isfinite({column}) THEN epoch({column}) END"
    if type.startswith(NUMBERS):
        return f"CASE WHEN isfinite({column}::DOUBLE) THEN {column}::DOUBLE END"
    value = text_sql(column, type)
    return _number(value) if kind == "number" else _date(value)


def text_sql(column: str, type: str) -> str:
    """Any value as text."""
    return f"json_extract_string({column}, '$')" if type == "JSON" else f"{column}::VARCHAR"


def parse_time(store: Store, value: str | float, option: str) -> float:
    """A moment given as an option: a number as in the log, or an ISO date, in the log's seconds or milliseconds."""
    number, date = store.row(f"SELECT {_number('$1')}, {_date('$1')}", [str(value)])
    if number is not None:
        return float(number)
    if date is None:
        raise LogError(f"{option} {value!r} is not a number or an ISO date like 2024-01-31")
    latest = store.value('SELECT max("time") FROM log')
    return float(date) * (1000 if latest is not None and unix_seconds(latest) == latest / 1000 else 1)


def unix_seconds(time: float) -> float | None:
    """A time that is plausibly unix seconds (1980 to 2100) or milliseconds, in seconds; else None."""
    low, high = 315_532_800.0, 4_102_444_800.0
    return time if low <= time < high else time / 1000 if low <= time / 1000 < high else None


def _number(value: str) -> str:
    """`|| ''` keeps DuckDB from moving the cast into its CSV reader, where one bad value is an error and not NULL."""
    number = f"try_cast({value} || '' AS DOUBLE)"
    return f"CASE WHEN isfinite({number}) THEN {number} END"


def _date(value: str) -> str:
    moment = f"CASE WHEN regexp_matches({value}, '^\\s*\\d') THEN try_cast({value} AS TIMESTAMPTZ) END"
    return f"CASE WHEN isfinite({moment}) THEN epoch({moment}) END"

"""Times of interactions and moments of queries, in the unit of a log's times.

A moment is a number in that unit. Where the log's times count from 1970, it may also be ISO 8601 text or a datetime;
without a time zone these are in UTC.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from abaca.data.reading.values import UNITS
from abaca.errors import QueryError
from abaca.histories import Floats

Moment = float | str | date
"""A number in the unit of the log's times, ISO 8601 text, a date or a datetime."""

Times = Sequence[Sequence[Moment] | None] | None
"""When each interaction of each history happened; None where it is not known."""

Now = Sequence[Moment | None] | None
"""The moment of each query; None where it is not known."""

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
TAKEN = "numbers in the unit of the log's times, or ISO dates like 2024-01-31T18:30:00Z"


def times_of(given: Times, lengths: Sequence[int], unit: str | None) -> list[Floats | None]:
    """The times of each history, one for each of its items; None where they are not known."""
    entries = _one_each(given, "times", len(lengths))
    found = [None if entry is None else moments_of(entry, "`times`", unit) for entry in entries]
    for place, (length, times) in enumerate(zip(lengths, found, strict=True)):
        if times is not None and len(times) != length:
            raise QueryError(f"history {place + 1} has {length} items and {len(times)} times; give one each")
    return found


def now_of(given: Now, histories: int, unit: str | None) -> list[float | None]:
    """The moment of each query; None where it is not known."""
    entries = _one_each(given, "now", histories)
    known = iter(moments_of([entry for entry in entries if entry is not None], "`now`", unit).tolist())
    return [None if entry is None else next(known) for entry in entries]


def moments_of(given: Any, what: str, unit: str | None) -> Floats:
    """A list of moments as numbers in the unit of the log's times."""
    try:
        found = np.asarray(given)
    except ValueError:  # of lists of unequal lengths
        found = np.array(None)
    if found.ndim != 1:
        raise QueryError(f"{what} takes {TAKEN}; got {_shown(given)}")
    if found.dtype.kind == "M":
        found = np.array(found.astype("datetime64[us]").tolist(), dtype=object)
    elif found.dtype.kind == "U":
        found = np.array(list(given), dtype=object)  # as they were: NumPy makes numbers beside text into text
    if found.dtype.kind == "O":
        found = np.array([_number(entry, what, unit) for entry in found.tolist()])
    if found.size and (found.dtype.kind not in "iuf" or not np.isfinite(found).all()):
        raise QueryError(f"{what} takes {TAKEN}; got {_shown(given)}")
    return found.astype(np.float64)


def parse_moment(text: str, what: str, unit: str | None) -> float:
    """A moment that is written on a command line: a number, or an ISO date."""
    try:
        number = float(text)
    except ValueError:
        return float(moments_of([text], what, unit)[0])
    if unit is not None and re.fullmatch(r"(19|20)\d\d(\d{4})?", text.strip()):
        raise QueryError(f"{what} {text} would be a time soon after 1970; write a date like 2024-01-31")
    return float(moments_of([number], what, unit)[0])


def iso_moment(text: str) -> datetime | None:
    """The moment of ISO 8601 text that begins with a whole date; None for any other text."""
    try:
        return datetime.fromisoformat(text) if re.match(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def _one_each(given: Any, what: str, histories: int) -> list[Any]:
    if given is None:
        return [None] * histories
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__len__"):
        raise QueryError(f"`{what}` is a list with an entry for each history, in their order; got {_shown(given)}")
    if len(given) != histories:
        raise QueryError(f"`{what}` has {len(given)} entries for {histories} histories; give one each")
    return list(given)


def _number(moment: Any, what: str, unit: str | None) -> float:
    """One moment as a number, in the unit of the log's times."""
    if isinstance(moment, int | float | Decimal) and not isinstance(moment, bool):
        return float(moment) if isinstance(moment, Decimal) else moment
    found = iso_moment(moment) if isinstance(moment, str) else moment
    if isinstance(found, date) and not isinstance(found, datetime):
        found = datetime.combine(found, time())
    if not isinstance(found, datetime) or found != found:  # pandas has a datetime that is not equal to itself
        raise QueryError(f"{what} takes {TAKEN}; got {_shown(moment)}")
    if unit is None:
        raise QueryError(
            f"{what} {_shown(str(moment))} is a date, but the log of this model has no times since 1970 "
            "(or it was saved by 0.2 or earlier); give numbers as in the log"
        )
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (zoned - BEGIN) // timedelta(microseconds=1) * UNITS[unit] / 10**6


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

"""Times in requests: numbers or ISO 8601 text, one for each item of a history, and the moment of the query."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from abaca.data.moments import Moment, iso_moment, moments_of
from abaca.data.reading.values import UNITS
from abaca.serve.events import Past
from abaca.serve.rules import MOST_IDS

LARGEST = 1e20
"""Largest number as a time: the year 5138 in nanoseconds since 1970."""
LARGEST_SECONDS = 1e11
"""The same year in seconds."""
LONGEST = 40
"""Longest text of a time."""

ListTimes = list[Moment] | list[list[Moment] | None]


def _schema(largest: float) -> dict[str, Any]:
    number = {"type": "number", "minimum": -largest, "maximum": largest}
    return {"anyOf": [number, *({"type": "string", "format": name} for name in ("date-time", "date"))]}


def without_default(schema: dict[str, Any]) -> None:
    """For a field whose absence differs from every value: programs that send defaults must not send one."""
    schema.pop("default", None)


def _moment(value: Any, largest: float = LARGEST) -> Moment:
    """A number, or text that is a moment of ISO 8601."""
    if isinstance(value, str) and len(value) <= LONGEST and iso_moment(value) is not None:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= largest:
        return float(value)
    limit = f"{largest:g}".replace("e+", "e")
    raise PydanticCustomError("time", f"a time is a number up to {limit}, or ISO 8601 text like 2024-01-31T18:30:00Z")


def _seconds(text: Any) -> float:
    """A moment in an address: seconds since 1970, or ISO 8601 text."""
    try:
        value = float(text)
    except ValueError:
        value = text
    return _seconds_of(value)


def _seconds_of(value: Any) -> float:
    """A moment in a body, where numbers are no text."""
    return float(moments_of([_moment(value, LARGEST_SECONDS)], "now", "seconds")[0])


def _times(value: Any) -> ListTimes:
    """The times of one history, or of each of several."""
    if isinstance(value, list) and any(entry is None or isinstance(entry, list) for entry in value):
        return _each(value, "list", lambda entry: entry if entry is None else _times_of_one(entry))
    return _times_of_one(value)


def _times_of_one(value: Any) -> list[Moment]:
    if not isinstance(value, list):
        raise PydanticCustomError("times", "it takes a list with one time for each item")
    if len(value) > MOST_IDS:
        raise PydanticCustomError("times", f"it takes at most {MOST_IDS} times")
    return _each(value, "time", _moment)


def _each(values: list[Any], what: str, change: Callable[[Any], Any]) -> list[Any]:
    """A list with every entry changed; a faulty one is named by its place, from 0."""
    found = []
    for place, value in enumerate(values):
        try:
            found.append(change(value))
        except PydanticCustomError as error:
            raise PydanticCustomError("times", f"{what} {place}: {error.message_template}") from error
    return found


_OF_ONE = {"type": "array", "items": _schema(LARGEST)}
_OF_MANY = {"type": "array", "items": {"anyOf": [_OF_ONE, {"type": "null"}]}}

TimesField = Annotated[
    ListTimes,
    PlainValidator(_times),
    WithJsonSchema({"anyOf": [_OF_ONE, _OF_MANY]}),
    Field(
        description="When each item of the history was chosen: numbers in the unit of the training log, or ISO 8601 "
        "text. One for each item; with `histories` a list for each of them, or null.",
        json_schema_extra=without_default,
    ),
]
NowField = Annotated[
    Moment,
    PlainValidator(_moment),
    WithJsonSchema(_schema(LARGEST)),
    Field(
        description="The moment of the query, written like `times`; unknown to the model by default.",
        json_schema_extra=without_default,
    ),
]
_SECONDS = Field(
    description="The moment of the query: seconds since 1970, as of events, or ISO 8601 text; "
    "the clock of the server by default."
)
SecondsField = Annotated[float | None, PlainValidator(_seconds), WithJsonSchema(_schema(LARGEST_SECONDS)), _SECONDS]
BodySecondsField = Annotated[
    float | None, PlainValidator(_seconds_of), WithJsonSchema(_schema(LARGEST_SECONDS)), _SECONDS
]


def check_each(given: Sequence[Any], histories: Sequence[Sequence[Any]], what: str, *, several: bool) -> list[Any]:
    """The times, or the types, of each history; ValueError where they do not fit the histories."""
    nested = [entry for entry in given if entry is None or isinstance(entry, list)]
    if (several and len(nested) < len(given)) or (not several and nested):
        raise ValueError(f"{what}: with history give a list of {what}, with histories a list of such lists")
    each: list[Any] = list(given) if several else [given]
    if len(each) != len(histories):
        raise ValueError(f"{what}: {len(each)} lists for {len(histories)} histories; give one each, or null")
    for place, (history, found) in enumerate(zip(histories, each, strict=True)):
        if found is not None and len(found) != len(history):
            where = f"{what}.{place}" if several else what
            raise ValueError(f"{where}: {len(found)} {what} for {len(history)} items; give one each")
    return each


def stored_moments(
    history: Sequence[Past], asked: float | None, unit: str | None
) -> tuple[list[float] | None, float | None]:
    """The times of a stored history and the moment of the query, in the unit of a model's log.

    Without one of the request the moment is the clock's, or the last event's where that is later. A model whose log
    has no times since 1970 gets neither.
    """
    if unit is None:
        return None, None
    scale = UNITS[unit]
    now = max([time.time(), *(past.time for past in history[-1:])]) if asked is None else asked
    return [past.time * scale for past in history], now * scale

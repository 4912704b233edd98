"""How rules are written: cool-downs, quotas and boosts, as text or as mappings."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from numbers import Real
from typing import Any, NamedTuple

from abaca.errors import QueryError
from abaca.types import Id, whole_number

SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0}
"""Units of a cool-down that need times since 1970."""
ITEM, UNIT = "item", "unit"
"""Units of a cool-down: interactions of the history, and the log's own unit of time."""

COOLDOWN = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join((*SECONDS, ITEM, UNIT))})s?(?:\s+of\s+(.+))?")
WRITTEN = (
    "write it as '7 days', '5 items' or '7 days of buy' (seconds, minutes, hours, days, weeks, items; units for the "
    "log's own)"
)


class Cooldown(NamedTuple):
    """How long an item is not recommended after its last occurrence."""

    amount: float
    unit: str
    """A unit of `SECONDS`, item or unit."""
    type: str | None = None
    """The type of the events that it counts from; None for those that make an item a repeat."""

    def __str__(self) -> str:
        of = "" if self.type is None else f" of {self.type}"
        return f"{self.amount:g} {self.unit}{'' if self.amount == 1 else 's'}{of}"


class Quota(NamedTuple):
    """A number of items with a value in a column of the item table."""

    column: str
    value: str | None
    """None: every value, each on its own."""
    number: int


class Boost(NamedTuple):
    """A number that is added to the logit of an item, or of every item with a value in a column."""

    column: str | None
    """None: `value` is an id."""
    value: Id
    amount: float


def cooldowns(given: Any) -> tuple[Cooldown, ...]:
    """One cool-down or several; each must have passed."""
    if given is None:
        return ()
    alone = isinstance(given, str | timedelta | Cooldown) or not isinstance(given, Iterable)
    return tuple(_cooldown(each) for each in ([given] if alone else given))


def _cooldown(given: Any) -> Cooldown:
    if isinstance(given, Cooldown):
        return given
    if isinstance(given, timedelta) and given >= timedelta():
        return Cooldown(given.total_seconds(), "second")
    found = COOLDOWN.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None:
        raise QueryError(f"cooldown {given!r} is not a time or a number of items; {WRITTEN}")
    amount, unit = float(found[1]), found[2]
    if unit == ITEM and not amount.is_integer():
        raise QueryError(f"cooldown {given!r} is not a whole number of items")
    return Cooldown(amount, unit, found[3])


def quotas(given: Any, rule: str, *, every: bool) -> tuple[Quota, ...]:
    """Quotas of a mapping {column: {value: count}} or of text column=value=count.

    With `every` also {column: count} and column=count, for each value of the column.
    """
    found = []
    for column, value, count in _entries(given, rule, 2):
        number = _whole(count)
        if number is None or number < 0:
            raise QueryError(f"{rule} {column}: {count!r} is not a whole number of items, 0 or more")
        if value is None and not every:
            raise QueryError(f"{rule} {column}: it needs a value, as {{{column!r}: {{'value': {number}}}}}")
        found.append(Quota(column, value, number))
    return tuple(found)


def item_boosts(given: Any) -> tuple[Boost, ...]:
    """Boosts of a mapping {id: amount} or of text id=amount."""
    return tuple(Boost(None, id, _amount("boost", id, amount)) for id, _, amount in _entries(given, "boost", 1))


def category_boosts(given: Any) -> tuple[Boost, ...]:
    """Boosts of a mapping {column: {value: amount}} or of text column=value=amount."""
    rule, found = "boost_category", []
    for column, value, amount in _entries(given, "boost_category", 2):
        if value is None:
            raise QueryError(f"{rule} {column}: it needs a value, as {{{column!r}: {{'value': 0.5}}}}")
        found.append(Boost(column, value, _amount(rule, f"{column}={value}", amount)))
    return tuple(found)


def _entries(given: Any, rule: str, levels: int) -> Iterable[tuple[Any, str | None, Any]]:
    """The entries of a rule: a column or id, a value where there is one, and a number; empty ones are left out."""
    if given is None:
        return
    if isinstance(given, Mapping):
        for name, entry in given.items():
            inner = entry.items() if isinstance(entry, Mapping) and levels == 2 else [(None, entry)]
            yield from ((name, _text(value), number) for value, number in inner if number is not None)
        return
    for entry in [given] if isinstance(given, str) or not isinstance(given, Iterable) else given:
        if isinstance(entry, Quota):
            yield entry.column, entry.value, entry.number
        elif isinstance(entry, Boost):
            value = None if entry.column is None else str(entry.value)
            yield entry.value if entry.column is None else entry.column, value, entry.amount
        else:
            yield _parsed(entry, rule, levels)


def _parsed(entry: Any, rule: str, levels: int) -> tuple[str, str | None, float]:
    """The entry that a text spells; the number is after the last sign of equality."""
    before, sign, number = entry.rpartition("=") if isinstance(entry, str) else ("", "", "")
    name, second, value = before.partition("=") if levels == 2 else (before, "", "")
    try:
        amount = float(number)
    except ValueError:
        amount = math.nan
    if not sign or not name or math.isnan(amount):
        raise QueryError(f"{rule} {entry!r} is not written as {'COLUMN=VALUE=' if levels == 2 else 'ID='}NUMBER")
    return name, value if second else None, amount


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _whole(value: Any) -> int | None:
    """A whole number; also one that a file or a text has as 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else whole_number(value)


def _amount(rule: str, what: Id, amount: Any) -> float:
    if not isinstance(amount, Real) or isinstance(amount, bool) or not math.isfinite(amount):
        raise QueryError(f"{rule} {what}: {amount!r} is not a finite number, which is added to the logit")
    return float(amount)

"""Habits: what a history says of each of its own items, as small whole numbers.

With p the place of the target, ℓ the place of an item's last occurrence, n its occurrences and f the first of them:

    count        n
    since        p − ℓ
    follow       times the item came right after the latest item, in this history
    rhythm       (p − ℓ)(n − 1) / (ℓ − f): 1 when the usual gap has passed again; none for n = 1
    window       whether the network reads the item: p − ℓ ≤ window
    time         the time since the last occurrence, in usual gaps of the log
    time rhythm  as rhythm, in time
    hour, week   the share of its occurrences near the same hour of the day, and of the week
    at hour      how many of them are near the same hour of the day
    type         the number of the type of its last event
    taken        its occurrences of the types that are predicted, such as purchases

An occurrence that is t away from the same hour counts as exp(−½ (t / σ)²), with the σ of NEAR.
Times are measured to *now* where it is known, else to the latest interaction. Hours need *now*, and times that count
from 1970.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from abaca.histories import MOST_TYPES, EventTypes, Floats, Histories, Ints

MOST_ITEMS = 1000
"""Distinct items of a history that are described, the latest first."""

_RATIOS = tuple(2.0**power for power in range(-6, 7))
_SHARES = (0.005, 0.02, 0.045, 0.095, 0.145, 0.195, 0.295, 0.395, 0.495, 0.595, 0.695, 0.795, 0.895)
"""Below 1/20, 1/10 and so on, which rounding must not move to another bucket."""
EDGES: dict[str, tuple[float, ...]] = {
    "count": (2, 3, 4, 5, 7, 10, 15, 25, 50, 100),
    "since": (2, 3, 4, 5, 6, 8, 11, 16, 23, 33, 51, 101, 201, 501),
    "follow": (1, 2, 3, 4, 6, 10, 20),
    "rhythm": (-0.5, *_RATIOS),
    "window": (1,),
    "time": tuple(2.0**power for power in range(-8, 11)),
    "time rhythm": (-0.5, *_RATIOS),
    "hour": _SHARES,
    "week": _SHARES,
    "at hour": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.95, 1.45, 1.95, 2.95, 3.95, 5.95, 8.95, 13.95, 24.95, 49.95),
    "type": tuple(range(1, MOST_TYPES)),
    "taken": (1, 2, 3, 4, 5, 7, 10, 15, 25, 50, 100),
}
"""Where the buckets of each habit begin, but for the first."""

KINDS: dict[str, tuple[str, ...]] = {
    "order": ("count", "since", "follow", "rhythm", "window"),
    "times": ("count", "since", "follow", "rhythm", "window", "time", "time rhythm"),
    "now": ("count", "since", "follow", "rhythm", "window", "time", "time rhythm", "hour", "week", "at hour"),
}
"""The habits that can be known: without times, with them, and with the moment of the query."""
OF_TYPES = ("type", "taken")
"""The habits that can be known too where events have types."""

PLACES = 0.5
"""If more gaps than this share are equal, times are places of a history and say no more than the order."""

DAY, HOUR = 86_400.0, 3_600.0
NEAR = {"hour": (DAY, 1.5 * HOUR), "week": (7 * DAY, 2 * HOUR), "at hour": (DAY, HOUR)}
"""The period of each habit of hours, and its σ."""
UNITS = (1.0, 1e3, 1e6, 1e9)
"""Seconds, milliseconds, microseconds, nanoseconds."""
SINCE, UNTIL = 315_532_800.0, 4_102_444_800.0
"""1980 and 2100, in seconds since 1970: times between them in some unit count from 1970."""


class Owned(NamedTuple):
    """The distinct items of some histories, one history after another, and their habits."""

    rows: Ints  # (P,) ascending
    items: Ints  # (P,) ascending within a row
    values: dict[str, Floats]  # (P,) the value of each habit


class Clock(NamedTuple):
    """How a log tells time."""

    gap: float
    """The usual time between two interactions of a user; 0 where times say no more than the order."""
    second: float
    """How much of its unit a second is, such as 1000 for milliseconds; 0 where times do not count from 1970."""

    @classmethod
    def of(cls, rows: Histories) -> "Clock":
        """Read it off the training rows."""
        if rows.times is None or not len(rows.items):
            return cls(0.0, 0.0)
        gaps = np.diff(rows.times)[np.diff(rows.rows) == 0]
        positive = gaps[gaps > 0]
        usual = float(np.median(positive)) if len(positive) else 0.0
        if not len(positive) or np.mean(positive == usual) > PLACES:
            return cls(0.0, 0.0)
        first, last = float(rows.times.min()), float(rows.times.max())
        return cls(usual, next((unit for unit in UNITS if first / unit >= SINCE and last / unit < UNTIL), 0.0))

    def kind(self, histories: Histories) -> str:
        """What can be known of these histories: order, times or now."""
        if histories.times is None or not self.gap:
            return "order"
        return "now" if histories.now is not None and self.second else "times"


def habits_of(kind: str, types: EventTypes | None) -> tuple[str, ...]:
    """The names of the habits of a kind; those of types come first."""
    return KINDS[kind] if types is None else OF_TYPES + KINDS[kind]


def describe(histories: Histories, window: int, clock: Clock, kind: str, types: EventTypes | None = None) -> Owned:
    """The latest distinct items of each history, and the habits of a kind."""
    at = _Occurrences.of(histories)
    place = histories.lengths[at.rows]
    first, last = (positions - histories.offsets[at.rows] for positions in (at.first, at.last))
    since = (place - last).astype(np.float64)
    values = {
        "count": at.times.astype(np.float64),
        "since": since,
        "follow": _follow(histories, at),
        "rhythm": _rhythm(since, at.times, last - first),
        "window": (since <= window).astype(np.float64),
    }
    if kind != "order":
        values |= _in_time(histories, at, clock, known=kind == "now")
    if types is not None:
        values |= _in_types(types.fill(histories), at, types)
    return Owned(at.rows, at.items, values)


def codes(owned: Owned, habits: Sequence[str]) -> Ints:
    """The bucket of each habit (P, F), counted through all of them."""
    columns, first = [], 0
    for name in habits:
        edges = np.asarray(EDGES[name])
        columns.append(first + np.searchsorted(edges, owned.values[name], side="right"))
        first += len(edges) + 1
    return np.stack(columns, axis=1) if columns else np.zeros((len(owned.rows), 0), np.int64)


class _Occurrences(NamedTuple):
    """Where the latest distinct items of histories occur."""

    rows: Ints  # (P,)
    items: Ints  # (P,)
    times: Ints  # (P,) how often
    first: Ints  # (P,) place in the flat array
    last: Ints  # (P,)
    group: Ints  # (n,) the item that each place of the flat array holds; −1 where it is not described

    @classmethod
    def of(cls, histories: Histories) -> "_Occurrences":
        rows, items = histories.rows, histories.items
        order = np.lexsort((items, rows))  # stable: places of one item ascend
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (np.diff(rows[order]) != 0) | (np.diff(items[order]) != 0)
        starts = np.flatnonzero(begins)
        count = np.diff(np.append(starts, len(order)))
        first, last = order[starts], order[starts + count - 1]
        owner = rows[first]
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.repeat(np.arange(len(starts)), count)
        kept = _latest(owner, last)
        if not kept.all():
            group = np.where(kept, np.cumsum(kept) - 1, -1)[group]
        return cls(owner[kept], items[first[kept]], count[kept], first[kept], last[kept], group)


def _latest(owner: Ints, last: Ints) -> np.ndarray:
    """Mask of the items whose last occurrence is among the latest of their row."""
    if not len(owner) or np.bincount(owner).max() <= MOST_ITEMS:
        return np.ones(len(owner), dtype=bool)
    order = np.lexsort((-last, owner))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.searchsorted(owner, owner)
    return place < MOST_ITEMS


def _follow(histories: Histories, at: _Occurrences) -> Floats:
    """How often each item came right after the latest item of its history."""
    latest = np.full(len(histories), -1, dtype=np.int64)
    there = np.flatnonzero(histories.lengths)
    latest[there] = histories.items[histories.offsets[there + 1] - 1]
    rows = histories.rows
    same = histories.items[:-1] == latest[rows[:-1]]
    after = np.flatnonzero(same & (np.diff(rows) == 0)) + 1
    group = at.group[after]
    return np.bincount(group[group >= 0], minlength=len(at.rows)).astype(np.float64)


def _rhythm(since: Floats, count: Ints, span: Floats | Ints) -> Floats:
    """The time since, in usual gaps between the occurrences; −1 for none."""
    repeated = (count > 1) & (span > 0)
    return np.where(repeated, since * (count - 1) / np.where(repeated, span, 1), -1.0)


def _in_time(histories: Histories, at: _Occurrences, clock: Clock, known: bool) -> dict[str, Floats]:
    """The habits that need times, and where *now* is known, hours."""
    times = histories.times
    assert times is not None
    moment = np.zeros(len(histories))
    there = np.flatnonzero(histories.lengths)
    moment[there] = times[histories.offsets[there + 1] - 1]
    if known:
        assert histories.now is not None
        moment = np.maximum(moment, histories.now)
    since = np.maximum(moment[at.rows] - times[at.last], 0.0)
    values = {
        "time": since / clock.gap,
        "time rhythm": _rhythm(since, at.times, times[at.last] - times[at.first]),
    }
    if known:
        apart = np.abs(moment[histories.rows] - times) / clock.second
        near = {name: _near(apart, period, width, at) for name, (period, width) in NEAR.items()}
        values |= {"hour": near["hour"] / at.times, "week": near["week"] / at.times, "at hour": near["at hour"]}
    return values


def _in_types(histories: Histories, at: _Occurrences, types: EventTypes) -> dict[str, Floats]:
    """The habits that need types."""
    assert histories.types is not None
    taken = (at.group >= 0) & np.isin(histories.types, types.targets)
    return {
        "type": histories.types[at.last].astype(np.float64),
        "taken": np.bincount(at.group[taken], minlength=len(at.rows)).astype(np.float64),
    }


def _near(apart: Floats, period: float, width: float, at: _Occurrences) -> Floats:
    """How many of an item's occurrences are near the same moment of a period."""
    phase = apart % period
    nearness = np.exp(-0.5 * (np.minimum(phase, period - phase) / width) ** 2)
    inside = at.group >= 0
    return np.bincount(at.group[inside], nearness[inside], minlength=len(at.rows)).astype(np.float64)

"""Counts that grow while a model answers: its own transitions, and those of events that came after its last time.

Events of a user are in the order of time, equal times in the order of arrival. A pair is counted when its later event
came after the last time that the model has counted. An event that arrives late moves the events after it apart: the
pairs around it are taken out and counted again. So the counts depend on the events alone, not on their arrival.
"""

import math
import threading
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abaca.evidence.transitions import DISTANCE, KEPT, UNIT, Pairs, Transitions
from abaca.histories import Ints

MOST_PAIRS = 2_000_000
"""Pairs of items that are counted: about 250 MB."""
MOST_MERGED = 10_000
"""Sources whose followers are kept merged with the model's: about 30 MB."""
MOST_EVENTS = 1_000_000
"""Events whose place in a history is remembered: about 100 MB."""


class _Row(NamedTuple):
    """The events of one user."""

    times: list[float]
    items: list[int]


class LiveCounts:
    """The counts of events, which can be added and forgotten one user at a time. Calls come from several threads."""

    def __init__(self, since: float | None = None) -> None:
        self.since = -math.inf if since is None else since
        """Events up to this time are counted elsewhere; they are only what later events follow."""
        self.pairs: dict[int, dict[int, int]] = {}
        """S in units of 1/2520, by source and follower."""
        self.counts: Ints = np.zeros(1024, dtype=np.int64)
        """Events of each item; zeros after the last."""
        self.size = self.events = 0
        """Pairs that are counted, and events that are remembered."""
        self.changes = 0
        """Changes of the items' counts so far."""
        self.stamps: dict[int, int] = {}
        """Changes of each source so far."""
        self.lock = threading.Lock()
        self._rows: dict[str, _Row] = {}

    @property
    def full(self) -> bool:
        """Whether no more events are counted."""
        return self.size >= MOST_PAIRS or self.events >= MOST_EVENTS

    def add(self, user: str, time: float, item: int) -> None:
        """Count one more event."""
        with self.lock:
            if self.full:
                return
            row = self._rows.setdefault(user, _Row([], []))
            place = bisect_right(row.times, time)
            self._count(row, place, place + DISTANCE, -1)
            row.times.insert(place, time)
            row.items.insert(place, item)
            self.events += 1
            self._count(row, place, place + DISTANCE + 1, 1)
            if time > self.since:
                self._count_item(item, 1)
            elif bisect_right(row.times, self.since) > DISTANCE:  # nothing follows the first one closely any more
                del row.times[0], row.items[0]
                self.events -= 1

    def forget(self, user: str) -> None:
        """Undo the events of a user."""
        with self.lock:
            row = self._rows.pop(user, _Row([], []))
            self._count(row, 0, len(row.items), -1)
            for time, item in zip(*row, strict=True):
                if time > self.since:
                    self._count_item(item, -1)
            self.events -= len(row.items)

    def _count(self, row: _Row, begin: int, end: int, sign: int) -> None:
        """Count the pairs whose followers stand at some places, or take them out again."""
        for place in range(begin, min(end, len(row.items))):
            if row.times[place] > self.since:
                for distance in range(1, min(DISTANCE, place) + 1):
                    self._change(row.items[place - distance], row.items[place], sign * (UNIT // distance))

    def _change(self, source: int, follower: int, units: int) -> None:
        self.stamps[source] = self.stamps.get(source, 0) + 1
        row = self.pairs.setdefault(source, {})
        self.size -= len(row)
        row[follower] = row.get(follower, 0) + units
        if not row[follower]:
            del row[follower]
        self.size += len(row)

    def _count_item(self, item: int, count: int) -> None:
        if item >= len(self.counts):
            longer = np.zeros(2 * item, dtype=np.int64)
            longer[: len(self.counts)] = self.counts
            self.counts = longer  # readers keep what they have
        self.counts[item] += count
        self.changes += 1

    def near(self, items: set[int]) -> dict[tuple[int, int], int]:
        """Units of the pairs in which one item is among these and the other is not; these come first."""
        found: dict[tuple[int, int], int] = {}
        with self.lock:
            for source, row in self.pairs.items():
                others = row.keys() - items if source in items else row.keys() & items
                for follower in others:
                    pair = (source, follower) if source in items else (follower, source)
                    found[pair] = found.get(pair, 0) + row[follower]
        return found


@dataclass(frozen=True, eq=False)
class LiveTransitions(Transitions):
    """Transitions of a model with live counts on top; the catalogue may have items that the model's counts lack."""

    live: LiveCounts
    merged: dict[int, tuple[int, Ints, Ints]] = field(default_factory=dict)
    """Followers and units of sources that have live pairs, with the stamp of those."""

    @classmethod
    def of(cls, base: Transitions, live: LiveCounts, catalogue: int) -> "LiveTransitions":
        """The transitions of a model, for a catalogue that may have more items at its end."""
        grown = base.followed_by(catalogue - len(base.counts))
        return cls(grown.starts, grown.followers, grown.units, grown.counts, live)

    def count_of(self, items: Ints) -> Ints:
        """Interactions of some items, live ones included."""
        live = self.live.counts
        return self.counts[items] + np.where(items < len(live), live[np.minimum(items, len(live) - 1)], 0)

    def pairs_of(self, sources: Ints) -> Pairs:
        """The followers of some items, live ones included."""
        base, pairs = super().pairs_of(sources), self.live.pairs
        listed = sources.tolist()
        touched = [place for place, source in enumerate(listed) if source in pairs]
        if not touched:
            return base
        ends = np.cumsum(base.width)[:-1]
        followers, units = np.split(base.followers, ends), np.split(base.units, ends)
        for place in touched:
            followers[place], units[place] = self._row(listed[place], followers[place], units[place])
        return Pairs(np.array([len(row) for row in units]), np.concatenate(followers), np.concatenate(units))

    def _row(self, source: int, followers: npt.NDArray[Any], units: npt.NDArray[Any]) -> tuple[Ints, Ints]:
        """The strongest followers of a source: the model's and the live ones."""
        known = self.merged.get(source)
        if known is not None and known[0] == self.live.stamps.get(source):
            return known[1:]
        with self.live.lock:
            stamp, added = self.live.stamps[source], dict(self.live.pairs.get(source, {}))
        items = np.concatenate([followers, np.fromiter(added, np.int64, len(added))])
        unique, place = np.unique(items, return_inverse=True)
        summed = np.zeros(len(unique), dtype=np.int64)
        np.add.at(summed, place, np.concatenate([units, np.fromiter(added.values(), np.int64, len(added))]))
        kept = np.flatnonzero(unique < len(self.counts))  # the model has not got the newest items yet
        kept = kept[np.lexsort((unique[kept], -summed[kept]))[:KEPT]]
        if len(self.merged) >= MOST_MERGED:
            self.merged.clear()
        self.merged[source] = stamp, unique[kept], summed[kept]
        return unique[kept], summed[kept]

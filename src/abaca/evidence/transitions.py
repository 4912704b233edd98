"""Counted transitions: how often an item came soon after another.

    S[a, b] = Σ 1/d over pairs of training rows of one user in which b stands d ≤ 10 places after a
    r_x     = Σ_{j = 1 … 20} S[h₋ⱼ, x] / (jᶠ · √count(h₋ⱼ))       h₋ⱼ: the j-th last item of a history

1/d is counted in whole units of 1/2520, the least common multiple of 1 … 10, so that sums are exact in any order. Each
item keeps its strongest followers only. f says how soon a history fades: 1 where the latest items decide.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abaca.histories import Floats, Histories, Ints

DISTANCE = 10
REACH = 20
"""Items of a history that have followers, from its end."""
UNIT = 2520
KEPT = 200
"""Followers that an item keeps."""
PAIRS = 1 << 22
"""Pairs of items counted at once: about 200 MB with the sort."""


class Followers(NamedTuple):
    """Items that follow some histories, one history after another; an item once per history."""

    rows: Ints  # (P,) ascending
    items: Ints  # (P,) ascending within a row
    strength: Floats  # (P,) r


class Pairs(NamedTuple):
    """The followers of some items, one item after another."""

    width: Ints  # (n,) how many each item has
    followers: Ints | npt.NDArray[np.int32]  # (P,) strongest first
    units: Ints  # (P,)


class Sources(NamedTuple):
    """The item of a history that argues most for another."""

    items: Ints  # (P,) negative for none
    times: Floats  # (P,) S: how often the other came soon after it


@dataclass(frozen=True, eq=False)
class Transitions:
    """The strongest followers of every item, in one array after another."""

    starts: Ints  # (V + 1,) where the followers of each item begin
    followers: npt.NDArray[np.int32]  # (P,) strongest first
    units: Ints  # (P,) S in units of 1/2520
    counts: Ints  # (V,) training interactions of each item

    @classmethod
    def count(cls, rows: Histories, catalogue: int) -> "Transitions":
        """Count the transitions of training rows."""
        counts = np.bincount(rows.items, minlength=catalogue)
        blocks = [_strongest(keys, units, catalogue) for keys, units in _pair_blocks(rows, counts)]
        sources, followers, units = (np.concatenate(column) for column in zip(*blocks, strict=True))
        return cls(np.searchsorted(sources, np.arange(catalogue + 1)), followers.astype(np.int32), units, counts)

    def check(self, items: int) -> None:
        """Refuse arrays that do not fit together, or not a catalogue of so many items."""
        starts, followers, units, counts = self.starts, self.followers, self.units, self.counts
        if any(array.ndim != 1 or array.dtype.kind != "i" for array in (starts, followers, units, counts)):
            raise ValueError("counted transitions are lists of whole numbers")
        if (len(starts), len(counts), len(units)) != (items + 1, items, len(followers)):
            raise ValueError(f"the transitions were not counted for {items} items")
        if starts[0] != 0 or starts[-1] != len(followers) or bool((np.diff(starts) < 0).any()):
            raise ValueError("the followers of an item begin after the end of the list")
        if len(followers) and not (followers.min() >= 0 and followers.max() < items and units.min() >= 0):
            raise ValueError(f"a follower is none of {items} items")

    def after(self, histories: Histories, most: int, fade: float = 1.0) -> Followers:
        """The `most` strongest followers of each history; equal strengths go by item."""
        catalogue = len(self.counts)
        rows, distance, sources = _latest(histories)
        width, followers, units = self.pairs_of(sources)
        scale = UNIT * distance**fade * np.sqrt(np.maximum(self.count_of(sources), 1))
        unique, place = np.unique(np.repeat(rows * catalogue, width) + followers, return_inverse=True)
        strength = np.bincount(place, units / np.repeat(scale, width), minlength=len(unique)).astype(np.float64)
        rows, items = np.divmod(unique, catalogue)
        return _best(Followers(rows, items, strength), most)

    def sources(self, histories: Histories, rows: Ints, items: Ints, fade: float = 1.0) -> Sources:
        """For each pair of a history and an item, the source with the largest term of r."""
        found = Sources(np.full(len(rows), -1), np.zeros(len(rows)))
        if not len(rows):
            return found
        asked = np.unique(rows)
        row, distance, sources = _latest(histories.take(asked))
        width, followers, units = self.pairs_of(sources)
        wanted = rows * len(self.counts) + items
        order = wanted.argsort()
        ordered = wanted[order]
        keys = np.repeat(asked[row] * len(self.counts), width) + followers
        pair = np.minimum(ordered.searchsorted(keys), len(rows) - 1)
        hits = np.flatnonzero(ordered[pair] == keys)
        from_place = width.cumsum().searchsorted(hits, side="right")
        source, units = sources[from_place], units[hits]
        term = units / (distance[from_place] ** fade * np.sqrt(np.maximum(self.count_of(source), 1)))
        ascending = term.argsort(kind="stable")  # the largest is written last
        to = order[pair[hits]][ascending]
        found.items[to], found.times[to] = source[ascending], units[ascending] / UNIT
        return found

    def followed_by(self, more: int) -> "Transitions":
        """The same for a catalogue with further items at its end, which nobody took yet."""
        starts = np.concatenate([self.starts, np.full(more, self.starts[-1])])
        counts = np.concatenate([self.counts, np.zeros(more, dtype=self.counts.dtype)])
        return Transitions(starts, self.followers, self.units, counts)

    def count_of(self, items: Ints) -> Ints:
        """The training interactions of some items."""
        return self.counts[items]

    def pairs_of(self, sources: Ints) -> Pairs:
        """The followers of some items."""
        width = self.starts[sources + 1] - self.starts[sources]
        at = np.arange(width.sum()) + np.repeat(self.starts[sources] - (np.cumsum(width) - width), width)
        return Pairs(width, self.followers[at], self.units[at])


def _latest(histories: Histories) -> tuple[Ints, Floats, Ints]:
    """The last items of each history: its row, how far from the end each is, and the item; the latest first."""
    places = histories.offsets[1:, None] - np.arange(1, REACH + 1)  # (B, 20)
    there = places >= histories.offsets[:-1, None]
    rows, before = there.nonzero()
    return rows.astype(np.int64), before.astype(np.float64) + 1, histories.items[places[there]]


def _best(found: Followers, most: int) -> Followers:
    """The strongest of each row, in the order of items; of equal ones the first."""
    rows, items, strength = found
    width = np.bincount(rows)
    if width.max(initial=0) <= most:
        return found
    by_row = np.full((len(width), width.max()), -np.inf)
    by_row[rows, np.arange(len(rows)) - np.repeat(np.cumsum(width) - width, width)] = strength
    last = np.partition(by_row, -most, axis=1)[:, -most][rows]  # the weakest that is kept
    above, equal = strength > last, strength == last
    room = most - np.bincount(rows, above, minlength=len(width))
    before = np.cumsum(equal) - equal  # equal ones up to here; those of earlier rows are subtracted
    first = before[np.searchsorted(rows, rows)]
    kept = above | (equal & (before - first < room[rows]))
    return Followers(rows[kept], items[kept], strength[kept])


def _pair_blocks(rows: Histories, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Every pair as the key source × V + follower with its units, some source items at a time."""
    catalogue = len(counts)
    by_source, ends = np.argsort(rows.items, kind="stable"), np.repeat(rows.offsets[1:], rows.lengths)
    begin = np.concatenate([[0], np.cumsum(counts)])  # (V + 1,) where an item's rows begin
    full = np.arange(0, len(rows.items), PAIRS // DISTANCE)
    edges = np.unique(np.concatenate([[0], np.searchsorted(begin, full), [catalogue]]))
    for low, high in zip(begin[edges[:-1]], begin[edges[1:]], strict=True):
        places, keys, units = by_source[low:high], [], []
        for distance in range(1, DISTANCE + 1):
            places = places[places + distance < ends[places]]
            keys.append(rows.items[places] * catalogue + rows.items[places + distance])
            units.append(np.full(len(places), UNIT // distance))
        yield np.concatenate(keys), np.concatenate(units)


def _strongest(keys: Ints, units: Ints, catalogue: int) -> tuple[Ints, Ints, Ints]:
    """Add up equal pairs and keep each source's strongest: sources, followers, units; equal ones go by item."""
    unique, place = np.unique(keys, return_inverse=True)
    summed = np.zeros(len(unique), dtype=np.int64)
    np.add.at(summed, place, units)
    sources, followers = np.divmod(unique, catalogue)
    order = np.lexsort((followers, -summed, sources))
    kept = order[np.arange(len(order)) - np.searchsorted(sources, sources) < KEPT]
    return sources[kept], followers[kept], summed[kept]

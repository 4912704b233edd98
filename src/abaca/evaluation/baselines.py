"""Simple rankers that a model has to beat; all learn from the training rows alone.

Each one scores a few items for a history, its *shortlist*. The shortlist comes first, by score; equal scores go by
popularity; the rest of the catalogue follows by popularity. What is still equal is a real tie and counts against the
target. So nothing of size histories × V is ever held.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from abaca.data.sequences import Sequences
from abaca.evaluation.evaluate import Ranked
from abaca.evaluation.metrics import Floats, Ints
from abaca.types import PAD

_ROWS = 256  # histories answered at once
_PAIRS = 1 << 22  # pairs of items counted at once: about 200 MB with the sort


class Shortlist(NamedTuple):
    """Scored items of several histories, one after another; an item at most once per history."""

    rows: Ints  # (P,) ascending
    items: Ints  # (P,)
    scores: Floats  # (P,)


class TrainingRows(NamedTuple):
    """The interactions that training may see, users one after another."""

    items: Ints  # (N,)
    ends: Ints  # (N,) where the rows of the same user end


class PopularityOrder:
    """The catalogue by the number of training interactions, most first."""

    def __init__(self, items: Ints, catalogue: int) -> None:
        self.counts = np.bincount(items, minlength=catalogue)  # (V,)
        self.order = np.argsort(-self.counts, kind="stable")  # (V,) ties by lower index
        self.place = np.empty_like(self.order)  # (V,) where an item stands in the order
        self.place[self.order] = np.arange(catalogue)
        ascending = np.sort(self.counts)
        self.at_least = catalogue - np.searchsorted(ascending, self.counts)  # (V,) items as popular, itself included


def training_rows(sequences: Sequences) -> TrainingRows:
    """Gather `items[offsets[u]:train_end[u]]` of every user."""
    starts = np.asarray(sequences.offsets[:-1], dtype=np.int64)
    lengths = np.asarray(sequences.train_end, dtype=np.int64) - starts
    ends = np.cumsum(lengths)
    index = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
    return TrainingRows(np.asarray(sequences.items[index], dtype=np.int64), np.repeat(ends, lengths))


class Baseline(ABC):
    """A ranker that puts a shortlist before the popular items."""

    name: str
    popularity: PopularityOrder

    def fit(self, sequences: Sequences) -> Self:
        """Learn from the training rows."""
        rows = training_rows(sequences)
        self.popularity = PopularityOrder(rows.items, sequences.catalogue.size)
        self._learn(rows)
        return self

    def rank(self, histories: list[np.ndarray], targets: np.ndarray, n: int) -> Ranked:
        """Rank targets (T,) after histories of catalogue items; a cold target gets rank V + 1."""
        answers = [
            self._rank(histories[start : start + _ROWS], targets[start : start + _ROWS], n)
            for start in range(0, len(histories), _ROWS)
        ]
        ranks = [np.zeros(0, np.int64), *(rank for rank, _ in answers)]
        tops = [np.zeros((0, n), np.int32), *(top for _, top in answers)]
        return Ranked(np.concatenate(ranks), np.concatenate(tops), np.full(len(histories), np.nan))

    def _rank(self, histories: list[np.ndarray], targets: np.ndarray, n: int) -> tuple[Ints, NDArray[np.int32]]:
        shortlist = self._shortlist(histories)
        catalogue = len(self.popularity.counts)
        known = targets < catalogue
        rank = ranks_of(shortlist, np.where(known, targets, 0), self.popularity)
        return np.where(known, rank, catalogue + 1), top_of(shortlist, len(histories), n, self.popularity)

    def _learn(self, rows: TrainingRows) -> None:
        """Learn what else the shortlist needs; most need nothing."""
        return

    @abstractmethod
    def _shortlist(self, histories: list[np.ndarray]) -> Shortlist:
        """Score the items that come before the popular ones."""


def ranks_of(shortlist: Shortlist, targets: Ints, popularity: PopularityOrder) -> Ints:
    """Count for each target (T,) the other items that score higher or equal, and add one."""
    rows, items, scores = shortlist
    asked = targets[rows]  # (P,)
    hit = items == asked
    listed = np.zeros(len(targets), dtype=bool)
    listed[rows[hit]] = True
    own = np.full(len(targets), -np.inf)  # below every shortlist
    own[rows[hit]] = scores[hit]
    as_popular = popularity.counts[items] >= popularity.counts[asked]
    above = (scores > own[rows]) | ((scores == own[rows]) & as_popular)
    before = np.bincount(rows[above & ~hit], minlength=len(targets))
    counted = np.bincount(rows[as_popular], minlength=len(targets))  # popular, but already in the shortlist
    return 1 + before + np.where(listed, 0, popularity.at_least[targets] - 1 - counted)


def top_of(shortlist: Shortlist, count: int, n: int, popularity: PopularityOrder) -> NDArray[np.int32]:
    """Give the best n items of each of count histories: (count, n), PAD where the catalogue ends."""
    order = np.lexsort((popularity.place[shortlist.items], -shortlist.scores, shortlist.rows))
    rows, items = shortlist.rows[order], shortlist.items[order]
    column = np.arange(len(rows)) - np.searchsorted(rows, rows)  # the place within its history
    first = column < n
    top = np.full((count, n), PAD, dtype=np.int32)
    top[rows[first], column[first]] = items[first]

    size = np.bincount(rows[first], minlength=count)
    short = np.flatnonzero(size < n)  # these hold their whole shortlist; popular items fill them up
    if len(short):
        popular = popularity.order[:n]  # enough: a shortlist of s items leaves n − s gaps and takes at most s of these
        held = top[short]
        place = np.where(held == PAD, n, popularity.place[held])  # (S, n), n for those that are not among the popular
        free = np.ones((len(short), n + 1), dtype=bool)
        np.put_along_axis(free, np.minimum(place, n), False, axis=1)
        free = free[:, : len(popular)]
        at = size[short][:, None] + np.cumsum(free, axis=1) - 1
        row, place = np.nonzero(free & (at < n))
        top[short[row], at[row, place]] = popular[place]
    return top


class Popularity(Baseline):
    """The items with most training interactions."""

    name = "popularity"

    def _shortlist(self, histories: list[np.ndarray]) -> Shortlist:
        return Shortlist(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class _Distinct(NamedTuple):
    """The distinct items of several histories, one after another."""

    rows: Ints
    items: Ints
    counts: Ints  # how often in the history
    recency: Floats  # 0 to 1; the latest item of a history has the largest


def _distinct(histories: list[np.ndarray]) -> _Distinct:
    lengths = np.array([len(history) for history in histories], dtype=np.int64)
    rows = np.repeat(np.arange(len(histories)), lengths)
    items = np.concatenate([*histories, np.zeros(0, np.int64)]).astype(np.int64)
    order = np.lexsort((items, rows))  # stable: the last of a group is the latest
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (np.diff(rows[order]) != 0) | (np.diff(items[order]) != 0)
    counts = np.diff(np.flatnonzero(last), prepend=-1)
    latest = order[last]
    since_start = latest - (np.cumsum(lengths) - lengths)[rows[latest]]
    return _Distinct(rows[latest], items[latest], counts, since_start / lengths[rows[latest]])


class MostRecent(Baseline):
    """The distinct items of the history, latest first."""

    name = "most recent"

    def _shortlist(self, histories: list[np.ndarray]) -> Shortlist:
        seen = _distinct(histories)
        return Shortlist(seen.rows, seen.items, seen.recency)


class PersonalFrequency(Baseline):
    """The items of the history, most frequent first, ties by recency."""

    name = "personal frequency"

    def _shortlist(self, histories: list[np.ndarray]) -> Shortlist:
        seen = _distinct(histories)
        return Shortlist(seen.rows, seen.items, seen.counts + seen.recency)  # recency is below 1


DECAYS: dict[str, Callable[[int, int], float]] = {
    "quotient": lambda distance, window: 1 / distance,
    "linear": lambda distance, window: 1 - (distance - 1) / window,
}


class SequentialRules(Baseline):
    """The items that followed: after the last item, or with decay after each of the last few.

    Without decay a rule a → b weighs as often as b came right after a. With decay it gathers every b that came up to
    `window` places after a, and each of the last `window` items of a history speaks; both weigh less with distance d:
    `quotient` 1 / d, `linear` 1 − (d − 1) / window. An item keeps its `rules` strongest rules.
    """

    def __init__(self, decay: Literal["quotient", "linear"] | None = None, window: int = 10, rules: int = 200) -> None:
        if decay is not None and decay not in DECAYS:
            raise ValueError(f"got decay {decay!r}, expected one of {', '.join(DECAYS)} or None")
        if window < 1 or rules < 1:
            raise ValueError(f"got window {window} and rules {rules}, expected at least 1")
        self.name = "sequential rules" if decay is None else "decayed sequential rules"
        self.rules = rules
        self.weights = [1.0] if decay is None else [DECAYS[decay](d, window) for d in range(1, window + 1)]

    def _learn(self, rows: TrainingRows) -> None:
        """Keep the strongest rules of each item as starts (V + 1,), followers and strengths, strongest first."""
        catalogue = len(self.popularity.counts)
        blocks = [self._strongest(*block) for block in self._pair_blocks(rows)]
        sources, followers, strengths = (np.concatenate(column) for column in zip(*blocks, strict=True))
        self.starts = np.searchsorted(sources, np.arange(catalogue + 1))
        self.followers = followers.astype(np.int32)
        self.strengths = strengths

    def _pair_blocks(self, rows: TrainingRows) -> Iterator[tuple[Ints, Floats]]:
        """Give every pair as the key source × V + follower with its weight, some source items at a time."""
        catalogue = len(self.popularity.counts)
        by_source = np.argsort(rows.items, kind="stable")
        pairs = np.concatenate([[0], np.cumsum(self.popularity.counts)])  # (V + 1,) where an item's rows begin
        full = np.arange(0, len(rows.items), max(1, _PAIRS // len(self.weights)))
        edges = np.unique(np.concatenate([[0], np.searchsorted(pairs, full), [catalogue]]))
        for low, high in zip(pairs[edges[:-1]], pairs[edges[1:]], strict=True):
            places, keys, weights = by_source[low:high], [], []
            for distance, weight in enumerate(self.weights, start=1):
                places = places[places + distance < rows.ends[places]]
                keys.append(rows.items[places] * catalogue + rows.items[places + distance])
                weights.append(np.full(len(places), weight))
            yield np.concatenate(keys), np.concatenate(weights)

    def _strongest(self, keys: Ints, weights: Floats) -> tuple[Ints, Ints, Floats]:
        """Add the weights of equal pairs up and keep each source's strongest: sources, followers, strengths."""
        keys, strengths = _summed(keys, weights)
        sources, followers = np.divmod(keys, len(self.popularity.counts))
        order = np.lexsort((self.popularity.place[followers], -strengths, sources))
        order = order[np.arange(len(order)) - np.searchsorted(sources, sources) < self.rules]
        return sources[order], followers[order], strengths[order]

    def _shortlist(self, histories: list[np.ndarray]) -> Shortlist:
        catalogue = len(self.popularity.counts)
        lengths = np.array([len(history) for history in histories], dtype=np.int64)
        keys, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for distance, weight in enumerate(self.weights, start=1):
            rows = np.flatnonzero(lengths >= distance)
            sources = np.array([histories[row][-distance] for row in rows], dtype=np.int64)
            count = self.starts[sources + 1] - self.starts[sources]
            at = np.arange(count.sum()) + np.repeat(self.starts[sources] - (np.cumsum(count) - count), count)
            keys.append(np.repeat(rows, count) * catalogue + self.followers[at])
            weights.append(weight * self.strengths[at])
        summed, scores = _summed(np.concatenate(keys), np.concatenate(weights))
        return Shortlist(*np.divmod(summed, catalogue), scores)


def _summed(keys: Ints, weights: Floats) -> tuple[Ints, Floats]:
    """Add up the weights of equal keys; the keys come back ascending."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    sums = np.add.reduceat(weights[order], first) if len(first) else np.zeros(0)
    return keys[first], np.round(sums, 9)  # sums taken in another order must still tie


BASELINES: dict[str, Callable[[], Baseline]] = {
    "popularity": Popularity,
    "most recent": MostRecent,
    "personal frequency": PersonalFrequency,
    "sequential rules": SequentialRules,
    "decayed sequential rules": lambda: SequentialRules(decay="quotient"),
}

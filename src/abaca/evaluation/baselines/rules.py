"""Baselines that count which items followed which: rules from a source item to its followers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from abaca.evaluation.baselines.baseline import Baseline, PopularityOrder, Shortlist
from abaca.histories import Floats, Histories, Ints

_PAIRS = 1 << 22  # pairs of items counted at once: about 200 MB with the sort

DECAYS: dict[str, Callable[[int, int], float]] = {
    "quotient": lambda distance, window: 1 / distance,
    "linear": lambda distance, window: 1 - (distance - 1) / window,
}

DECAYED = tuple(DECAYS["quotient"](distance, 10) for distance in range(1, 11))
"""The weight of each distance in rules of ten items with quotient decay."""

KEPT = 200
"""The rules that an item keeps."""


class Rules(NamedTuple):
    """The strongest rules of every item, strongest first."""

    starts: Ints  # (V + 1,) where the rules of each item begin
    followers: npt.NDArray[np.int32]  # (R,)
    strengths: Floats  # (R,)

    def by_root(self, counts: Ints) -> "Rules":
        """The same with strengths divided by the square root of their source's count (V,)."""
        return self._replace(strengths=self.strengths / np.sqrt(np.repeat(counts, np.diff(self.starts))))


class SequentialRules(Baseline):
    """The items that followed: after the last item, or with decay after each of the last few.

    Without decay the weight of a rule a → b counts how often b came right after a. With decay it counts every b up to
    `window` places after a, and the last `window` items of a history all contribute; both are weighted by distance d:
    `quotient` 1 / d, `linear` 1 − (d − 1) / window. An item keeps its `rules` strongest rules.
    """

    counted = Rules._fields
    starts: Ints
    followers: npt.NDArray[np.int32]
    strengths: Floats

    def __init__(self, decay: Literal["quotient", "linear"] | None = None, window: int = 10, rules: int = KEPT) -> None:
        if decay is not None and decay not in DECAYS:
            raise ValueError(f"got decay {decay!r}, expected one of {', '.join(DECAYS)} or None")
        if window < 1 or rules < 1:
            raise ValueError(f"got window {window} and rules {rules}, expected at least 1")
        self.name = "sequential rules" if decay is None else "decayed sequential rules"
        self.rules = rules
        self.weights = [1.0] if decay is None else [DECAYS[decay](d, window) for d in range(1, window + 1)]

    def _learn(self, rows: Histories) -> None:
        self.starts, self.followers, self.strengths = count_rules(rows, self.popularity, self.weights, self.rules)

    def _shortlist(self, histories: Histories) -> Shortlist:
        return apply_rules(Rules(self.starts, self.followers, self.strengths), histories, self.weights)


class RulesWithoutHistory(Baseline):
    """Decayed rules for new items: a popular source counts for less, and the history is never recommended.

    A rule's strength is divided by the square root of the number of training interactions of its source.
    """

    name = "rules without history"
    excludes_history = True
    counted = Rules._fields
    starts: Ints
    followers: npt.NDArray[np.int32]
    strengths: Floats

    def _learn(self, rows: Histories) -> None:
        self.starts, self.followers, self.strengths = count_rules(rows, self.popularity).by_root(self.popularity.counts)

    def _shortlist(self, histories: Histories) -> Shortlist:
        return apply_rules(Rules(self.starts, self.followers, self.strengths), histories)


def count_rules(
    rows: Histories, popularity: PopularityOrder, weights: Sequence[float] = DECAYED, kept: int = KEPT
) -> Rules:
    """Count how often an item followed another, each distance with its weight, and keep the strongest rules."""
    blocks = [_strongest(*block, popularity, kept) for block in _pair_blocks(rows, popularity.counts, weights)]
    sources, followers, strengths = (np.concatenate(column) for column in zip(*blocks, strict=True))
    starts = np.searchsorted(sources, np.arange(len(popularity.counts) + 1))
    return Rules(starts, followers.astype(np.int32), strengths)


def _pair_blocks(rows: Histories, counts: Ints, weights: Sequence[float]) -> Iterator[tuple[Ints, Floats]]:
    """Give every pair as the key source × V + follower with its weight, some source items at a time."""
    catalogue = len(counts)
    by_source, ends = np.argsort(rows.items, kind="stable"), np.repeat(rows.offsets[1:], rows.lengths)
    pairs = np.concatenate([[0], np.cumsum(counts)])  # (V + 1,) where an item's rows begin
    full = np.arange(0, len(rows.items), max(1, _PAIRS // len(weights)))
    edges = np.unique(np.concatenate([[0], np.searchsorted(pairs, full), [catalogue]]))
    for low, high in zip(pairs[edges[:-1]], pairs[edges[1:]], strict=True):
        places, keys, weighed = by_source[low:high], [], []
        for distance, weight in enumerate(weights, start=1):
            places = places[places + distance < ends[places]]
            keys.append(rows.items[places] * catalogue + rows.items[places + distance])
            weighed.append(np.full(len(places), weight))
        yield np.concatenate(keys), np.concatenate(weighed)


def _strongest(keys: Ints, weights: Floats, popularity: PopularityOrder, kept: int) -> tuple[Ints, Ints, Floats]:
    """Add the weights of equal pairs up and keep each source's strongest: sources, followers, strengths."""
    keys, strengths = summed(keys, weights)
    sources, followers = np.divmod(keys, len(popularity.counts))
    order = np.lexsort((popularity.place[followers], -strengths, sources))
    order = order[np.arange(len(order)) - np.searchsorted(sources, sources) < kept]
    return sources[order], followers[order], strengths[order]


def apply_rules(rules: Rules, histories: Histories, weights: Sequence[float] = DECAYED) -> Shortlist:
    """Add up the rules of the last items of each history, each distance with its weight."""
    catalogue, lengths = len(rules.starts) - 1, histories.lengths
    keys, weighed = [np.zeros(0, np.int64)], [np.zeros(0)]
    for distance, weight in enumerate(weights, start=1):
        rows = np.flatnonzero(lengths >= distance)
        sources = histories.items[histories.offsets[rows + 1] - distance]
        count = rules.starts[sources + 1] - rules.starts[sources]
        at = np.arange(count.sum()) + np.repeat(rules.starts[sources] - (np.cumsum(count) - count), count)
        keys.append(np.repeat(rows, count) * catalogue + rules.followers[at])
        weighed.append(weight * rules.strengths[at])
    pairs, scores = summed(np.concatenate(keys), np.concatenate(weighed))
    return Shortlist(*np.divmod(pairs, catalogue), scores)


def summed(keys: Ints, weights: Floats) -> tuple[Ints, Floats]:
    """Add up the weights of equal keys; the keys come back ascending."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    sums = np.add.reduceat(weights[order], first) if len(first) else np.zeros(0)
    return keys[first], np.round(sums, 9)  # sums taken in another order must still tie

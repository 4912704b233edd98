"""Simple rankers that a model has to beat; all learn from the training rows alone.

Each one scores a few items for a history, its *shortlist*. The shortlist comes first, by score; equal scores go by
popularity; the rest of the catalogue follows by popularity. What is still equal is a real tie and counts against the
target. So nothing of size histories × V is ever held.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Self

import numpy as np
import torch

from abaca.data.sequences import Sequences
from abaca.evaluation.ranker import no_answer
from abaca.histories import Floats, Histories, Ints
from abaca.nn.answers import RULE, Answer, Question

_ROWS = 256  # histories answered at once
_PAIRS = 1 << 22  # pairs of items counted at once: about 200 MB with the sort


class Shortlist(NamedTuple):
    """Scored items of several histories, one after another; an item at most once per history."""

    rows: Ints  # (P,) ascending
    items: Ints  # (P,)
    scores: Floats  # (P,)


class PopularityOrder:
    """The catalogue by the number of training interactions, most first."""

    def __init__(self, counts: Ints) -> None:
        self.counts, catalogue = counts, len(counts)  # (V,)
        self.order = np.argsort(-self.counts, kind="stable")  # (V,) ties by lower index
        self.place = np.empty_like(self.order)  # (V,) the place of an item in the order
        self.place[self.order] = np.arange(catalogue)
        ascending = np.sort(self.counts)
        self.at_least = catalogue - np.searchsorted(ascending, self.counts)  # (V,) items as popular, itself included


class Baseline(ABC):
    """A ranker that puts a shortlist before the popular items."""

    name: str
    popularity: PopularityOrder
    estimated = False
    counted: tuple[str, ...] = ()
    """The attributes that `_learn` sets."""

    def fit(self, sequences: Sequences, *, everything: bool = False) -> Self:
        """Learn from the training rows; with `everything`, also from the held-out rows."""
        rows = sequences.training(everything=everything)
        size = len(sequences.catalogue) if everything else sequences.catalogue.size
        self.popularity = PopularityOrder(np.bincount(rows.items, minlength=size))
        self._learn(rows)
        return self

    def state(self) -> dict[str, torch.Tensor]:
        """What it has learned, as a model directory keeps it."""
        arrays = {"counts": self.popularity.counts, **{name: getattr(self, name) for name in self.counted}}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def restore(self, state: dict[str, torch.Tensor]) -> Self:
        """Restore the result of `state`."""
        self.popularity = PopularityOrder(state["counts"].numpy())
        for name in self.counted:
            setattr(self, name, state[name].numpy())
        return self

    @property
    def catalogue(self) -> int:
        """V: how many items it ranks."""
        return len(self.popularity.counts)

    def ask(self, histories: Histories, question: Question) -> Answer:
        """Rank the targets and give the best items; what it scores are no logits, so there are no probabilities."""
        whole = no_answer(len(histories), question.n, self.catalogue)
        for start in range(0, len(histories), _ROWS):
            rows = torch.arange(start, min(start + _ROWS, len(histories)))
            part, shortlist = question.take(rows), self._shortlist(histories.take(rows.numpy()))
            targets = part.targets.numpy()
            rank = ranks_of(shortlist, np.maximum(targets, 0), self.popularity)
            whole.rank[rows] = torch.from_numpy(np.where(targets >= 0, rank, self.catalogue + 1))
            best, scores = best_of(shortlist, part, self.popularity)
            whole.items[rows], whole.logits[rows] = torch.from_numpy(best), torch.from_numpy(scores).float()
        return whole._replace(partitions=torch.full_like(whole.partitions, RULE))

    def explain(self, histories: Histories, items: Ints, logits: Floats) -> None:
        """Nothing: what a baseline scores are no logits."""
        return

    def _learn(self, rows: Histories) -> None:
        """Learn what else the shortlist needs; most need nothing."""
        return

    @abstractmethod
    def _shortlist(self, histories: Histories) -> Shortlist:
        """Score the items that come before the popular ones; scores are not negative."""


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


def best_of(shortlist: Shortlist, question: Question, popularity: PopularityOrder) -> tuple[Ints, Floats]:
    """The best n allowed items of each row and their scores: items and scores (T, n), −∞ where nothing is left.

    An item outside the shortlist scores −1 − its place by popularity.
    """
    count, catalogue = len(question.targets), len(popularity.order)
    n, banned = min(question.n, catalogue), question.banned.numpy()
    keys = [shortlist.rows * catalogue + shortlist.items]
    if question.only is None:
        first = popularity.order[: n + banned.shape[1]]  # enough: a shortlist of s leaves n − s gaps, takes at most s
        keys.append((np.arange(count)[:, None] * catalogue + first).ravel())
    else:
        keys.append(_keys(question.only.numpy(), catalogue))
    every, at = np.unique(np.concatenate(keys), return_index=True)
    rows, items = np.divmod(every, catalogue)
    scores = np.where(
        at < len(shortlist.rows), np.append(shortlist.scores, 0)[np.minimum(at, len(shortlist.rows))],
        -1.0 - popularity.place[items],
    )  # fmt: skip
    allowed = ~np.isin(every, _keys(banned, catalogue))
    if question.only is not None:
        allowed &= np.isin(every, keys[1])
    rows, items, scores = rows[allowed], items[allowed], scores[allowed]
    order = np.lexsort((popularity.place[items], -scores, rows))
    rows = rows[order]
    column = np.arange(len(rows)) - np.searchsorted(rows, rows)  # the place within its row
    taken = column < n
    best, found = np.zeros((count, n), dtype=np.int64), np.full((count, n), -np.inf)
    best[rows[taken], column[taken]] = items[order][taken]
    found[rows[taken], column[taken]] = scores[order][taken]
    return best, found


def _keys(items: Ints, catalogue: int) -> Ints:
    """Row × V + item of lists (T, X), V after their end."""
    keys = np.arange(len(items))[:, None] * catalogue + items
    return np.asarray(keys[items < catalogue])


class Popularity(Baseline):
    """The items with most training interactions."""

    name = "popularity"

    def _shortlist(self, histories: Histories) -> Shortlist:
        return Shortlist(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class _Distinct(NamedTuple):
    """The distinct items of several histories, one after another."""

    rows: Ints
    items: Ints
    counts: Ints  # how often in the history
    recency: Floats  # 0 to 1; the latest item of a history has the largest


def _distinct(histories: Histories) -> _Distinct:
    rows, items = histories.rows, histories.items
    order = np.lexsort((items, rows))  # stable: the last of a group is the latest
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (np.diff(rows[order]) != 0) | (np.diff(items[order]) != 0)
    counts = np.diff(np.flatnonzero(last), prepend=-1)
    latest = order[last]
    owner = rows[latest]
    return _Distinct(owner, items[latest], counts, (latest - histories.offsets[owner]) / histories.lengths[owner])


class MostRecent(Baseline):
    """The distinct items of the history, latest first."""

    name = "most recent"

    def _shortlist(self, histories: Histories) -> Shortlist:
        seen = _distinct(histories)
        return Shortlist(seen.rows, seen.items, seen.recency)


class PersonalFrequency(Baseline):
    """The items of the history, most frequent first, ties by recency."""

    name = "personal frequency"

    def _shortlist(self, histories: Histories) -> Shortlist:
        seen = _distinct(histories)
        return Shortlist(seen.rows, seen.items, seen.counts + seen.recency)  # recency is below 1


DECAYS: dict[str, Callable[[int, int], float]] = {
    "quotient": lambda distance, window: 1 / distance,
    "linear": lambda distance, window: 1 - (distance - 1) / window,
}


class SequentialRules(Baseline):
    """The items that followed: after the last item, or with decay after each of the last few.

    Without decay the weight of a rule a → b counts how often b came right after a. With decay it counts every b up to
    `window` places after a, and the last `window` items of a history all contribute; both are weighted by distance d:
    `quotient` 1 / d, `linear` 1 − (d − 1) / window. An item keeps its `rules` strongest rules.
    """

    counted = ("starts", "followers", "strengths")
    starts: Ints  # (V + 1,) where the rules of each item begin
    followers: np.ndarray
    strengths: Floats

    def __init__(self, decay: Literal["quotient", "linear"] | None = None, window: int = 10, rules: int = 200) -> None:
        if decay is not None and decay not in DECAYS:
            raise ValueError(f"got decay {decay!r}, expected one of {', '.join(DECAYS)} or None")
        if window < 1 or rules < 1:
            raise ValueError(f"got window {window} and rules {rules}, expected at least 1")
        self.name = "sequential rules" if decay is None else "decayed sequential rules"
        self.rules = rules
        self.weights = [1.0] if decay is None else [DECAYS[decay](d, window) for d in range(1, window + 1)]

    def _learn(self, rows: Histories) -> None:
        """Keep the strongest rules of each item as starts (V + 1,), followers and strengths, strongest first."""
        catalogue = self.catalogue
        blocks = [self._strongest(*block) for block in self._pair_blocks(rows)]
        sources, followers, strengths = (np.concatenate(column) for column in zip(*blocks, strict=True))
        self.starts = np.searchsorted(sources, np.arange(catalogue + 1))
        self.followers = followers.astype(np.int32)
        self.strengths = strengths

    def _pair_blocks(self, rows: Histories) -> Iterator[tuple[Ints, Floats]]:
        """Give every pair as the key source × V + follower with its weight, some source items at a time."""
        catalogue = self.catalogue
        by_source, ends = np.argsort(rows.items, kind="stable"), np.repeat(rows.offsets[1:], rows.lengths)
        pairs = np.concatenate([[0], np.cumsum(self.popularity.counts)])  # (V + 1,) where an item's rows begin
        full = np.arange(0, len(rows.items), max(1, _PAIRS // len(self.weights)))
        edges = np.unique(np.concatenate([[0], np.searchsorted(pairs, full), [catalogue]]))
        for low, high in zip(pairs[edges[:-1]], pairs[edges[1:]], strict=True):
            places, keys, weights = by_source[low:high], [], []
            for distance, weight in enumerate(self.weights, start=1):
                places = places[places + distance < ends[places]]
                keys.append(rows.items[places] * catalogue + rows.items[places + distance])
                weights.append(np.full(len(places), weight))
            yield np.concatenate(keys), np.concatenate(weights)

    def _strongest(self, keys: Ints, weights: Floats) -> tuple[Ints, Ints, Floats]:
        """Add the weights of equal pairs up and keep each source's strongest: sources, followers, strengths."""
        keys, strengths = _summed(keys, weights)
        sources, followers = np.divmod(keys, self.catalogue)
        order = np.lexsort((self.popularity.place[followers], -strengths, sources))
        order = order[np.arange(len(order)) - np.searchsorted(sources, sources) < self.rules]
        return sources[order], followers[order], strengths[order]

    def _shortlist(self, histories: Histories) -> Shortlist:
        catalogue, lengths = self.catalogue, histories.lengths
        keys, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for distance, weight in enumerate(self.weights, start=1):
            rows = np.flatnonzero(lengths >= distance)
            sources = histories.items[histories.offsets[rows + 1] - distance]
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

"""What all baselines share: a shortlist of scored items before the catalogue by popularity.

Each one scores a few items for a history, its *shortlist*. The shortlist comes first, by score; equal scores go by
popularity; the rest of the catalogue follows by popularity. What is still equal is a real tie and counts against the
target. So nothing of size histories × V is ever held.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import numpy as np
import torch

from abaca.data.sequences import Sequences
from abaca.evaluation.membership import Membership
from abaca.evaluation.ranker import no_answer
from abaca.histories import Floats, Histories, Ints
from abaca.nn.answers import RULE, Answer, Question

_ROWS = 256  # histories answered at once


class Shortlist(NamedTuple):
    """Scored items of several histories, one after another; an item at most once per history."""

    rows: Ints  # (P,) ascending
    items: Ints  # (P,) ascending within a row
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
    excludes_history = False
    """Whether the items of a history are never recommended after it."""
    fitted = False
    """Whether some of its numbers are fitted on validation targets."""
    reads_now = False
    """Whether the moment of a query changes its ranks."""
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
            part, own = question.take(rows), histories.take(rows.numpy())
            shortlist = self._shortlist(own)
            rank, ahead = self._places(shortlist, part, own)
            if self.excludes_history:
                seen = torch.from_numpy(Membership(own, self.catalogue).rectangle())
                part = part._replace(banned=torch.cat([part.banned, seen], dim=1))
            best, scores = best_of(shortlist, part, self.popularity)
            whole.rank[rows], whole.ahead[rows] = torch.from_numpy(rank), torch.from_numpy(ahead)
            whole.items[rows], whole.logits[rows] = torch.from_numpy(best), torch.from_numpy(scores).float()
        return whole._replace(partitions=torch.full_like(whole.partitions, RULE))

    def ask_each(self, histories: Histories, questions: list[Question]) -> list[Answer]:
        """Answer several questions about the same histories."""
        return [self.ask(histories, question) for question in questions]

    def explain(self, histories: Histories, items: Ints, logits: Floats) -> None:
        """Nothing: what a baseline scores are no logits."""
        return

    def vectors(self, items: Ints) -> None:
        """None: a baseline has no item vectors."""
        return

    def cold(self) -> None:
        """None: a baseline reads no features."""
        return

    def _places(self, shortlist: Shortlist, question: Question, histories: Histories) -> tuple[Ints, Ints]:
        """The fields `rank` and `ahead` of the answer; an excluded target is missed, as if there were none."""
        asked, given = question.targets.numpy(), question.mass_of.numpy()
        targets, missed = np.maximum(asked, 0), asked < 0
        rank = ranks_of(shortlist, targets, self.popularity)
        if self.excludes_history:
            seen = Membership(histories, self.catalogue)
            rank -= ahead_of(shortlist, targets, seen.rectangle(), self.popularity)
            given = np.where(seen.holds(given), self.catalogue, given)
            missed |= seen.holds(asked[:, None])[:, 0]
        ahead = ahead_of(shortlist, targets, given, self.popularity)
        return np.where(missed, self.catalogue + 1, rank), np.where(missed, 0, ahead)

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


def ahead_of(shortlist: Shortlist, targets: Ints, given: Ints, popularity: PopularityOrder) -> Ints:
    """Count for each target (T,) the other items among those given (T, X), padded with V, that `ranks_of` counts."""
    catalogue = len(popularity.order)
    items = np.minimum(given, catalogue - 1)
    own, scores = (_scores(shortlist, each, catalogue) for each in (targets[:, None], items))
    as_popular = popularity.counts[items] >= popularity.counts[targets][:, None]
    above = (scores > own) | ((scores == own) & as_popular)
    counted = (given < catalogue) & (given != targets[:, None])
    return np.asarray((above & counted).sum(axis=1))


def _scores(shortlist: Shortlist, items: Ints, catalogue: int) -> Floats:
    """The score of each item (T, X); −∞ outside the shortlist."""
    keys = np.append(shortlist.rows * catalogue + shortlist.items, -1)
    asked = np.arange(len(items))[:, None] * catalogue + items
    at = np.searchsorted(keys[:-1], asked)
    return np.where(keys[at] == asked, np.append(shortlist.scores, 0)[at], -np.inf)


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

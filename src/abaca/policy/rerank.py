"""From scored candidates to a list, under the rules that depend on the rest of the list.

    score of an item = its logit + its boosts
    1. items are taken by score, unless a group of theirs is full (caps);
       with diversity s, first of the best `POOL` · n candidates the one with the largest
       (1 − s) · relevance − s · largest cosine to an item taken before, again and again
    2. while the list is short, one item gives way to two others where caps allow it
    3. while a group has too few items, its best item replaces the last item that no group needs (floors)

Relevance is the score, scaled so that the pool has 0 to 1. Caps always hold. Floors hold where caps and items allow it.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from abaca.histories import Floats, Ints
from abaca.policy.draft import Draft, Effect, Limits, Members

POOL = 5
"""Diversity chooses among this number of candidates for each item of a list."""

READ = 4096
"""Vectors of this number of candidates are read at once, or those of one list."""

BOOST, DIVERSITY = "boost", "diversity"


class Pools(NamedTuple):
    """The candidates of several lists, best logit first; the logit is −∞ where there is none."""

    logits: Floats  # (B, K)
    boosts: Floats | None  # (B, K)
    groups: Ints  # (B, K, W) the groups of each, each once; G after the last
    vectors: Callable[[Ints, Ints], Floats] | None = None
    """Vectors of unit length (…, D) of candidates, which are given as lists (…) and places (…)."""


class Choice(NamedTuple):
    """A list."""

    places: list[int]
    effects: list[Effect]
    lowest: float
    """Candidates with a lower score would change nothing; −∞ where every further candidate could."""
    lowest_special: float
    """The same for candidates of special groups, as far as floors are concerned."""


def rerank(pools: Pools, limits: Limits) -> Iterator[Choice]:
    """Each list of the best candidates under the limits."""
    scores = pools.logits if pools.boosts is None else pools.logits + pools.boosts
    order = np.argsort(-scores, axis=1, kind="stable")
    counts = (scores != -math.inf).sum(axis=1).tolist()
    scores = np.take_along_axis(scores, order, axis=1)
    groups = np.take_along_axis(pools.groups, order[:, :, None], axis=1)
    vectors = _Vectors(pools.vectors, order, POOL * limits.n) if pools.vectors and limits.diversity else None
    for row, count in enumerate(counts):
        ranked = order[row, :count]
        members = Members(groups[row, :count], limits)
        spread = None if vectors is None else _Spread(vectors, row, scores[row, :count], limits)
        draft, diverse = _composed(members, limits, spread)
        effects = [] if pools.boosts is None else _boosted(ranked, limits.n)
        effects += [_placed(effect, ranked) for effect in (*diverse, *draft.effects()) if any(effect[2:])]
        lowest, special = (_lowest(scores[row, :count], reach) for reach in draft.reached())
        yield Choice(ranked[draft.places].tolist(), effects, lowest, special)


def _composed(members: Members, limits: Limits, spread: "_Spread | None") -> tuple[Draft, list[Effect]]:
    """A list in places by score, and what diversity did to it."""
    draft = Draft(members, limits)
    draft.compose()
    if spread is None:
        return draft, []
    before, draft = draft, Draft(members, limits)
    spread.compose(draft)
    return draft, [_difference(DIVERSITY, before.places, draft.places)]


def _boosted(ranked: Ints, n: int) -> list[Effect]:
    """What boosts changed in the n best."""
    effect = _difference(BOOST, list(range(min(n, len(ranked)))), ranked[:n].tolist())
    return [effect] if effect.removed or effect.moved else []


def _placed(effect: Effect, ranked: Ints) -> Effect:
    """An effect in places by logit."""
    return effect._replace(removed=ranked[effect.removed].tolist(), moved=ranked[effect.moved].tolist())


def _lowest(scores: Floats, reach: int) -> float:
    """The score of the last candidate that a list depends on; +∞ for none, −∞ where it depends on more."""
    return math.inf if not reach else float(scores[reach - 1]) if reach <= len(scores) else -math.inf


class _Vectors:
    """The vectors of candidates, which are given as places by score; those of the first are read for many lists."""

    def __init__(self, read: Callable[[Ints, Ints], Floats], order: Ints, first: int) -> None:
        self.read, self.order, self.first = read, order, order[:, :first]
        self.step = max(1, READ // max(1, self.first.shape[1]))
        self.start, self.part = -self.step, np.zeros((0, 0, 0))

    def of(self, row: int, places: Ints) -> Floats:
        """Those of some candidates of a list (P, D)."""
        if row >= self.start + self.step:
            self.start = row
            rows = np.arange(row, min(row + self.step, len(self.order)))
            self.part = self.read(rows[:, None], self.first[rows])
        if len(places) and places.max() >= self.first.shape[1]:
            return self.read(np.array(row), self.order[row, places])
        return np.asarray(self.part[row - self.start][places])


class _Spread:
    """Maximal marginal relevance for one list."""

    def __init__(self, vectors: _Vectors, row: int, scores: Floats, limits: Limits) -> None:
        self.vectors, self.row, self.scores, self.limits = vectors, row, scores, limits
        self.pool = min(POOL * limits.n, len(scores))
        best = scores[: self.pool] if self.pool else np.zeros(1)
        self.lowest, self.span = float(best[-1]), float(best[0] - best[-1]) or 1.0

    def compose(self, draft: Draft) -> None:
        """Fill a list from the pool, and complete it by score."""
        draft.reach = POOL * self.limits.n
        taken = self._take(list(range(self.pool)), draft)
        draft.compose()
        draft.places = taken if set(taken) == set(draft.places) else self._take(draft.places)

    def _take(self, places: list[int], draft: Draft | None = None) -> list[int]:
        """All of the candidates in the order in which they are taken; with a draft, those that it has room for."""
        if not places:
            return []
        strength, numbers = self.limits.diversity, np.array(places)
        gains = (1 - strength) * (self.scores[numbers] - self.lowest) / self.span
        vectors, taken = self.vectors.of(self.row, numbers), list[int]()
        costs = strength * (vectors @ vectors.T)
        nearest = np.full(len(places), -strength)
        left = gains.copy()
        for _ in places:
            at = int(left.argmax())
            gains[at] = left[at] = -np.inf
            if draft is not None and not self._room(draft, places[at]):
                continue
            taken.append(places[at])
            if len(taken) == self.limits.n:
                break
            np.maximum(nearest, costs[at], out=nearest)
            np.subtract(gains, nearest, out=left)
        return taken

    @staticmethod
    def _room(draft: Draft, place: int) -> bool:
        group = draft.full(place)
        if group is None:
            draft.add(place)
        else:
            draft.blocked[group].append(place)
        return group is None


def _difference(rule: str, before: list[int], after: list[int]) -> Effect:
    """What a rule changed in a list."""
    old = {place: at for at, place in enumerate(before)}
    moved = [place for at, place in enumerate(after) if old.get(place, len(after)) > at]
    listed = set(after)
    return Effect(rule, False, [place for place in before if place not in listed], moved)

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
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from abaca.histories import Floats, Ints
from abaca.policy.draft import Draft, Effect, Limits

POOL = 5
"""Diversity chooses among this number of candidates for each item of a list."""

BOOST, DIVERSITY = "boost", "diversity"


class Pool(NamedTuple):
    """The candidates of one list, best logit first."""

    logits: Floats  # (K,)
    boosts: Floats | None  # (K,)
    groups: Ints  # (K, W) the groups of each, each once; G after the last
    vectors: Callable[[list[int]], Floats] | None = None
    """Vectors of unit length (P, D) of some candidates."""


class Choice(NamedTuple):
    """A list."""

    places: list[int]
    effects: list[Effect]
    lowest: float
    """Candidates with a lower score would change nothing; −∞ where every further candidate could."""
    lowest_special: float
    """The same for candidates of special groups, as far as floors are concerned."""


def rerank(pool: Pool, limits: Limits) -> Choice:
    """The list of the best candidates under the limits."""
    scores = pool.logits if pool.boosts is None else pool.logits + pool.boosts
    order = np.argsort(-scores, kind="stable").tolist()
    effects = [] if pool.boosts is None else _difference(BOOST, list(range(len(order)))[: limits.n], order[: limits.n])
    draft = Draft(pool.groups, limits, order)
    draft.compose()
    if limits.diversity:
        assert pool.vectors is not None
        before, draft = draft, Draft(pool.groups, limits, order)
        _Spread(pool.vectors, scores, order, limits).compose(draft)
        effects += _difference(DIVERSITY, before.places, draft.places)
    effects += draft.effects()
    effects = [effect for effect in effects if any(effect[2:])]
    lowest, special = (_lowest(scores, order, reach) for reach in draft.reached())
    return Choice(draft.places, effects, lowest, special)


def _lowest(scores: Floats, order: list[int], reach: int) -> float:
    """The score of the last candidate that a list depends on; +∞ for none, −∞ where it depends on more."""
    return math.inf if not reach else float(scores[order[reach - 1]]) if reach <= len(order) else -math.inf


class _Spread:
    """Maximal marginal relevance."""

    def __init__(
        self, vectors: Callable[[list[int]], Floats], scores: Floats, order: list[int], limits: Limits
    ) -> None:
        self.vectors, self.scores, self.limits = vectors, scores, limits
        self.read: dict[int, Floats] = {}
        self.pool = order[: POOL * limits.n]
        best = scores[self.pool] if self.pool else np.zeros(1)
        self.lowest, self.span = float(best[-1]), float(best[0] - best[-1]) or 1.0

    def compose(self, draft: Draft) -> None:
        """Fill a list from the pool, and complete it by score."""
        draft.reach = POOL * self.limits.n
        taken = self._take(self.pool, draft)
        draft.compose()
        draft.places = taken if set(taken) == set(draft.places) else self._take(draft.places)

    def _take(self, places: list[int], draft: Draft | None = None) -> list[int]:
        """All of the candidates in the order in which they are taken; with a draft, those that it has room for."""
        if not places:
            return []
        strength = self.limits.diversity
        relevance = (1 - strength) * (self.scores[places] - self.lowest) / self.span
        vectors, taken = self._vectors(places), list[int]()
        nearest = np.full(len(places), -1.0)
        left = relevance.copy()
        for _ in places:
            at = int(left.argmax())
            place, relevance[at] = places[at], -np.inf
            if draft is None or self._room(draft, place):
                taken.append(place)
                np.maximum(nearest, vectors @ vectors[at], out=nearest)
            if len(taken) == self.limits.n:
                break
            left = relevance - strength * nearest if taken else relevance
        return taken

    def _vectors(self, places: list[int]) -> Floats:
        """Vectors of candidates; each is read once."""
        missing = [place for place in places if place not in self.read]
        if missing:
            self.read |= dict(zip(missing, self.vectors(missing), strict=True))
        return np.stack([self.read[place] for place in places])

    @staticmethod
    def _room(draft: Draft, place: int) -> bool:
        group = draft.full(place)
        if group is None:
            draft.add(place)
        else:
            draft.blocked[group].append(place)
        return group is None


def _difference(rule: str, before: list[int], after: list[int]) -> list[Effect]:
    """What a rule changed in a list."""
    old = {place: at for at, place in enumerate(before)}
    moved = [place for at, place in enumerate(after) if old.get(place, len(after)) > at]
    listed = set(after)
    return [Effect(rule, False, [place for place in before if place not in listed], moved)]

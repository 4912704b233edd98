"""Policies: what may be recommended, and the questions to a ranker that follow from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch

from abaca.errors import QueryError
from abaca.evaluation.ranker import padded
from abaca.histories import Ints
from abaca.nn.answers import Question
from abaca.types import Id, whole_number

REPEATS = ("auto", "exclude", "only")

Lists = tuple[Ints, Ints | None]
"""The excluded items and the candidates of one history, ascending; None where every item is a candidate."""


@dataclass(frozen=True)
class Policy:
    """What may be recommended; nothing here changes a probability."""

    n: int = 10
    """How many items."""
    repeats: str = "auto"
    """auto: as learned; exclude: no item of the history; only: nothing else."""
    max_repeat_share: float = 1.0
    """At most this share of the n may be items of the history."""
    exclude: Sequence[Id] = ()
    """Ids that may not be recommended; None for none."""
    candidates: Sequence[Id] | None = None
    """The only ids that may be recommended; None for the whole catalogue."""

    def __post_init__(self) -> None:
        n = whole_number(self.n)
        if n is None or n < 1:
            raise QueryError(f"n must be at least 1, a whole number, got {self.n!r}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "exclude", () if self.exclude is None else tuple(listed(self.exclude, "ids")))
        if self.candidates is not None:
            object.__setattr__(self, "candidates", tuple(listed(self.candidates, "ids")))
        if self.repeats not in REPEATS:
            raise QueryError(f"repeats must be one of {', '.join(REPEATS)}, got {self.repeats!r}")
        if not isinstance(self.max_repeat_share, Real) or not 0 <= self.max_repeat_share <= 1:
            raise QueryError(f"the largest share of repeats must be between 0 and 1, got {self.max_repeat_share!r}")

    @property
    def shape(self) -> tuple[Any, ...]:
        """What policies must share so that their histories can be answered together."""
        return self.n, self.repeats, self.max_repeat_share, self.candidates is None


class Chosen(NamedTuple):
    """An item that was chosen for a list."""

    item: int
    probability: float | None
    partition: str
    logit: float


@dataclass(frozen=True)
class Rules:
    """The policies of some histories in items; they are alike but for their lists."""

    policy: Policy
    excluded: list[Ints]
    candidates: list[Ints] | None

    @classmethod
    def of(cls, policy: Policy, lists: list[Lists]) -> "Rules":
        """The rules of histories that share everything of a policy but their lists."""
        candidates = [only for _, only in lists if only is not None]
        return cls(policy, [excluded for excluded, _ in lists], candidates if policy.candidates is not None else None)

    def take(self, rows: Ints) -> "Rules":
        """The rules of some of the histories."""
        candidates = None if self.candidates is None else [self.candidates[row] for row in rows]
        return replace(self, excluded=[self.excluded[row] for row in rows], candidates=candidates)

    @property
    def most_repeats(self) -> int:
        """How many of the n may be repeats."""
        return math.floor(self.policy.max_repeat_share * self.policy.n + 1e-9)

    def questions(self, owned: list[Ints], catalogue: int) -> list[Question]:
        """One question, or two where repeats are capped: the new items, the repeats."""
        if self.policy.repeats == "only":
            return [self._question(owned, catalogue, new=False)]
        if self.policy.repeats == "exclude" or self.most_repeats == 0:
            return [self._question(owned, catalogue, new=True)]
        if self.most_repeats < self.policy.n:
            return [self._question(owned, catalogue, new=new) for new in (True, False)]
        return [self._question(owned, catalogue, new=None)]

    def _question(self, owned: list[Ints], catalogue: int, new: bool | None) -> Question:
        banned, only = self.excluded, self.candidates
        if new:
            banned = [np.union1d(excluded, items) for excluded, items in zip(banned, owned, strict=True)]
        elif new is False:
            only = owned if only is None else [np.intersect1d(*pair) for pair in zip(owned, only, strict=True)]
        return Question(
            targets=torch.full((len(owned),), -1),
            n=self.policy.n,
            mass_of=padded(owned, catalogue),
            banned=padded(banned, catalogue),
            only=None if only is None else padded(only, catalogue),
        )

    def merge(self, lists: list[list[Chosen]]) -> list[Chosen]:
        """The best n; where repeats are capped, of the new items and the allowed number of repeats."""
        if self.policy.repeats == "only":
            return lists[0][: min(self.policy.n, self.most_repeats)]
        if len(lists) == 1:
            return lists[0][: self.policy.n]
        new, repeats = lists
        both = sorted(new + repeats[: self.most_repeats], key=lambda chosen: -chosen.logit)
        return both[: self.policy.n]

    def popular(self, row: int, by_popularity: Ints) -> list[Chosen]:
        """The first allowed items of a history, of the catalogue in the order of popularity."""
        n = 0 if self.policy.repeats == "only" else self.policy.n
        excluded = self.excluded[row]
        enough = n + len(excluded)
        only = None if self.candidates is None else np.isin(by_popularity, self.candidates[row])
        first = (by_popularity if only is None else by_popularity[only])[:enough]
        allowed = first[~np.isin(first, excluded)][:n]
        return [Chosen(item, None, "popular", -math.inf) for item in allowed.tolist()]


def listed(entries: Any, what: str) -> list[Any]:
    """A list, tuple, array or series as a list; one entry alone is refused."""
    if isinstance(entries, str | bytes):
        raise QueryError(f"expected a list of {what}, got the text {entries!r}; pass [{entries!r}]")
    try:
        return list(entries)
    except TypeError:
        raise QueryError(f"expected a list of {what}, got {entries!r}; pass [{entries!r}]") from None

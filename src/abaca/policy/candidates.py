"""What a ranker found for histories: the candidates of their lists."""

import math
from typing import NamedTuple

import numpy as np

from abaca.histories import Floats, Ints
from abaca.nn.answers import Answer


class Candidates(NamedTuple):
    """The candidates of several histories, best logit first; the logit of a slot without one is −∞."""

    items: Ints  # (B, K)
    logits: Floats  # (B, K)
    partitions: Ints  # (B, K)
    normaliser: Floats  # (B,)
    mass: Floats  # (B,)
    below: Floats  # (B,)
    """No other item has a higher logit; −∞ where there is no other."""
    special_below: Floats  # (A, B)
    """The same for the raised items and for those of floors, where there are some."""

    @classmethod
    def of(cls, answers: list[Answer], catalogue: int, *, complete: bool, surely: bool) -> "Candidates":
        """What answers hold; `surely` says that a row with fewer items than asked for has all there are."""
        logits = [answer.logits.numpy().astype(np.float64) for answer in answers]
        given = zip(logits, answers, strict=True)
        items = [np.where(part == -math.inf, catalogue, answer.items.numpy()) for part, answer in given]
        partitions = [answer.partitions.numpy() for answer in answers]
        below = np.stack([_below(part, complete=complete, surely=surely) for part in logits])
        best = items[0], logits[0], partitions[0]
        if len(answers) > 1:
            best = _merged(*(np.concatenate(part, axis=1) for part in (items, logits, partitions)))
        mass = answers[0].mass.clamp(0, 1).numpy()
        return cls(*best, answers[0].normaliser.numpy(), mass, below[0], below[1:])

    def take(self, rows: list[int]) -> "Candidates":
        """Those of some histories."""
        if len(rows) == len(self.items):
            return self
        best = self.items[rows], self.logits[rows], self.partitions[rows]
        return Candidates(*best, self.normaliser[rows], self.mass[rows], self.below[rows], self.special_below[:, rows])

    @property
    def known(self) -> Ints:
        """The items; a slot without one holds some item."""
        return np.where(self.logits == -math.inf, 0, self.items)

    def first(self, row: int, n: int) -> list[int]:
        """The places of the n best candidates of a history."""
        return list(range(min(n, int((self.logits[row] != -math.inf).sum()))))

    def repeat(self, row: int) -> float | None:
        """The probability of a repeat, where there is one."""
        mass = float(self.mass[row])
        return None if math.isnan(mass) else mass


def _below(logits: Floats, *, complete: bool, surely: bool) -> Floats:
    """The logit (B,) that no item which an answer does not hold exceeds."""
    if complete or not logits.shape[1]:
        return np.full(len(logits), -math.inf)
    count = (logits != -math.inf).sum(axis=1)
    last = np.where(count > 0, logits[np.arange(len(logits)), count - 1], math.inf)
    return np.where(surely & (count < logits.shape[1]), -math.inf, last)


def _merged(items: Ints, logits: Floats, partitions: Ints) -> tuple[Ints, Floats, Ints]:
    """Each item once, best logit first, ties by item."""
    items, logits, partitions = _ordered(items.argsort(axis=1, kind="stable"), items, logits, partitions)
    logits[:, 1:][items[:, 1:] == items[:, :-1]] = -math.inf
    return _ordered((-logits).argsort(axis=1, kind="stable"), items, logits, partitions)


def _ordered(order: Ints, items: Ints, logits: Floats, partitions: Ints) -> tuple[Ints, Floats, Ints]:
    """The columns of each row in an order (B, K)."""
    rows = np.arange(len(order))[:, None]
    return items[rows, order], logits[rows, order], partitions[rows, order]

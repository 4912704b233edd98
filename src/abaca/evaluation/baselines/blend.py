"""The blend: habits of the user's own history and rules counted from all users, mixed by four numbers.

    score(x) = λ · softmax of the history(a ln count − b ln since + d ln(1 + follow)) + (1 − λ) · rules(x) / Σ rules

An item occurred `count` times in the history, last `since` positions ago, and `follow` times right after the current
item. The rules are decayed, and each is divided by the square root of its source's count. λ, a, b and d are chosen on
validation targets.
"""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from abaca.data.sequences import Sequences
from abaca.evaluation.baselines.baseline import Baseline, Shortlist
from abaca.evaluation.baselines.personal import distinct, times_followed
from abaca.evaluation.baselines.rules import Rules, apply_rules, count_rules, summed
from abaca.evaluation.metrics import Bools, ndcg
from abaca.histories import Floats, Histories, Ints

CUTOFF = 10
"""The numbers are chosen by NDCG at this cutoff."""

SAMPLE = 5000
"""Validation targets that the numbers are chosen on, at most."""

LEAST = 100
"""With fewer validation targets the numbers keep their defaults."""

SWEEPS = 5
"""Rounds of the search over all numbers, at most."""

_ROWS = 256  # histories prepared at once


class Numbers(NamedTuple):
    """What the blend is mixed with."""

    history: float = 0.5  # λ, the share of the history
    often: float = 1.5  # a, the weight of the count
    recent: float = 0.5  # b, of the positions since the last occurrence
    follow: float = 2.0  # d, of having followed the current item


GRID: dict[str, tuple[float, ...]] = {
    "often": (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
    "recent": (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
    "follow": (0.0, 0.5, 1.0, 1.5, 2.0, 3.0),
    "history": (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0),
}
"""The values that are tried for each number; the share of the history last, for without one no other matters."""


class Blend(Baseline):
    """Habits of the history mixed with decayed sequential rules; its few numbers are chosen on validation targets."""

    name = "blend"
    fitted = True
    counted = (*Rules._fields, "numbers")
    starts: Ints
    followers: npt.NDArray[np.int32]
    strengths: Floats
    numbers: Floats  # (4,) the fields of `Numbers`

    def fit(self, sequences: Sequences, *, everything: bool = False) -> Self:
        """Count the rules and choose the numbers, which never see a held-out row that the rules were counted from."""
        super().fit(sequences, everything=everything)
        if everything:
            self.numbers = type(self)().fit(sequences).numbers
        else:
            self.numbers = np.array(choose(sequences, self._rules))
        return self

    @property
    def _rules(self) -> Rules:
        return Rules(self.starts, self.followers, self.strengths)

    def _learn(self, rows: Histories) -> None:
        self.starts, self.followers, self.strengths = count_rules(rows, self.popularity).by_root(self.popularity.counts)

    def _shortlist(self, histories: Histories) -> Shortlist:
        numbers, catalogue = Numbers(*self.numbers.tolist()), self.catalogue
        habits, rules = Habits.of(histories), _shares(apply_rules(self._rules, histories))
        keys = np.concatenate([part.rows * catalogue + part.items for part in (habits, rules)])
        parts = numbers.history * habits.shares(numbers), (1 - numbers.history) * rules.scores
        pairs, scores = summed(keys, np.concatenate(parts))
        listed = scores > 0
        return Shortlist(*np.divmod(pairs[listed], catalogue), scores[listed])


class Habits(NamedTuple):
    """The distinct items of several histories, one after another, and what the user did with them."""

    rows: Ints  # (P,) ascending
    items: Ints  # (P,)
    logs: Floats  # (P, 3) of count, since and 1 + follow

    @classmethod
    def of(cls, histories: Histories) -> "Habits":
        """The habits of each history."""
        seen = distinct(histories)
        columns = seen.counts, seen.since, 1 + times_followed(histories, seen)
        return cls(seen.rows, seen.items, np.log(np.stack(columns, axis=1)))

    def shares(self, numbers: Numbers) -> Floats:
        """The share of each item in its history (P,): a softmax."""
        logits = self.logs @ np.array([numbers.often, -numbers.recent, numbers.follow])
        first = np.flatnonzero(np.diff(self.rows, prepend=-1))
        if not len(first):
            return np.zeros(0)
        sizes = np.diff(first, append=len(logits))
        weights = np.exp(logits - np.repeat(np.maximum.reduceat(logits, first), sizes))
        return np.asarray(weights / np.repeat(np.add.reduceat(weights, first), sizes))


def _shares(rules: Shortlist) -> Shortlist:
    """The rules with scores that add up to one in every row."""
    return rules._replace(scores=rules.scores / np.bincount(rules.rows, rules.scores)[rules.rows])


class Held(NamedTuple):
    """What is needed of held-out targets to compute their gains for any numbers."""

    habits: Habits
    rules: Floats  # (P,) share of the rules of each item of a history
    hit: Bools  # (P,) the item is the target
    outside: Floats  # (T, CUTOFF + 1) the largest shares of items outside the history, −1 for none
    target: Floats  # (T,) share of a target outside the history; 0 for one inside

    def mean(self, numbers: Numbers) -> float:
        """The mean NDCG at the cutoff; a target without any score earns nothing, ties count against it."""
        rows, rest = self.habits.rows, 1 - numbers.history
        scores = np.round(numbers.history * self.habits.shares(numbers) + rest * self.rules, 9)
        others, own = np.round(rest * self.outside, 9), np.round(rest * self.target, 9)
        own[rows[self.hit]] = scores[self.hit]
        inside = np.bincount(rows[scores >= own[rows]], minlength=len(own))
        rank = inside + (others >= own[:, None]).sum(axis=1)  # counts the target itself
        return float(np.where(own > 0, ndcg(np.maximum(rank, 1), CUTOFF), 0.0).mean())


def choose(sequences: Sequences, rules: Rules) -> Numbers:
    """The numbers with the highest NDCG on validation targets: one after another is set to its best value in turn."""
    best, held = Numbers(), held_out(sequences, rules)
    if held is None:
        return best
    if not held.hit.any():
        return best._replace(history=0.0)  # nothing repeats
    found, before = held.mean(best), None
    for _ in range(SWEEPS):
        if best == before:
            break
        before = best
        for name, values in GRID.items():
            for value in values:
                tried = best._replace(**{name: value})
                gain = held.mean(tried)
                if gain > found:
                    best, found = tried, gain
    return best


def held_out(sequences: Sequences, rules: Rules) -> Held | None:
    """An even sample of the validation targets that can be ranked; None where they are too few."""
    catalogue, (users, positions) = len(rules.starts) - 1, sequences.valid
    targets = np.asarray(sequences.items[positions], dtype=np.int64)
    histories = sequences.histories(users, positions).known(catalogue)
    usable = np.flatnonzero((targets < catalogue) & (histories.lengths > 0))
    if len(usable) < LEAST:
        return None
    sample = usable[np.linspace(0, len(usable) - 1, min(SAMPLE, len(usable))).astype(np.int64)]
    parts = [
        _held(rules, histories.take(chosen), targets[chosen])
        for chosen in np.split(sample, np.arange(_ROWS, len(sample), _ROWS))
    ]
    habits = [part.habits._replace(rows=part.habits.rows + place * _ROWS) for place, part in enumerate(parts)]
    columns = [np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True)]
    return Held(Habits(*(np.concatenate(column) for column in zip(*habits, strict=True))), *columns)


def _held(rules: Rules, histories: Histories, targets: Ints) -> Held:
    """The same for some targets."""
    catalogue, habits, found = len(rules.starts) - 1, Habits.of(histories), _shares(apply_rules(rules, histories))
    own, keys = (part.rows * catalogue + part.items for part in (habits, found))
    inside = np.isin(keys, own)
    shares = np.zeros(len(own))
    shares[np.searchsorted(own, keys[inside])] = found.scores[inside]
    rows, items, scores = (part[~inside] for part in found)
    order = np.lexsort((-scores, rows))
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = place <= CUTOFF
    outside, target = np.full((len(targets), CUTOFF + 1), -1.0), np.zeros(len(targets))
    outside[rows[kept], place[kept]] = scores[order][kept]
    new = items == targets[rows]
    target[rows[new]] = scores[new]
    return Held(habits, shares, habits.items == targets[habits.rows], outside, target)

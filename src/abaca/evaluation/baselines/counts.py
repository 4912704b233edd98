"""Counts alone: the evidence of a model, fitted on the logarithm of popularity in the network's place."""

from collections.abc import Iterator
from typing import Self

import numpy as np
import torch

from abaca.data.sequences import Sequences
from abaca.evaluation.baselines.baseline import Baseline, Shortlist
from abaca.evaluation.ranker import BATCH, no_answer
from abaca.evidence.evidence import Evidence, Weights
from abaca.evidence.fit import fit
from abaca.evidence.habits import KINDS, Clock
from abaca.evidence.transitions import Transitions
from abaca.histories import Floats, Histories, Ints
from abaca.nn.answers import RULE, Answer, Question, answer
from abaca.nn.logits import Logits, Overrides, Scores
from abaca.nn.outputs.spec import EVIDENCE

LEAST = 20
"""With fewer validation targets nothing is fitted: popular items, and nothing else."""
WINDOW = 50


class CountsAlone(Baseline):
    """Habits and followers, fitted on validation targets, without a network; it has probabilities."""

    name = "counts alone"
    fitted = True
    reads_now = True
    counted = ("starts", "followers", "units", "clock", "fade", *KINDS)
    starts: Ints
    followers: np.ndarray
    units: Ints
    clock: Floats  # (2,) gap, and what a second is
    fade: Floats  # (1,)
    order: Floats  # the numbers of each kind of habits; none where it is not fitted
    times: Floats
    now: Floats

    def fit(self, sequences: Sequences, *, everything: bool = False) -> Self:
        """Count, and fit the numbers on validation targets; on everything they are those of a fit before it."""
        super().fit(sequences, everything=everything)
        if everything:
            before = type(self)().fit(sequences)
            self.fade, self.order, self.times, self.now = before.fade, before.order, before.times, before.now
            return self
        positions = np.asarray(sequences.valid.positions)
        targets = np.asarray(sequences.items[positions], dtype=np.int64)
        warm = np.flatnonzero(targets < self.catalogue)
        found: dict[str, Weights] = {}
        if len(warm) >= LEAST:
            histories = sequences.histories(sequences.valid.users[warm], positions[warm]).known(self.catalogue)
            usable = np.flatnonzero(histories.lengths)
            evidence = fit(self._evidence(), self._scored, histories.take(usable), targets[warm[usable]])
            found, self.fade = evidence.weights, np.array([evidence.fade])
        for kind in KINDS:
            setattr(self, kind, _numbers(found[kind]) if kind in found else np.zeros(0))
        return self

    def _learn(self, rows: Histories) -> None:
        transitions = Transitions.count(rows, self.catalogue)
        self.starts, self.followers, self.units = transitions.starts, transitions.followers, transitions.units
        self.clock = np.array(Clock.of(rows), dtype=np.float64)
        self.fade, self.order, self.times, self.now = np.ones(1), *(np.zeros(0) for _ in KINDS)

    def _evidence(self) -> Evidence:
        transitions = Transitions(self.starts, self.followers, self.units, self.popularity.counts)
        weights = {kind: _weights(getattr(self, kind)) for kind in KINDS if len(getattr(self, kind))}
        return Evidence(EVIDENCE, WINDOW, Clock(*self.clock.tolist()), transitions, weights, fade=float(self.fade[0]))

    def ask(self, histories: Histories, question: Question) -> Answer:
        """Rank the targets and give the best items, with their logits."""
        whole, evidence = no_answer(len(histories), question.n, self.catalogue), self._evidence()
        for numbers, scores in self._scored(histories):
            rows = torch.from_numpy(numbers)
            changed = evidence.apply(scores, histories.take(numbers)) if evidence.weights else scores
            for column, made in zip(whole, answer(changed, question.take(rows)), strict=True):
                column[rows] = made
        return whole._replace(partitions=torch.full_like(whole.partitions, RULE))

    def _scored(self, histories: Histories) -> Iterator[tuple[Ints, Scores]]:
        """The logarithm of popularity as a row of logits for each history: an item table with one dimension."""
        table = torch.from_numpy(np.log1p(self.popularity.counts)).float().unsqueeze(1)  # (V, 1)
        every = np.arange(len(histories))
        for start in range(0, len(every), BATCH):
            numbers = every[start : start + BATCH]
            none = torch.zeros(len(numbers), dtype=torch.int64)
            overrides = Overrides(torch.empty(1, 0, dtype=torch.int64), none, none, torch.empty(len(numbers), 0))
            yield numbers, Logits(torch.ones(len(numbers), 1, 1), table, (), overrides)

    def _shortlist(self, histories: Histories) -> Shortlist:
        raise NotImplementedError("it scores the whole catalogue")


def _numbers(weights: Weights) -> Floats:
    """Weights as one array: habits last."""
    values = {name: value for name, value in vars(weights).items() if name != "habits"}
    return np.array([*values.values(), *weights.habits])


def _weights(numbers: Floats) -> Weights:
    """The reverse of `_numbers`."""
    names = [name for name in vars(Weights()) if name != "habits"]
    values = numbers.tolist()
    return Weights(**dict(zip(names, values, strict=False)), habits=tuple(values[len(names) :]))

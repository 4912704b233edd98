"""The evidence of a trained network: counted in training rows, fitted on validation targets."""

import logging
from typing import Any

import numpy as np
import torch

from abaca.data.sequences import Sequences, Targets
from abaca.evaluation.evaluate import evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.evidence import Evidence
from abaca.evidence.fit import fitted, held
from abaca.evidence.habits import Clock
from abaca.evidence.transitions import Transitions
from abaca.nn.model import Model
from abaca.options import TrainingOptions

log = logging.getLogger(__name__)

FEWEST_TARGETS = 20
"""With fewer held-out targets nothing is fitted."""


@torch.no_grad()
def fit_evidence(
    model: Model,
    sequences: Sequences,
    options: TrainingOptions,
    before: Evidence | None = None,
    *,
    everything: bool = False,
) -> tuple[Evidence | None, dict[str, Any]]:
    """The evidence that the model's output layer names, and its figures: what validation says with it.

    On everything there are no held-out targets: the numbers of `before` are kept, and only counts are made again. The
    figure comes from two halves of the targets, each ranked with numbers that were fitted on the other.
    """
    parts = model.output.evidence
    if not parts:
        return None, {}
    rows = sequences.training(everything=everything)
    known = None if everything else sequences.counted
    counted = Evidence(
        parts,
        options.window,
        Clock.of(rows),
        Transitions.count(rows, model.catalogue) if known is None else Transitions(**known),
        {} if before is None else before.weights,
        sequences.types,
        1.0 if before is None else before.fade,
    )
    without: tuple[Evidence | None, dict[str, Any]] = (counted if counted.weights else None), {}
    if everything:
        return without
    ranker = ModelRanker(model, options.window)
    warm = np.asarray(sequences.items[sequences.valid.positions]) < model.catalogue
    users, positions = (np.asarray(part)[warm] for part in sequences.valid)
    if len(users) < FEWEST_TARGETS:
        return _too_few(without, len(users))
    items = np.asarray(sequences.items[positions], dtype=np.int64)
    read = held(counted, ranker.scored, sequences.histories(users, positions).known(ranker.catalogue), items)
    if len(read.numbers) < FEWEST_TARGETS:
        return _too_few(without, len(read.numbers))
    turn = np.random.default_rng(options.seed).permutation(len(users)) % 2
    gains = []
    for half in (0, 1):
        found = fitted(counted, read.take(turn[read.numbers] == half))
        other = Targets(users[turn != half], positions[turn != half])
        measured = evaluate(ModelRanker(model, options.window, evidence=found), sequences, other)
        gains.append(measured.gains(options.metric))
    figure = float(np.concatenate(gains).sum() / len(sequences.valid.users))
    return fitted(counted, read), {"with_evidence": figure}


def _too_few(without: tuple[Evidence | None, dict[str, Any]], targets: int) -> tuple[Evidence | None, dict[str, Any]]:
    """The outcome where nothing is fitted: the evidence of before, if there is some."""
    if without[0] is None:
        log.warning("evidence is left out: it needs %d validation targets, and there are %d", FEWEST_TARGETS, targets)
    return without

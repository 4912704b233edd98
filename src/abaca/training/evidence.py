"""The evidence of a trained network: counted in training rows, fitted on validation targets."""

import logging
from typing import Any

import numpy as np
import torch

from abaca.data.sequences import Sequences, Targets
from abaca.evaluation.evaluate import evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.evidence import Evidence
from abaca.evidence.fit import Held, choose_strength, fitted, held
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
    figure comes from two halves of the targets, each ranked with numbers that were fitted on the other; the strength of
    the penalty is that of all.
    """
    if not model.output.evidence:
        return None, {}
    counted = count_evidence(model, sequences, options, before, everything=everything)
    without: tuple[Evidence | None, dict[str, Any]] = (counted if counted.weights else None), {}
    if everything:
        return without
    known = known_targets(model, sequences)
    if len(known.users) < FEWEST_TARGETS:
        return _too_few(without, len(known.users))
    read = read_targets(counted, model, sequences, known, options.window)
    if len(read.numbers) < FEWEST_TARGETS:
        return _too_few(without, len(read.numbers))
    strength = choose_strength(read, counted.parts)
    turn = np.random.default_rng(options.seed).permutation(len(known.users)) % 2
    gains = []
    for half in (0, 1):
        found = fitted(counted, read.take(turn[read.numbers] == half), strength)
        other = Targets(known.users[turn != half], known.positions[turn != half])
        measured = evaluate(ModelRanker(model, options.window, evidence=found), sequences, other)
        gains.append(measured.gains(options.metric))
    figure = float(np.concatenate(gains).sum() / len(sequences.valid.users))
    return fitted(counted, read, strength), {"with_evidence": figure}


def count_evidence(
    model: Model, sequences: Sequences, options: TrainingOptions, before: Evidence | None, *, everything: bool = False
) -> Evidence:
    """What training rows say, with the numbers of `before`, if there are some."""
    rows = sequences.training(everything=everything)
    known = None if everything else sequences.counted
    return Evidence(
        model.output.evidence,
        options.window,
        Clock.of(rows),
        Transitions.count(rows, model.catalogue) if known is None else Transitions(**known),
        {} if before is None else before.weights,
        sequences.types,
        1.0 if before is None else before.fade,
    )


def known_targets(model: Model, sequences: Sequences) -> Targets:
    """The validation targets that the model can recommend."""
    warm = np.asarray(sequences.items[sequences.valid.positions]) < model.catalogue
    return Targets(*(np.asarray(part)[warm] for part in sequences.valid))


def read_targets(counted: Evidence, model: Model, sequences: Sequences, targets: Targets, window: int) -> Held:
    """What the fit reads."""
    ranker, items = ModelRanker(model, window), np.asarray(sequences.items[targets.positions], dtype=np.int64)
    return held(counted, ranker.scored, sequences.histories(*targets).known(ranker.catalogue), items)


def _too_few(without: tuple[Evidence | None, dict[str, Any]], targets: int) -> tuple[Evidence | None, dict[str, Any]]:
    """The outcome where nothing is fitted: the evidence of before, if there is some."""
    if without[0] is None:
        log.warning("evidence is left out: it needs %d validation targets, and there are %d", FEWEST_TARGETS, targets)
    return without

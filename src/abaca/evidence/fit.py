"""The fit of evidence: likelihood of held-out targets under a frozen network.

The strength of the penalty is the one with the best likelihood when each half of the targets is predicted from the
other. How soon histories fade is chosen before it, the share of followers after it.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from abaca.evidence.evidence import MOST_FOLLOWERS, Evidence
from abaca.evidence.followers import choose_fade, choose_followers
from abaca.evidence.habits import EDGES, KINDS, MOST_ITEMS
from abaca.evidence.likelihood import HABITS, as_weights, loss, maximise, start_of
from abaca.evidence.problem import Problem, Scored, problems
from abaca.histories import Bools, Histories, Ints

MOST_TARGETS = 20_000
"""Targets that are enough for a fit; of more, a fixed sample is taken."""
MOST_ENTRIES = 2_000_000
"""Items that a fit reads at most, over all targets: long histories need fewer targets."""
STRENGTHS = (1.0, 10.0, 100.0)
"""Of the penalty."""
FEWER_TARGETS = 3_000
"""Targets that are enough to choose the strength: with more of them it matters less."""


class Held(NamedTuple):
    """Held-out targets as a fit reads them, for each kind of habits that their histories allow."""

    numbers: Ints  # (N,) which targets they are, of those that were given
    problems: dict[str, Problem]
    fade: float = 1.0

    def take(self, chosen: Bools) -> "Held":
        """Only the targets of a mask (N,)."""
        taken = {kind: problem.take(chosen) for kind, problem in self.problems.items()}
        return Held(self.numbers[chosen], taken, self.fade)


def fit(evidence: Evidence, scored: Scored, histories: Histories, targets: Ints) -> Evidence:
    """Evidence with numbers fitted on held-out targets."""
    read = held(evidence, scored, histories, targets)
    return fitted(evidence, read, choose_strength(read, evidence.parts))


def held(evidence: Evidence, scored: Scored, histories: Histories, targets: Ints, seed: int = 0) -> Held:
    """What a fit reads of held-out targets, in one pass over the network; of many targets a sample is enough.

    Evidence that was fitted before keeps its fade.
    """
    per_target = MOST_FOLLOWERS + np.minimum(histories.lengths, MOST_ITEMS).mean() if len(histories) else 1
    enough, numbers = min(MOST_TARGETS, int(MOST_ENTRIES / per_target)), np.arange(len(targets))
    if len(targets) > enough:
        numbers = np.sort(np.random.default_rng(seed).choice(len(targets), enough, replace=False))
        histories, targets = histories.take(numbers), targets[numbers]
    kinds = list(KINDS)[: 1 + list(KINDS).index(evidence.clock.kind(histories))]
    if "followers" in evidence.parts and not evidence.weights:
        evidence = replace(evidence, fade=choose_fade(evidence.transitions, histories, targets))
    found = Held(numbers, problems(evidence, scored, histories, targets, kinds), evidence.fade)
    return found.take(np.isfinite(found.problems["order"].hit))  # without targets that the network excludes


def fitted(evidence: Evidence, targets: Held, strength: float) -> Evidence:
    """Evidence with numbers that suit held-out targets, for each kind of habits."""
    parts, order = evidence.parts, targets.problems["order"]
    theta, followers = maximise(order, parts, strength), None
    if "followers" in parts:
        theta, followers = choose_followers(order, parts, strength, theta)
    near = theta[: HABITS + sum(len(EDGES[name]) + 1 for name in KINDS["order"])]
    weights = {"order": theta} | {
        kind: maximise(problem, parts, strength, followers, near)
        for kind, problem in targets.problems.items()
        if kind != "order"
    }
    numbers = {kind: as_weights(found, parts) for kind, found in weights.items()}
    return replace(evidence, weights=numbers, fade=targets.fade)


def choose_strength(targets: Held, parts: tuple[str, ...]) -> float:
    """The strength of the penalty under which each half of the targets predicts the other half best."""
    problem = targets.problems["order"]
    number = np.arange(len(problem.hit))
    halves = [problem.take((number % 2 == turn) & (number < FEWER_TARGETS)) for turn in (0, 1)]
    across: list[float] = []
    fitted = [start_of(part) for part in halves]
    for strength in STRENGTHS:
        fitted = [maximise(part, parts, strength, start=start) for part, start in zip(halves, fitted, strict=True)]
        across.append(sum(loss(other, theta, parts)[0] for theta, other in zip(fitted, halves[::-1], strict=True)))
    return STRENGTHS[int(np.argmin(across))]

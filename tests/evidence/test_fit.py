"""The fit of evidence: its likelihood is the ranker's, its gradients are slopes, its choices rank new targets best."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.fit import fit
from abaca.evidence.followers import choose_fade, list_gains, new_gains
from abaca.evidence.habits import KINDS
from abaca.evidence.likelihood import HABITS, as_weights, loss, penalty
from abaca.evidence.problem import CUTOFF, NODES, Problem, problems
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.nn.outputs.spec import EVIDENCE

from .samples import ASKED, FADE, SIZES, V, every_logit, evidence, expected_logits, ranker, weights


def random_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    count = 5
    rows = np.sort(np.concatenate([np.arange(count), rng.integers(0, count, 30)]))
    own = np.flatnonzero(rng.random(len(rows)) < 0.5)
    first = np.cumsum([0, *SIZES[:-1]])
    buckets = np.stack([at + rng.integers(0, size, len(own)) for at, size in zip(first, SIZES, strict=True)], axis=1)
    entry = np.array([np.flatnonzero(rows == 0)[0], -1, np.flatnonzero(rows == 2)[-1], -1, -1])
    strength = rng.random(len(rows)) * (rng.random(len(rows)) < 0.7)
    logits, rest, hit = rng.normal(size=len(rows)), rng.normal(size=(count, NODES)) / 9, rng.normal(size=count)
    best = np.sort(rng.normal(size=(count, CUTOFF + 1)))[:, ::-1]
    return Problem(KINDS["order"], rows, own, buckets, strength, logits, rest, entry, hit, best)


@pytest.mark.parametrize("parts", [("habits",), ("followers",), EVIDENCE])
def test_gradients_are_the_slopes_of_the_likelihood(parts: tuple[str, ...]) -> None:
    problem, theta = random_problem(0), np.random.default_rng(1).normal(size=HABITS + sum(SIZES)) / 3

    def slopes(of: Any) -> np.ndarray:
        steps = 1e-6 * np.eye(len(theta))
        return np.array([(of(theta + step)[0] - of(theta - step)[0]) / 2e-6 for step in steps])

    np.testing.assert_allclose(loss(problem, theta, parts)[1], slopes(lambda at: loss(problem, at, parts)), atol=1e-6)
    np.testing.assert_allclose(penalty(theta, SIZES)[1], slopes(lambda at: penalty(at, SIZES)), atol=1e-6)


def test_the_fitted_likelihood_is_that_of_the_ranker() -> None:
    """What the fit minimises, from a few scales of the catalogue, is what the model then predicts."""
    plain, histories = ranker("softmax+CP", None), Histories.of(ASKED)
    targets = np.arange(len(ASKED)) % 20
    fitted = fit(evidence(), plain.scored, histories, targets)
    improved, before = (float(_likelihood(ranker("softmax+CP", given), histories, targets)) for given in (fitted, None))
    assert improved < before
    found = fitted.weights["order"]
    worse = dataclasses.replace(found, own=found.own + 2.0)
    other = dataclasses.replace(fitted, weights={"order": worse})
    assert improved < float(_likelihood(ranker("softmax+CP", other), histories, targets))


def _likelihood(of: ModelRanker, histories: Histories, targets: np.ndarray) -> torch.Tensor:
    nothing = torch.empty(len(histories), 0).long()
    asked = torch.from_numpy(targets)[:, None]
    found = of.ask(histories, Question(asked.squeeze(1), 1, asked, nothing))
    return -found.mass.log().sum()


def test_histories_fade_as_followers_rank_new_targets_best() -> None:
    """0 to 4 have one follower each, 10 to 19 a weaker one: an old item of the first counts if f is 0.5."""
    sure = [[item, item + 5] for item in range(5)] * 20
    weak = [[item, item + 20] for item in range(10, 20)] * 8 + [[item] for item in range(10, 20)] * 12
    transitions = Transitions.count(Histories.of(sure + weak), V)
    oldest = [[item, 10 + item, 12 + item, 14 + item] for item in range(5)]
    targets = np.arange(5) + 5
    assert choose_fade(transitions, Histories.of(oldest), targets) == 0.5
    assert choose_fade(transitions, Histories.of([row[::-1] for row in oldest]), targets) == 1.0
    assert choose_fade(transitions, Histories.of(oldest), np.arange(5)) == 1.0  # no new target


def test_a_further_fit_keeps_the_fade() -> None:
    plain, histories, targets = ranker("softmax", None), Histories.of(ASKED), np.arange(len(ASKED)) % V
    fresh = dataclasses.replace(evidence(), weights={})
    first = fit(fresh, plain.scored, histories, targets)
    assert first.fade == choose_fade(fresh.transitions, histories, targets) != FADE
    assert fit(evidence(), plain.scored, histories, targets).fade == FADE


@pytest.mark.parametrize("ratio", [0.0, 2.0])
def test_the_order_of_new_items_is_judged_by_the_rank_among_them(ratio: float) -> None:
    plain, histories = ranker("softmax+CP", None), Histories.of(ASKED)
    asked = enumerate(ASKED)
    new = np.array([next(x % V for x in range(7 * row, 7 * row + V) if x % V not in history) for row, history in asked])
    problem = problems(evidence(), plain.scored, histories, new, ["order"])["order"]
    order = np.concatenate([numbers for numbers, _ in plain.scored(histories)])
    given = dataclasses.replace(weights(), scale=1.0, followers=ratio, sharpness=5.0)
    final = expected_logits(every_logit(plain), given)
    expected = []
    for row in order:
        others = np.delete(final[row], sorted({*ASKED[row], new[row]}))
        ahead = int((others >= final[row, new[row]]).sum())
        expected.append(1 / np.log2(ahead + 2) if ahead < CUTOFF else 0.0)
    assert 0 < np.count_nonzero(expected) < len(expected)
    np.testing.assert_allclose(new_gains(problem, ratio, 5.0), expected)


def test_lists_are_judged_by_the_rank_among_all_items() -> None:
    plain, histories = ranker("softmax+CP", None), Histories.of(ASKED)
    targets = np.array([row[0] if number % 2 else (row[0] + 31) % V for number, row in enumerate(ASKED)])
    problem = problems(evidence(), plain.scored, histories, targets, ["order"])["order"]
    order = np.concatenate([numbers for numbers, _ in plain.scored(histories)])
    theta = np.random.default_rng(1).normal(size=HABITS + sum(SIZES)) / 3
    final = expected_logits(every_logit(plain), as_weights(theta, EVIDENCE))
    rank = (final >= final[np.arange(len(ASKED)), targets][:, None]).sum(axis=1)[order]
    expected = np.where(rank <= CUTOFF, 1 / np.log2(rank + 1), 0.0)
    assert 0 < np.count_nonzero(expected) < len(expected)
    np.testing.assert_allclose(list_gains(problem, theta, EVIDENCE), expected)

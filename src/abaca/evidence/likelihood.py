"""The likelihood of held-out targets as a function of the free numbers of evidence, and its maximum.

The penalty is a prior: small numbers, and neighbouring buckets alike.
"""

from dataclasses import replace

import numpy as np
import torch

from abaca.evidence.evidence import Weights
from abaca.evidence.habits import EDGES
from abaca.evidence.problem import HIGHEST, LOWEST, NODES, Problem
from abaca.histories import Floats

ROUNDS = 100
"""Iterations of L-BFGS at most."""

T, A, OWN, FOLLOWERS, OWN_FOLLOWERS, SHARPNESS, HABITS = range(7)
"""Places in the vector of free numbers: T by a tanh, log A, β, log a / T, a', log s, and then b."""
START = (0.0, 0.0, 0.0, -1.0, 0.0, 2.0)


def start_of(problem: Problem) -> Floats:
    """The numbers at which a fit begins."""
    return np.array([*START, *[0.0] * sum(_sizes(problem))])


def _sizes(problem: Problem) -> list[int]:
    """The number of buckets of each habit."""
    return [len(EDGES[name]) + 1 for name in problem.habits]


def maximise(
    problem: Problem,
    parts: tuple[str, ...],
    strength: float,
    followers: tuple[float, float] | None = None,
    start: Floats | None = None,
) -> Floats:
    """The numbers with the highest penalised likelihood, with given log a / T and log s if there are some.

    `start` has numbers that are near them; those of further habits begin at 0.
    """
    theta, sizes = torch.from_numpy(start_of(problem)), _sizes(problem)
    if start is not None:
        theta[: len(start)] = torch.from_numpy(start)
    fixed = [] if followers is None else [FOLLOWERS, SHARPNESS]
    theta[fixed] = torch.tensor(followers or (), dtype=torch.float64)
    theta.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [theta], max_iter=ROUNDS, history_size=30, tolerance_change=1e-5, line_search_fn="strong_wolfe"
    )
    targets = max(1, len(problem.hit))

    def closure() -> float:
        at = theta.detach().numpy()
        total, slope = loss(problem, at, parts)
        more, steeper = penalty(at, sizes)
        theta.grad = torch.from_numpy((slope + strength * steeper) / targets)
        theta.grad[fixed] = 0
        return (total + strength * more) / targets

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return theta.detach().numpy()


def loss(problem: Problem, theta: Floats, parts: tuple[str, ...]) -> tuple[float, Floats]:
    """Sum of −log P(target), and its gradient."""
    scaled = np.tanh(theta[T])
    final, gain = final_logits(problem, theta, parts)
    rest = problem.rest @ scaled ** np.arange(NODES)  # (N,)
    starts = np.searchsorted(problem.rows, np.arange(len(rest)))
    shift = np.maximum(rest, np.maximum.reduceat(final, starts))
    share, others = np.exp(final - shift[problem.rows]), np.exp(rest - shift)
    total = np.add.reduceat(share, starts) + others
    listed = problem.entry >= 0
    hit = np.where(listed, final[problem.entry], scale_of(theta) * problem.hit)
    value = float((np.log(total) + shift - hit).sum())
    share /= total[problem.rows]  # the gradient of each entry's logit
    share[problem.entry[listed]] -= 1
    slope = _gradient(problem, theta, parts, share, gain)
    bend = problem.rest[:, 1:] @ (np.arange(1, NODES) * scaled ** np.arange(NODES - 1))  # of the rest, by tanh
    half = (HIGHEST - LOWEST) / 2
    slope[T] += (others / total * bend).sum() - half * problem.hit[~listed].sum()
    slope[T] *= 1 - scaled**2
    return value, slope


def penalty(theta: Floats, sizes: list[int]) -> tuple[float, Floats]:
    """Σ 0.01 (θ − start)² + Σ (0.1 b² + (b_k − b_{k − 1})²), and its gradient."""
    slope = np.zeros_like(theta)
    apart = theta[:HABITS] - np.asarray(START)
    slope[:HABITS] = 0.02 * apart
    total = 0.01 * float((apart**2).sum())
    first = HABITS
    for size in sizes:
        row, steps = theta[first : first + size], np.diff(theta[first : first + size])
        total += 0.1 * float((row**2).sum()) + float((steps**2).sum())
        slope[first : first + size] = 0.2 * row
        slope[first + 1 : first + size] += 2 * steps
        slope[first : first + size - 1] -= 2 * steps
        first += size
    return total, slope


def final_logits(problem: Problem, theta: Floats, parts: tuple[str, ...]) -> tuple[Floats, Floats]:
    """The final logits of the entries (P,), and log(1 + s r)."""
    gain = np.log1p(np.exp(theta[SHARPNESS]) * problem.strength)
    final, own = scale_of(theta) * problem.logits, problem.own
    if "habits" in parts:
        final[own] = np.exp(theta[A]) * problem.logits[own] + theta[OWN]
        final[own] += theta[HABITS:][problem.codes].sum(axis=1)
    if "followers" in parts:
        weight = np.full(len(final), scale_of(theta) * np.exp(theta[FOLLOWERS]))
        weight[own] = theta[OWN_FOLLOWERS] if "habits" in parts else 0.0
        final += weight * gain
    return final, gain


def scale_of(theta: Floats) -> float:
    return float((LOWEST + HIGHEST) / 2 + (HIGHEST - LOWEST) / 2 * np.tanh(theta[T]))


def _gradient(problem: Problem, theta: Floats, parts: tuple[str, ...], share: Floats, gain: Floats) -> Floats:
    """The gradient of the free numbers, that of T by tanh, from the gradient of the entries' logits."""
    slope, own = np.zeros_like(theta), problem.own
    mine, product, turned = share[own], share * problem.logits, share * gain
    slope[T] = (HIGHEST - LOWEST) / 2 * product.sum()
    if "habits" in parts:
        slope[T] -= (HIGHEST - LOWEST) / 2 * product[own].sum()
        slope[A], slope[OWN] = np.exp(theta[A]) * product[own].sum(), mine.sum()
        for column in problem.codes.T:
            slope[HABITS:] += np.bincount(column, mine, minlength=len(theta) - HABITS)
    if "followers" in parts:
        ratio, s = np.exp(theta[FOLLOWERS]), np.exp(theta[SHARPNESS])
        a = scale_of(theta) * ratio
        own_a = theta[OWN_FOLLOWERS] if "habits" in parts else 0.0
        slope[FOLLOWERS] = a * (turned.sum() - turned[own].sum())
        slope[T] += (HIGHEST - LOWEST) / 2 * ratio * (turned.sum() - turned[own].sum())
        slope[OWN_FOLLOWERS] = turned[own].sum() if "habits" in parts else 0.0
        bend = share * s * problem.strength / (1 + s * problem.strength)
        slope[SHARPNESS] = a * (bend.sum() - bend[own].sum()) + own_a * bend[own].sum()
    return slope


def as_weights(theta: Floats, parts: tuple[str, ...]) -> Weights:
    """The numbers by name; those of a part that is not read are neutral."""
    scale, own_scale = float(scale_of(theta)), float(np.exp(theta[A]))
    found = Weights(scale, scale)
    if "habits" in parts:
        found = replace(found, own_scale=own_scale, own=float(theta[OWN]), habits=tuple(theta[HABITS:].tolist()))
    if "followers" in parts:
        own = float(theta[OWN_FOLLOWERS]) if "habits" in parts else 0.0
        found = replace(
            found,
            followers=scale * float(np.exp(theta[FOLLOWERS])),
            own_followers=own,
            sharpness=float(np.exp(theta[SHARPNESS])),
        )
    return found

"""From ranks to numbers: gains, their means with intervals, paired tests, calibration and what the lists are made of.

Everything starts from *gains*, one number per target, so that a mean, its interval and a paired test share them.
A user with several targets is resampled whole: the targets of one user are not independent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RESAMPLES = 1000
FLIPS = 2000
LEVEL = 0.95
_CELLS = 1 << 22  # numbers held at once while resampling: 32 MB


# Gains


def ndcg(rank: Ints, k: int) -> Floats:
    """Give 1 / log2(rank + 1) to each target up to rank k: NDCG with one relevant item."""
    return np.where(rank <= k, 1.0 / np.log2(rank + 1.0), 0.0)


def hr(rank: Ints, k: int) -> Floats:
    """Give 1 to each target up to rank k."""
    return np.where(rank <= k, 1.0, 0.0)


def mrr(rank: Ints, k: int) -> Floats:
    """Give 1 / rank to each target up to rank k."""
    return np.where(rank <= k, 1.0 / rank, 0.0)


GAINS: dict[str, Callable[[Ints, int], Floats]] = {"ndcg": ndcg, "hr": hr, "mrr": mrr}


def parse_metric(metric: str) -> tuple[str, int]:
    """Split `ndcg@10` into its name and its cutoff."""
    name, at, cutoff = metric.partition("@")
    if name not in GAINS or not at or not cutoff.isdecimal() or int(cutoff) < 1:
        raise ValueError(f"got metric {metric!r}, expected one of {', '.join(GAINS)} with a cutoff, such as ndcg@10")
    return name, int(cutoff)


def gains(rank: ArrayLike, metric: str) -> Floats:
    """Give each target what it earns under a metric such as `ndcg@10`; ranks (T,) count from 1."""
    name, k = parse_metric(metric)
    ranks = np.asarray(rank, dtype=np.int64)
    if ranks.size and ranks.min() < 1:
        raise ValueError(f"got rank {ranks.min()}, expected ranks from 1")
    return GAINS[name](ranks, k)


def gains_or_zero(rank: Ints, catalogue: int, metric: str) -> Floats:
    """The same; a rank after the last item's, which is that of a target that cannot be named, earns nothing."""
    return np.where(rank > catalogue, 0.0, gains(rank, metric))


# Means with intervals


@dataclass(frozen=True)
class Estimate:
    """A value and its bootstrap interval; all NaN where there was nothing to measure."""

    value: float
    low: float
    high: float


def totals_by_user(users: ArrayLike, columns: Sequence[ArrayLike]) -> Floats:
    """Sum each column (T,) over the targets of a user; one row per user, in ascending order."""
    _, index = np.unique(np.asarray(users), return_inverse=True)
    return np.stack([np.bincount(index, weights=np.asarray(column, dtype=np.float64)) for column in columns], axis=1)


def resampled_sums(totals: Floats, resamples: int, seed: int) -> Floats:
    """Draw as many rows of totals (U, C) as there are, with replacement, and sum them; (resamples, C)."""
    if resamples < 1:
        raise ValueError(f"got {resamples} resamples, expected at least 1")
    rows = len(totals)
    random = np.random.default_rng(seed)
    sums = np.empty((resamples, totals.shape[1]))
    step = max(1, _CELLS // max(1, rows))
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        drawn = [np.bincount(random.integers(max(1, rows), size=rows), minlength=rows) for _ in range(start, stop)]
        sums[start:stop] = np.stack(drawn).astype(np.float64) @ totals
    return sums


def _ratio(total: float, count: float, totals: Floats, counts: Floats, level: float) -> Estimate:
    """Put the percentile interval of resampled totals over resampled counts around their ratio."""
    drawn = counts > 0
    if not count or not drawn.any():
        return Estimate(np.nan, np.nan, np.nan)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(totals[drawn] / counts[drawn], [tail, 1.0 - tail])
    return Estimate(float(total / count), float(low), float(high))


def mean_estimates(
    columns: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    users: ArrayLike,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> list[list[Estimate]]:
    """Estimate the mean of every column (T,) over the targets of every mask (T,), from one resampling of the users.

    Returns one list per mask, with one estimate per column.
    """
    width = 1 + len(columns)
    values = [np.asarray(column, dtype=np.float64) for column in columns]
    chosen = [np.asarray(mask, dtype=np.float64) for mask in masks]
    totals = totals_by_user(users, [part for mask in chosen for part in (mask, *(value * mask for value in values))])
    sums = resampled_sums(totals, resamples, seed)
    whole = totals.sum(axis=0)
    return [
        [_ratio(whole[at + c], whole[at], sums[:, at + c], sums[:, at], level) for c in range(1, width)]
        for at in range(0, width * len(chosen), width)
    ]


def mean_estimate(
    values: ArrayLike,
    users: ArrayLike | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> Estimate:
    """Estimate the mean of values (T,); without users every target is its own."""
    column = np.asarray(values, dtype=np.float64)
    owners = np.arange(len(column)) if users is None else users
    return mean_estimates([column], [np.ones(len(column))], owners, resamples, seed, level)[0][0]


# Paired test


@dataclass(frozen=True)
class PairedTest:
    """The mean difference between two models on the same targets, and how surprising it is."""

    difference: Estimate
    p_value: float


def paired_test(
    a: ArrayLike, b: ArrayLike, users: ArrayLike | None = None, resamples: int = FLIPS, seed: int = 0
) -> PairedTest:
    """Compare gains a and b (T,) of the same targets: difference a − b, its interval and a two-sided p-value.

    The p-value is that of a sign-flip permutation test: if the models were equal, swapping them for a user would be
    as likely as not.
    """
    if np.shape(a) != np.shape(b):
        raise ValueError(f"got gains of shapes {np.shape(a)} and {np.shape(b)}, expected the same targets")
    difference = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    owners = np.arange(len(difference)) if users is None else users
    estimate = mean_estimate(difference, owners, resamples, seed)
    by_user = totals_by_user(owners, [difference])[:, 0]
    return PairedTest(estimate, _sign_flip_p_value(by_user, resamples, seed))


def _sign_flip_p_value(differences: Floats, flips: int, seed: int) -> float:
    """Give the share of random signs under which the sum is as far from 0 as it is."""
    moved = differences[differences != 0]  # a zero has no sign to flip
    observed = abs(moved.sum())
    slack = 1e-12 * np.abs(moved).sum()  # equal sums may differ in their last bits
    random = np.random.default_rng(seed)
    step = max(1, _CELLS // max(1, len(moved)))
    extreme = 0
    for start in range(0, flips, step):
        heads = random.integers(2, size=(min(step, flips - start), len(moved)), dtype=np.int8)
        flipped = 2.0 * (heads.astype(np.float64) @ moved) - moved.sum()
        extreme += int((np.abs(flipped) >= observed - slack).sum())
    return (1 + extreme) / (1 + flips)


# Calibration


@dataclass(frozen=True)
class ReliabilityBin:
    """The predictions between low and high: how many, their mean, and how often the outcome came."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class Calibration:
    """How well a predicted probability agrees with what happened."""

    count: int
    predicted: float
    observed: float
    ece: float
    brier: float
    bins: tuple[ReliabilityBin, ...]


def brier_score(probability: ArrayLike, outcome: ArrayLike) -> float:
    """Give the mean squared distance between the probability and the 0/1 outcome."""
    return float(np.mean((np.asarray(probability, np.float64) - np.asarray(outcome, np.float64)) ** 2))


def reliability_bins(probability: ArrayLike, outcome: ArrayLike, bins: int = 10) -> tuple[ReliabilityBin, ...]:
    """Sort predictions into bins of equal width; empty bins are left out."""
    p, o = np.asarray(probability, np.float64), np.asarray(outcome, np.float64)
    index = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(index, minlength=bins)
    predicted, observed = (np.bincount(index, weights=column, minlength=bins) for column in (p, o))
    return tuple(
        ReliabilityBin(b / bins, (b + 1) / bins, int(count[b]), predicted[b] / count[b], observed[b] / count[b])
        for b in np.flatnonzero(count).tolist()
    )


def expected_calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Give the mean over predictions of the gap between predicted and observed in their bin."""
    total = sum(b.count for b in bins)
    return float(sum(b.count * abs(b.predicted - b.observed) for b in bins) / total)


def calibration(probability: ArrayLike, outcome: ArrayLike, bins: int = 10) -> Calibration | None:
    """Hold predicted probabilities (T,) against 0/1 outcomes (T,); a NaN is no prediction; None if all are."""
    p, o = np.asarray(probability, np.float64), np.asarray(outcome, np.float64)
    known = ~np.isnan(p)
    p, o = p[known], o[known]
    if not len(p):
        return None
    if p.min() < -1e-5 or p.max() > 1 + 1e-5:  # a float32 sum of probabilities may pass 1 by a little
        raise ValueError(f"got probabilities from {p.min()} to {p.max()}, expected 0 to 1")
    p = np.clip(p, 0.0, 1.0)
    table = reliability_bins(p, o, bins)
    error = expected_calibration_error(table)
    return Calibration(len(p), float(p.mean()), float(o.mean()), error, brier_score(p, o), table)


# What the lists are made of


def coverage(top: ArrayLike, catalogue: int) -> float:
    """Give the share of the catalogue that is in at least one of the lists (T, n); −1 marks no item."""
    items = np.asarray(top)
    return len(np.unique(items[items >= 0])) / catalogue


def repeat_share(top: ArrayLike, repeats: ArrayLike) -> float:
    """Give the share of repeats (T, n) among the items of the lists (T, n); −1 marks no item."""
    there = np.asarray(top) >= 0
    return float(np.asarray(repeats, dtype=bool)[there].mean()) if there.any() else float("nan")


def geometric_mean(values: ArrayLike) -> float:
    """Give the geometric mean, as used over data sets; 0 if any value is."""
    numbers = np.asarray(values, dtype=np.float64)
    if not numbers.size or (numbers < 0).any() or np.isnan(numbers).any():
        raise ValueError(f"got {numbers.tolist()}, expected one or more numbers of at least 0")
    return float(np.exp(np.log(numbers).mean())) if (numbers > 0).all() else 0.0

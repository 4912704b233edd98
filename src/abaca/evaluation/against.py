"""What a model is held against: the baselines on the same targets, and the popularity of what it recommends."""

import copy
from dataclasses import dataclass

import numpy as np

from abaca.data.sequences import Sequences, Targets
from abaca.evaluation.baselines import BASELINES, Baseline
from abaca.evaluation.evaluate import Evaluation, evaluate
from abaca.evaluation.metrics import Floats


def evaluate_baselines(
    sequences: Sequences, targets: str, cutoffs: tuple[int, ...], now: bool = False
) -> list[Evaluation]:
    """Every baseline, counted in the training rows; with `now`, one that reads the time of each target gets it."""
    fitted = [make().fit(sequences) for make in BASELINES.values()]
    return [evaluate(each, sequences, targets, cutoffs, now=now and each.reads_now) for each in fitted]


def validate_baselines(sequences: Sequences, metric: str) -> dict[str, float]:
    """The mean of a metric over the validation targets, for each baseline; no target is one that it was fitted on.

    Of a baseline that is fitted on such targets, each half of them is ranked with the numbers of the other half.
    """
    return {name: float(_validated(make(), sequences, metric).mean()) for name, make in BASELINES.items()}


def _validated(baseline: Baseline, sequences: Sequences, metric: str) -> Floats:
    """The gains of the validation targets, in any order."""
    cutoffs = (int(metric.split("@")[1]),)
    if not baseline.fitted:
        return evaluate(baseline.fit(sequences), sequences, "valid", cutoffs).gains(metric)
    turn = np.random.default_rng(0).permutation(len(sequences.valid.users)) % 2
    halves = [Targets(*(part[turn == half] for part in sequences.valid)) for half in (0, 1)]
    gains = []
    for half, other in (halves, halves[::-1]):
        known = copy.copy(sequences)
        known.valid = half
        if len(other.users):
            gains.append(evaluate(baseline.fit(known), sequences, other, cutoffs).gains(metric))
    return np.concatenate(gains)


@dataclass(frozen=True)
class PopularityBias:
    """Mean popularity percentiles; the difference of the two is the bias."""

    recommended: float  # of the first k items of all lists
    targets: float  # of the targets, cold ones left out


def popularity_bias(result: Evaluation, sequences: Sequences, cutoff: int) -> PopularityBias:
    """Compare the popularity of recommended items with that of the targets."""
    percentiles = popularity_percentiles(sequences)
    top = result.top[:, :cutoff]
    means = [
        percentiles[items].mean() if len(items) else np.nan for items in (top[top >= 0], result.items[~result.cold])
    ]
    return PopularityBias(*map(float, means))


def popularity_percentiles(sequences: Sequences) -> Floats:
    """The share of the other items (V,) with fewer training interactions; an equal item counts half."""
    trained = sequences.training().items
    counts = np.bincount(trained[trained < sequences.catalogue.size], minlength=sequences.catalogue.size)
    ordered = np.sort(counts)
    fewer = np.searchsorted(ordered, counts, side="left")
    equal = np.searchsorted(ordered, counts, side="right") - fewer - 1  # the item aside
    return np.asarray((fewer + equal / 2) / max(len(counts) - 1, 1))

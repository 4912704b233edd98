"""What a model is held against: the simple rules on the same targets, and the popularity of what it recommends."""

from dataclasses import dataclass

import numpy as np

from abaca.data.sequences import Sequences
from abaca.evaluation.baselines import BASELINES
from abaca.evaluation.evaluate import Evaluation, evaluate
from abaca.evaluation.metrics import Floats


def evaluate_baselines(sequences: Sequences, targets: str, cutoffs: tuple[int, ...]) -> list[Evaluation]:
    """Every baseline, counted in the training rows."""
    return [evaluate(make().fit(sequences), sequences, targets, cutoffs) for make in BASELINES.values()]


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

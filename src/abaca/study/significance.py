"""Paired tests between the rows of a study, over users, on the mean gain of each target over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from abaca.evaluation import metrics
from abaca.evaluation.evaluate import Evaluation, Group, Shelf
from abaca.evaluation.metrics import Floats
from abaca.study.runs import METRICS

FLIPS_PER_ROW = 200
"""Permutations per row of an encoder: p < 0.01 stays possible after the correction for all rows."""
MARKS = ((0.01, "▲", "▼"), (0.05, "△", "▽"))


def compared(mine: Sequence[Evaluation], other: Sequence[Evaluation], rows: int) -> dict[str, Any]:
    """A paired test of two rows for each metric, over all targets; `rows` is how many p-values are corrected."""
    users = mine[0].users
    return {
        metric: asdict(metrics.paired_test(_gains(mine, metric), _gains(other, metric), users, _flips(rows)))
        for metric in METRICS
    }


def margin(mine: Sequence[Evaluation], best: Mapping[Group | Shelf, Evaluation], rows: int) -> dict[str, Any]:
    """A paired test of a row against the best baseline of each group, whose name and NDCG@10 stand beside."""
    found: dict[str, Any] = {}
    for group, baseline in best.items():
        mask = baseline.mask(group)
        gains = [_gains(results, METRICS[0], group)[mask] for results in (mine, [baseline])]
        test = metrics.paired_test(gains[0], gains[1], baseline.users[mask], _flips(rows))
        means = {"baseline": baseline.name, "count": int(mask.sum()), "value": float(gains[0].mean())}
        found[group] = {**means, **asdict(test)}
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for multiple comparisons by Holm's step-down procedure."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[at]))
        corrected[at] = largest
    return corrected


def mark(difference: float, p_value: float) -> str:
    """The mark of a significant difference; none where it is not."""
    return next((up if difference > 0 else down for level, up, down in MARKS if p_value < level), "")


def _gains(results: Sequence[Evaluation], metric: str, group: Group | Shelf = "all") -> Floats:
    """The mean gain of each target over seeds (T,)."""
    mean: Floats = np.mean([result.gains(metric, group) for result in results], axis=0)
    return mean


def _flips(rows: int) -> int:
    """More rows to correct for need finer p-values, hence more permutations."""
    return max(metrics.FLIPS, FLIPS_PER_ROW * rows)

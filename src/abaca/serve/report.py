"""Hit rates of models from feedback: enough to judge an A/B test.

Users are drawn at random, not items, so the items of one user are not independent. Rates are ratios of sums over users,
and their errors come from the spread between users (the delta method).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abaca.serve.feedback import UserCounts

Z = 1.959964
"""The 97.5 % quantile of the normal distribution: intervals of 95 %."""
LEAST_USERS = 2

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rate:
    """A rate with its interval of 95 %; the interval is None for fewer than two users."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ModelRates:
    """What was shown by a model and what came of it."""

    model: str
    users: int
    shown: int
    clicked: int
    bought: int
    click_rate: Rate
    buy_rate: Rate
    click_difference: Rate | None
    """The click rate minus that of the first model."""
    buy_difference: Rate | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def model_rates(counts: Sequence[UserCounts]) -> list[ModelRates]:
    """The rates of each model, the one with the most users first."""
    names = {one.model for one in counts}
    found = {name: np.array([one[2:] for one in counts if one.model == name], np.float64) for name in names}
    order = sorted(found, key=lambda name: (-len(found[name]), name))
    return [_rates(name, found[name], found[order[0]] if name != order[0] else None) for name in order]


def _rates(name: str, table: Floats, first: Floats | None) -> ModelRates:
    shown, clicked, bought = (int(total) for total in table.sum(0))
    click, buy = (_ratio(table[:, 0], table[:, column]) for column in (1, 2))
    differences: list[Rate | None] = [None, None]
    if first is not None:
        others = (_ratio(first[:, 0], first[:, column]) for column in (1, 2))
        differences = [
            _interval(own[0] - other[0], float(np.hypot(own[1], other[1])))
            for own, other in zip((click, buy), others, strict=True)
        ]
    rates = _interval(*click), _interval(*buy)
    return ModelRates(name, len(table), shown, clicked, bought, *rates, *differences)


def _ratio(shown: Floats, hits: Floats) -> tuple[float, float]:
    """The ratio of two sums over users, and its standard error; the error is NaN for fewer than two users."""
    rate = float(hits.sum() / shown.sum())
    if len(shown) < LEAST_USERS:
        return rate, float("nan")
    spread = np.var(hits - rate * shown, ddof=1)
    return rate, float(np.sqrt(spread / len(shown)) / shown.mean())


def _interval(value: float, error: float) -> Rate:
    if np.isnan(error):
        return Rate(value, None, None)
    return Rate(value, value - Z * error, value + Z * error)

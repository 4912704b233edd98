"""A time for training: how it is written, and how much of it is left."""

import re
import time

from abaca.errors import SpecError
from abaca.training.callbacks import Callback
from abaca.types import Record

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(budget: str) -> float:
    """The seconds of a time such as 90s, 20m or 1.5h."""
    written = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", budget.lower()) if isinstance(budget, str) else None
    if written is None or written[2] not in UNITS:
        raise SpecError(f"budget {budget!r} is not a time; write a number with its unit, such as 90s, 20m or 1.5h")
    seconds = float(written[1]) * UNITS[written[2]]
    if not seconds:
        raise SpecError(f"budget {budget!r} leaves no time; give more than 0s")
    return seconds


def seconds_of_epoch(record: Record) -> float:
    """The seconds of an epoch and of its validation."""
    return float(record["seconds"] + record.get("validation_seconds", 0.0))


class Clock:
    """Counts the time of a run, also of its part before an interruption."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds of the budget that are left; negative where it is overrun."""
        return self.seconds - self.spent

    def add(self, seconds: float) -> None:
        """Count time that was spent before."""
        self._began -= seconds


class Deadline(Callback):
    """Ends training after the epoch in which the time is over, but for a reserve for what follows the epochs.

    Where the reserve is not known, it is the time of an epoch.
    """

    def __init__(self, clock: Clock, reserve: float | None) -> None:
        self.clock, self.reserve = clock, reserve
        self.epoch = 0.0

    @property
    def stops(self) -> bool:
        reserve = self.epoch if self.reserve is None else self.reserve
        return self.clock.left <= reserve

    def on_epoch(self, record: Record) -> None:
        self.epoch = seconds_of_epoch(record)

"""What an engine gives, so that it can prepare a log.

An engine runs the few steps that read every interaction. The rules of preparing, in `prepare.py`, call these steps and
are the same for every engine: options, the fixed point of the filters, item numbers, splits and the manifest.
A second engine is a module with a class like `DuckDBEngine`, and a line of `ENGINES` in `prepare.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow

Ints = npt.NDArray[np.int64]
Role = Literal["user", "item"]


class Engine(Protocol):
    """The interactions of one log that are kept, at first none.

    Users and items have *codes*: the places of their ids, from 0, among all ids of the log in ascending order.
    The order of a user's interactions is by exact time, and at the same time by place in the log.
    """

    def latest(self) -> float | None:
        """The last time of the whole log; None without times."""

    def keep(self, events: Sequence[str] | None, since: float | None, until: float | None, *, single: bool) -> int:
        """Keep the interactions of these events with since ≤ time < until; how many have another event.

        With `single`, a time is only what single precision holds of it, in the order too.
        """

    def count(self) -> int:
        """How many interactions are kept."""

    def drop_consecutive(self) -> None:
        """Of a user's consecutive interactions with one item, keep the first."""

    def drop_rare(self, role: Role, least: int) -> None:
        """Drop the users, or the items, that have fewer than `least` interactions."""

    def span(self) -> tuple[float, float]:
        """The first and the last time of what is kept."""

    def time_at(self, place: int) -> float:
        """The time at a place, from 0, of all that is kept in the order of time."""

    def lengths(self, cuts: tuple[float, float] | None) -> tuple[Ints, Ints, Ints]:
        """Interactions of each user, users by code: all, before the first cut, before the second."""

    def ordered(self) -> Iterator[pyarrow.RecordBatch]:
        """Item codes and times of what is kept: users by code, each user's interactions in order."""

    def ids(self, role: Role) -> Iterator[pyarrow.RecordBatch]:
        """The ids of all items by code, or those of the users that are kept."""

    def close(self) -> None:
        """Free what preparing needed; the log stays."""

"""What an engine gives, so that it can prepare a log.

An engine runs the few steps that read every interaction. The rules in `prepare.py` call them.
They are the same for every engine: options, filters, item numbers, splits, manifest.
A second engine is one module with a class like `DuckDBEngine`, and one line of `ENGINES` there.
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

    A *code* is the place, from 0, of an id among all user or item ids of the log, ascending.
    The order of a user's interactions is by exact time, and at the same time by place in the log.
    """

    def latest(self) -> float | None:
        """The last time of the whole log; None without times."""

    def keep(
        self,
        events: Sequence[str] | None,
        since: float | None,
        until: float | None,
        *,
        single: bool,
        types: Sequence[str] = (),
    ) -> int:
        """Keep these events with since ≤ time < until; returns how many have another event.

        With `single`, times and their order are only what single precision holds of them. With `types`, the place of
        each event among them is kept too.
        """

    def count(self) -> int:
        """How many interactions are kept."""

    def drop_consecutive(self) -> None:
        """Of a user's consecutive interactions with one item, and of one type where types are kept, keep the first."""

    def drop_rare(self, role: Role, least: int) -> None:
        """Drop the users, or the items, that have fewer than `least` interactions."""

    def span(self) -> tuple[float, float]:
        """The first and the last time of what is kept."""

    def time_at(self, place: int) -> float:
        """The time at a place, from 0, of all that is kept in the order of time."""

    def lengths(self, cuts: tuple[float, float] | None) -> tuple[Ints, Ints, Ints]:
        """Interactions of each user, by code: all, before the first cut, before the second."""

    def ordered(self) -> Iterator[pyarrow.RecordBatch]:
        """Item codes, times and, where they are kept, types: users by code, each in order."""

    def ids(self, role: Role) -> Iterator[pyarrow.RecordBatch]:
        """The ids of all items by code, or those of the users that are kept."""

    def close(self) -> None:
        """Free what preparing needed; the log stays."""

"""Histories: what users did before a query. Ragged and whole, or as the rectangular windows that a model reads.

Rankers take `Histories`. A model reads `Windows`, which hold NumPy arrays in `data/` and tensors in
`nn/`. Times and the moment of the query are optional in both: an absent field is None.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Array = TypeVar("Array")


class Windows(NamedTuple, Generic[Array]):
    """A batch of windows: the last items of histories, oldest first, and where to predict."""

    items: Array  # (B, L), negative after the end
    positions: Array  # (B, T) where to predict: the last position that may be seen; negative for none
    times: Array | None = None  # (B, L) when each interaction happened, float64
    now: Array | None = None  # (B, T) the moment of each prediction, float64

    def map(self, change: Any) -> "Windows[Any]":
        """The same with every array changed, such as from NumPy to torch."""
        return Windows(*(None if part is None else change(part) for part in self))


@dataclass(frozen=True, eq=False)
class Histories:
    """Whole histories one after another, each with its oldest item first."""

    items: Ints  # (n,)
    offsets: Ints  # (B + 1,) history b is items[offsets[b]:offsets[b + 1]]
    times: Floats | None = None  # (n,) when each interaction happened
    now: Floats | None = None  # (B,) the moment of each query

    @classmethod
    def of(
        cls,
        items: Sequence[npt.ArrayLike],
        times: Sequence[npt.ArrayLike] | None = None,
        now: npt.ArrayLike | None = None,
    ) -> "Histories":
        """Histories from one array each."""
        parts = [np.asarray(history, dtype=np.int64) for history in items]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)]).astype(np.int64)
        flat = None if times is None else _flat([np.asarray(part, dtype=np.float64) for part in times], np.float64)
        if flat is not None and len(flat) != offsets[-1]:
            raise ValueError(f"got {len(flat)} times for {offsets[-1]} items, expected one each")
        return cls(_flat(parts, np.int64), offsets, flat, None if now is None else np.asarray(now, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> Ints:
        """The items of one history."""
        if not 0 <= number < len(self):
            raise IndexError(f"got history {number}, expected 0 to {len(self) - 1}")
        return self.items[self.offsets[number] : self.offsets[number + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[number] for number in range(len(self)))

    @property
    def lengths(self) -> Ints:
        """How many items each history has (B,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ints:
        """The history that each item belongs to (n,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, numbers: npt.NDArray[np.integer] | Sequence[int]) -> "Histories":
        """Only these histories, in this order."""
        chosen = np.asarray(numbers, dtype=np.int64)
        return stretches(self.items, self.offsets[chosen], self.offsets[chosen + 1], self.times, self.now, chosen)

    def known(self, catalogue: int) -> "Histories":
        """Without the items that a model of `catalogue` items does not know."""
        kept = (self.items >= 0) & (self.items < catalogue)
        if kept.all():
            return self
        offsets = np.concatenate([[0], np.cumsum(kept)])[self.offsets]
        return Histories(self.items[kept], offsets, None if self.times is None else self.times[kept], self.now)


def stretches(
    items: npt.NDArray[np.integer],
    begin: Ints,
    end: Ints,
    times: Floats | None = None,
    now: Floats | None = None,
    numbers: Ints | None = None,
) -> Histories:
    """Histories that are stretches of one array, items[begin[b]:end[b]]; `now` is given per query, or by number."""
    lengths = end - begin
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], lengths)
    moment = now if now is None or numbers is None else now[numbers]
    taken = np.asarray(items[places], dtype=np.int64)
    return Histories(taken, offsets, None if times is None else np.asarray(times[places], dtype=np.float64), moment)


def _flat(parts: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([*parts, np.zeros(0, dtype)]).astype(dtype)

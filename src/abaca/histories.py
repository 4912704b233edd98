"""Histories: what users did before a query. Ragged and whole, or as the rectangular windows that a model reads.

Rankers take `Histories`. A model reads `Windows`, which hold NumPy arrays in `data/` and tensors in
`nn/`. Times, the moment of the query and types of events are optional in both: an absent field is None.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from abaca.errors import QueryError

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
    types: Array | None = None  # (B, L) the number of each event's type, int64

    def map(self, change: Any) -> "Windows[Any]":
        """The same with every array changed, such as from NumPy to torch."""
        return Windows(*(None if part is None else change(part) for part in self))


class Flat(NamedTuple):
    """Interactions one after another."""

    items: npt.NDArray[np.integer]  # (n,)
    times: Floats | None = None  # (n,)
    types: npt.NDArray[np.integer] | None = None  # (n,)


@dataclass(frozen=True, eq=False)
class Histories:
    """Whole histories one after another, each with its oldest item first."""

    items: Ints  # (n,)
    offsets: Ints  # (B + 1,) history b is items[offsets[b]:offsets[b + 1]]
    times: Floats | None = None  # (n,) when each interaction happened
    now: Floats | None = None  # (B,) the moment of each query
    types: Ints | None = None  # (n,) the number of each event's type

    @classmethod
    def of(
        cls,
        items: Sequence[npt.ArrayLike],
        times: Sequence[npt.ArrayLike] | None = None,
        now: npt.ArrayLike | None = None,
        types: Sequence[npt.ArrayLike] | None = None,
    ) -> "Histories":
        """Histories from one array each."""
        parts = [np.asarray(history, dtype=np.int64) for history in items]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)]).astype(np.int64)
        beside = [
            None if given is None else _flat([np.asarray(part, dtype=dtype) for part in given], dtype)
            for given, dtype in ((times, np.float64), (types, np.int64))
        ]
        for name, flat in zip(("times", "types"), beside, strict=True):
            if flat is not None and len(flat) != offsets[-1]:
                raise ValueError(f"got {len(flat)} {name} for {offsets[-1]} items, expected one each")
        moments = None if now is None else np.asarray(now, dtype=np.float64)
        return cls(_flat(parts, np.int64), offsets, beside[0], moments, beside[1])

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
        now = None if self.now is None else self.now[chosen]
        return stretches(Flat(self.items, self.times, self.types), self.offsets[chosen], self.offsets[chosen + 1], now)

    def known(self, catalogue: int) -> "Histories":
        """Without the items that a model of `catalogue` items does not know."""
        return self._where((self.items >= 0) & (self.items < catalogue))

    def of_types(self, wanted: Sequence[int]) -> "Histories":
        """Only the events of some types."""
        assert self.types is not None
        return self._where(np.isin(self.types, np.asarray(wanted)))

    def _where(self, kept: Bools) -> "Histories":
        """Only the interactions of a mask (n,)."""
        if kept.all():
            return self
        offsets = np.concatenate([[0], np.cumsum(kept)])[self.offsets]
        times = None if self.times is None else self.times[kept]
        types = None if self.types is None else self.types[kept]
        return Histories(self.items[kept], offsets, times, self.now, types)


TypeNames = Sequence[Sequence[str | None] | None] | None
"""The types of the events of each history by name; None where they are not known."""

MOST_TYPES = 32
"""Types of events that are told apart at most."""


@dataclass(frozen=True)
class EventTypes:
    """The types of a log's events."""

    names: tuple[str, ...]
    """By number."""
    targets: tuple[int, ...]
    """The numbers of the types that are predicted."""
    usual: int
    """The most common type of those: what an event is where its type is not known."""

    @classmethod
    def of(cls, document: dict[str, Any]) -> "EventTypes":
        """Read it from a manifest or a model."""
        names = tuple(document["names"])
        return cls(names, tuple(map(names.index, document["targets"])), names.index(document["usual"]))

    def to_json(self) -> dict[str, Any]:
        """By names."""
        return {"names": list(self.names), "targets": list(self.target_names), "usual": self.names[self.usual]}

    @property
    def target_names(self) -> tuple[str, ...]:
        """The types that are predicted."""
        return tuple(self.names[number] for number in self.targets)

    @property
    def restricted(self) -> bool:
        """Whether some types are only read, never predicted."""
        return len(self.targets) < len(self.names)

    def numbers(self, names: Sequence[str | None]) -> Ints:
        """The numbers of types by name; None is the usual one."""
        unknown = [name for name in names if name is not None and name not in self.names]
        if unknown:
            raise QueryError(
                f"{unknown[0]!r} is no type of event that the model knows; it knows {', '.join(self.names)}"
            )
        return np.array([self.usual if name is None else self.names.index(name) for name in names], dtype=np.int64)

    def owned(self, histories: Histories) -> Histories:
        """The events that make their item a repeat: those of the types that are predicted."""
        return self.fill(histories).of_types(self.targets) if self.restricted else histories

    def fill(self, histories: Histories) -> Histories:
        """Histories with types; the usual one where none are known."""
        if histories.types is not None:
            return histories
        return replace(histories, types=np.full(len(histories.items), self.usual))


def stretches(flat: Flat, begin: Ints, end: Ints, now: Floats | None = None) -> Histories:
    """Histories that are stretches of flat arrays, items[begin[b]:end[b]]; `now` is given per query."""
    lengths = end - begin
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], lengths)
    times = None if flat.times is None else np.asarray(flat.times[places], dtype=np.float64)
    types = None if flat.types is None else np.asarray(flat.types[places], dtype=np.int64)
    return Histories(np.asarray(flat.items[places], dtype=np.int64), offsets, times, now, types)


def _flat(parts: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([*parts, np.zeros(0, dtype)]).astype(dtype)

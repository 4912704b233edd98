"""Columns of the item table as categories: the values of each item."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from abaca.data.catalogue import Catalogue
from abaca.display import plain
from abaca.errors import QueryError
from abaca.histories import Bools, Ints

COLD = "cold"


class Column:
    """The values of one column, compared as text; an item may have none, one, or a list of them."""

    def __init__(self, cells: list[Any]) -> None:
        numbers: dict[str, int] = {}
        found = [[numbers.setdefault(value, len(numbers)) for value in _values(cell)] for cell in cells]
        self.numbers = numbers
        """The number of each value."""
        self.size = len(numbers)
        self.codes: Ints = np.full((len(cells), max(map(len, found), default=0)), self.size)  # (V, W)
        for item, codes in enumerate(found):
            self.codes[item, : len(codes)] = codes
        order = self.codes.ravel().argsort(kind="stable")
        self._items = order // max(1, self.codes.shape[1])  # by value, ascending
        self._first = self.codes.ravel()[order].searchsorted(np.arange(self.size + 1))

    def having(self, codes: Ints) -> Ints:
        """The items with one of some values, ascending."""
        parts = [self._items[self._first[code] : self._first[code + 1]] for code in codes.tolist()]
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))

    @property
    def names(self) -> list[str]:
        """The values by number."""
        return list(self.numbers)


class Columns:
    """The columns of a catalogue, each read at its first use."""

    def __init__(self, catalogue: Catalogue, is_cold: Callable[[], Bools | None] = lambda: None) -> None:
        self.catalogue, self._is_cold = catalogue, is_cold
        self._read: dict[str, Column] = {}

    @cached_property
    def cold(self) -> Column:
        """A column with one value, which cold items have."""
        found = self._is_cold()
        if found is None:
            raise QueryError("min_cold needs a model with features, which know items that nobody has taken; train one")
        return Column([COLD if cold else None for cold in found.tolist()])

    def __getitem__(self, name: str) -> Column:
        if name not in self._read:
            cells = self.catalogue.columns.get(name)
            if cells is None:
                there = ", ".join(self.catalogue.columns) or "none; give an item table when training"
                raise QueryError(f"the item table of this model has no column {name!r}; it has {there}")
            self._read[name] = Column(cells[: self.catalogue.size])
        return self._read[name]


def _values(cell: Any) -> list[str]:
    """The values of a cell, each once; an empty cell has none."""
    value = plain(cell)
    entries = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(str(entry) for entry in entries if entry is not None and entry != ""))

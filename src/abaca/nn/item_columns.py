"""Columns of the item table as features: each item becomes a short list of features with weights.

    category    one feature per value                         text      one per bucket of hashed words and trigrams
    list        one per entry: a list, or text with "|"       number    one per tenth of the known values
                                                              vector    one per dimension, weighted by its value

The entries of a column have norm 1, whatever their number. What fewer than two items of training have is no feature:
it could only be learned by heart; such a tenth joins the next one. A missing value has no entries, nor has one that
training never saw; a number has one always.
"""

import math
import numbers
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from abaca.errors import SpecError
from abaca.histories import Floats, Ints

KINDS = ("category", "list", "number", "text", "vector")
BUCKETS = 1 << 16
"""Words and trigrams of a text column are hashed into this many features."""
FEWEST = 2
"""Items of training that have a feature, at least."""
TENTHS = np.arange(0.1, 0.95, 0.1)
WORD = re.compile(r"\w+")


class Entries(NamedTuple):
    """Items as rows of a sparse matrix: item x has `features[starts[x]:starts[x + 1]]` with their weights."""

    starts: Ints  # (V + 1,)
    features: Ints  # (n,)
    weights: Floats  # (n,)

    def followed_by(self, others: "Entries") -> "Entries":
        """The entries of these items and then of others."""
        starts = np.concatenate([self.starts, self.starts[-1] + others.starts[1:]])
        parts = zip(self[1:], others[1:], strict=True)
        return Entries(starts, *(np.concatenate(part) for part in parts))


@dataclass(frozen=True)
class ItemColumn:
    """One column of the item table and the features it was found to have in training."""

    name: str
    kind: str
    known: tuple[Any, ...]
    """Category, list: the values; text: the buckets; number: the inner borders of the tenths; vector: its scale."""
    width: int
    """How many features it has."""

    def entries(self, value: Any) -> tuple[list[int], list[float]]:
        """The features of a value, from 0, and their weights."""
        if _missing(value):
            return [], []
        if self.kind == "number":
            return [int(np.searchsorted(self.known, _number(self.name, value), side="right"))], [1.0]
        if self.kind == "vector":
            vector = _vector(self.name, value, self.width)
            return list(range(self.width)), [float(entry / self.known[0]) for entry in vector]
        keys = sorted({self._places[key] for key in _KEYS[self.kind](value) if key in self._places})
        return keys, [1 / math.sqrt(max(len(keys), 1))] * len(keys)

    def check(self) -> None:
        """Refuse a width that does not follow from what is known."""
        numbers = all(_is_number(value) for value in self.known)
        if self.kind == "vector":
            sound = numbers and len(self.known) == 1 and self.known[0] != 0
        else:
            sound = self.width == len(self.known) + (self.kind == "number") and (numbers or self.kind != "number")
        if not sound:
            raise ValueError(f"column '{self.name}' has {self.width} features, which its values do not give")

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {key: place for place, key in enumerate(self.known)}


@dataclass(frozen=True)
class ItemFeatures:
    """The features of items that a model has learned: saved with it, so that later items are described alike."""

    columns: tuple[ItemColumn, ...]

    @property
    def size(self) -> int:
        """F: the number of features."""
        return sum(column.width for column in self.columns)

    @classmethod
    def of(cls, wanted: str, table: Mapping[str, Sequence[Any]], warm: int) -> "ItemFeatures":
        """The features of columns such as "brand,price,title:text", found in the first `warm` items."""
        named = [part.strip() for part in wanted.split(",") if part.strip()]
        found = []
        for part in named:
            name, _, kind = part.partition(":") if part not in table else (part, "", "")
            if name not in table:
                known = ", ".join(table) or "none: pass the item table with `items`"
                raise SpecError(f"features: the item table has no column '{name}'; there are {known}")
            if kind and kind not in KINDS:
                raise SpecError(f"features: '{kind}' of column '{name}' is not one of {', '.join(KINDS)}")
            values = [value for value in table[name][:warm] if not _missing(value)]
            if not values:
                raise SpecError(f"features: column '{name}' has no values for the items of training; leave it out")
            found.append(_column(name, kind or kind_of(values), values))
        if not sum(column.width for column in found):
            raise SpecError(f"features: no value of {wanted} is shared by two items of training; name other columns")
        return cls(tuple(found))

    def entries(self, table: Mapping[str, Sequence[Any]], items: int) -> Entries:
        """The entries of all items of a table; a column that it lacks has none."""
        features, weights = [list[int]() for _ in range(items)], [list[float]() for _ in range(items)]
        first = 0
        for column in self.columns:
            for item, value in enumerate(table.get(column.name, ())):
                places, shares = column.entries(value)
                features[item] += [first + place for place in places]
                weights[item] += shares
            first += column.width
        starts = np.cumsum([0, *(len(row) for row in features)], dtype=np.int64)
        return Entries(
            starts,
            np.array([place for row in features for place in row], dtype=np.int64),
            np.array([share for row in weights for share in row], dtype=np.float64),
        )

    def to_json(self) -> list[dict[str, Any]]:
        """As in `model.json`."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, document: Iterable[Mapping[str, Any]]) -> "ItemFeatures":
        """The features that `to_json` described."""
        found = cls(tuple(ItemColumn(**{**column, "known": tuple(column["known"])}) for column in document))
        for column in found.columns:
            column.check()
        return found


def kind_of(values: Sequence[Any]) -> str:
    """The kind that the values of a column suggest."""
    if all(_is_sequence(value) for value in values):
        return "vector" if _are_vectors(values) else "list"
    if all(_is_number(value) for value in values):
        return "number"
    texts = [str(value) for value in values]
    if sum("|" in text for text in texts) > len(texts) / 10:
        return "list"
    several_words = sum(len(WORD.findall(text)) > 1 for text in texts) > len(texts) / 2
    return "text" if several_words and len(set(texts)) > len(texts) / 2 else "category"


def _are_vectors(values: Sequence[Sequence[Any]]) -> bool:
    """Lists of one length, of numbers that are not all whole; lists of whole numbers are lists of codes."""
    entries = [entry for value in values for entry in value]
    whole = all(isinstance(entry, numbers.Integral) for entry in entries)
    return len({len(value) for value in values}) == 1 and not whole and all(map(_is_number, entries))


def _column(name: str, kind: str, values: list[Any]) -> ItemColumn:
    if kind == "number":
        borders = _borders(np.sort([_number(name, value) for value in values]))
        return ItemColumn(name, kind, tuple(borders.tolist()), len(borders) + 1)
    if kind == "vector":
        width = len(values[0]) if _is_sequence(values[0]) else 0
        vectors = np.array([_vector(name, value, width) for value in values])
        return ItemColumn(name, kind, (float(np.sqrt((vectors**2).sum(1).mean())) or 1.0,), width)
    counts = Counter(key for value in values for key in set(_KEYS[kind](value)))
    known = tuple(sorted(key for key, count in counts.items() if count >= FEWEST))
    return ItemColumn(name, kind, known, len(known))


def _borders(ordered: Floats) -> Floats:
    """The borders between tenths of values, with at least `FEWEST` values on both sides of each."""
    kept, below = list[float](), 0
    for border in np.unique(np.quantile(ordered, TENTHS)):
        count = int(np.searchsorted(ordered, border))
        if min(count - below, len(ordered) - count) >= FEWEST:
            kept, below = [*kept, border], count
    return np.array(kept)


def _category(value: Any) -> list[str]:
    return [str(value)]


def _entries_of_list(value: Any) -> list[str]:
    parts = list(value) if _is_sequence(value) else str(value).split("|")
    return [str(part).strip() for part in parts if not _missing(part)]


def _buckets(value: Any) -> list[int]:
    """Buckets of the words of a text and of their trigrams."""
    keys = list[str]()
    for word in WORD.findall(str(value).casefold()):
        around = f"<{word}>"
        keys += [around, *(around[at : at + 3] for at in range(len(around) - 2) if len(word) > 1)]
    return [zlib.crc32(key.encode()) % BUCKETS for key in keys]


_KEYS: dict[str, Callable[[Any], list[Any]]] = {"category": _category, "list": _entries_of_list, "text": _buckets}


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str) and not value)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise SpecError(f"features: column '{name}' is one of numbers, got {value!r}; or name it '{name}:category'")
    return number


def _vector(name: str, value: Any, width: int) -> list[float]:
    entries = list(value) if _is_sequence(value) else []
    if not width or len(entries) != width or not all(_is_number(entry) and math.isfinite(entry) for entry in entries):
        raise SpecError(f"features: column '{name}' is one of vectors of {width} numbers, got {str(value)[:60]}")
    return [float(entry) for entry in entries]

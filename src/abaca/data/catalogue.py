"""The catalogue: the raw id of each item index, and the columns of the item table."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from abaca.display import plain
from abaca.errors import QueryError
from abaca.types import Id, whole_number

NAME_COLUMNS = ("title", "name", "product_name", "item_name", "description", "product")
"""Columns of an item table that hold the displayed name of an item; the first that exists is used."""

INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""How an integer of 64 bits is spelled: no sign, zero or blank that it does not need."""


class Catalogue:
    """Raw ids by item index, the cold ones last, with the other columns of the item table.

    `size` is V, the number of items that a model knows; later ids are cold, seen after training.
    """

    def __init__(
        self, ids: list[str] | list[int], size: int | None = None, columns: Mapping[str, list[Any]] | None = None
    ) -> None:
        self.ids: list[str] | list[int] = ids
        self.size = len(ids) if size is None else size
        self.columns: dict[str, list[Any]] = dict(columns or {})
        if not 0 <= self.size <= len(ids):
            raise ValueError(f"size {self.size} of a catalogue with {len(ids)} ids")
        for name, values in self.columns.items():
            if len(values) != len(ids):
                raise ValueError(f"column {name!r} has {len(values)} values for {len(ids)} ids")
        self._indices: dict[Id, int] | None = None
        self._names = _name_column(self.columns)

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Catalogue):
            return NotImplemented
        return (self.ids, self.size, self.columns) == (other.ids, other.size, other.columns)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Catalogue({self.size} items, {len(self.ids) - self.size} cold, columns {sorted(self.columns)})"

    def index(self, id: Id) -> int | None:
        """The item index of a raw id, cold items included; None where it is not known.

        It is looked up as given, then by its other spelling: 7 for "7", "7" for 7, not 7 for "007".
        """
        if self._indices is None:
            ids: Sequence[Id] = self.ids
            self._indices = {known: item for item, known in enumerate(ids)}
        found = self._indices.get(id)
        if found is None and (other := other_spelling(id)) is not None:
            found = self._indices.get(other)
        return found

    def name(self, item: int) -> str:
        """The displayed name of an item: its title if there is one, else its id."""
        if self._names is not None:
            title = self._names[item]
            if title is not None and str(title).strip():
                return str(title)
        return str(self.ids[item])

    def known(self) -> "Catalogue":
        """The same catalogue without its cold items: what a model keeps."""
        columns = {name: values[: self.size] for name, values in self.columns.items()}
        return Catalogue(self.ids[: self.size], self.size, columns)

    def to_json(self) -> dict[str, Any]:
        """Ids (text or integers, kept apart), size and columns as plain JSON values."""
        columns = {name: [plain(value) for value in values] for name, values in self.columns.items()}
        return {"ids": list(self.ids), "size": self.size, "columns": columns}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Catalogue":
        """The catalogue that `to_json` described."""
        return cls(list(document["ids"]), int(document["size"]), document.get("columns", {}))


def other_spelling(id: Id) -> Id | None:
    """The integer that a text spells, or the text of an integer; None for any other text."""
    if isinstance(id, str):
        return int(id) if INTEGER.fullmatch(id) else None
    return str(id) if abs(id) < 1 << 64 else None


def check_id(raw: Any) -> Id:
    """An id of any library's type as Python's own text or integer; all else is refused."""
    if isinstance(raw, str):
        return str(raw)
    if (number := whole_number(raw)) is not None:
        return number
    raise QueryError(f"an id is text or a whole number, got {raw!r}; recommend takes one history, a list of ids")


def _name_column(columns: dict[str, list[Any]]) -> list[Any] | None:
    by_lower = {name.lower(): values for name, values in reversed(columns.items())}
    return next((by_lower[name] for name in NAME_COLUMNS if name in by_lower), None)

"""One query of a file, and the contract of files of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from abaca.data.reading.values import IdKind
from abaca.types import Id


class Query(NamedTuple):
    """One history and whose it is."""

    key: Id
    ids: list[Id]
    times: list[float] | None = None
    """When each interaction happened, in the unit of the training log; None where it is not known."""
    exclude: list[Id] | None = None
    """Ids that may not be recommended to this user; None where the file has no such column."""
    candidates: list[Id] | None = None
    """The only ids that may be; None for all."""
    now: float | None = None
    """The moment of the query; None where it is not known."""
    rules: dict[str, Any] | None = None
    """Other rules of this query by name, as the cells of its row have them; None for none."""
    types: list[str | None] | None = None
    """The type of each event; None where they are not known."""


class Queries(Protocol):
    """Queries in an order that does not change from one reading to the next."""

    @property
    def key(self) -> str:
        """What names a query: its `user`, or its `row` (from 0) where lists come without users."""

    @property
    def key_kind(self) -> IdKind: ...

    @property
    def total(self) -> int:
        """How many queries there are."""

    @property
    def bad_rows(self) -> dict[str, int]:
        """Rows that were left out, by what was wrong with them."""

    def read(self, start: int) -> Iterator[Query]:
        """The queries from number `start` on."""

"""Events that the server stores: the SQL that both databases share, and the contract of a store.

An acknowledged event is on disk. Its id is unique, so sending it again changes nothing. A history is
in the order of time, whenever its events arrived; events of the same time are in the order of arrival.
What was erased stays away, whoever sends it again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from abaca.errors import BusyError, QueryError
from abaca.serve import erasure
from abaca.serve.layout import Run

PAGE = 50_000
"""Events that are read at once."""

TOUCH = ("UPDATE abaca_store SET version = version + 1", "UPDATE abaca_store SET version = version - 1")
"""In one transaction they change nothing, but are written and synced: they fail where a write would fail."""
ADD = 'INSERT INTO abaca_events (id, "user", item, time, type) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING'
HISTORY = 'SELECT item, time, type FROM abaca_events WHERE "user" = ? ORDER BY time DESC, place DESC LIMIT ?'
ALL = 'SELECT place, "user", item, time, type FROM abaca_events WHERE place > ? ORDER BY place LIMIT ?'
OF_USER = 'SELECT item, time, type FROM abaca_events WHERE "user" = ? AND place <= ? ORDER BY time, place'
USERS = """
WITH RECURSIVE found (name) AS (
  SELECT min("user") FROM abaca_events WHERE "user" > ?
  UNION ALL
  SELECT (SELECT min("user") FROM abaca_events WHERE "user" > found.name) FROM found WHERE name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL LIMIT ?
"""
"""One step of the index per user: a user's number of events does not matter."""


class Event(NamedTuple):
    """A user chose an item; ids are text here."""

    id: str
    user: str
    item: str
    time: float  # seconds since 1970
    type: str | None = None
    """Such as view or buy; None where the sender gave none."""


NOTHING = Event("", "", "", 0.0)
"""What is stored and taken back, to see that events can be stored."""


class Past(NamedTuple):
    """An item that a user chose, when, and how."""

    item: str
    time: float  # seconds since 1970
    type: str | None = None


class RefusedError(BusyError):
    """The database refuses a statement for its content; other statements may succeed."""


class Store(ABC):
    """A database of events; calls come from several threads. BusyError where it cannot be reached."""

    salt: str
    """The store's secret when it was opened, by which the audit names users; transactions read the current one."""
    seconds: float | None = None
    """Longest time of a call, where it differs from the default: reports take longer than requests."""

    @abstractmethod
    def add(self, batches: Sequence[Sequence[Sequence[Any]]], sql: str = ADD) -> list[int]:
        """Store batches in one transaction, on disk when this returns. The number of new rows of each batch."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    def _read(self, sql: str, *values: Any) -> list[Any]:
        """The rows of a query."""

    @abstractmethod
    def _transact(self, action: "Callable[[Run], int]") -> int:
        """The result of statements that are run in one transaction, alone among writers."""

    @abstractmethod
    def snapshot(self) -> "AbstractContextManager[Callable[[str], Iterator[Sequence[Any]]]]":
        """A function that reads queries, all as of one moment, while others write."""

    @abstractmethod
    def faults(self) -> list[str]:
        """What is damaged in the files, in words."""

    @abstractmethod
    def scrub(self) -> None:
        """Remove the bytes of deleted rows from the files, where the database can do that at once."""

    def add_each(self, batches: Sequence[Sequence[Event]]) -> list[int | Exception]:
        """Store batches in one transaction; where the database refuses one, each in its own, so the others succeed."""
        try:
            return list(self.add(batches))
        except (RefusedError, QueryError) as error:
            if len(batches) == 1:
                return [error]
            return [result for batch in batches for result in self.add_each([batch])]

    def since(self, place: int) -> list[tuple[int, str, Past]]:
        """Some events after a place in the order of arrival, with their places and users; none at the end."""
        return [(at, user, Past(*past)) for at, user, *past in self._read(ALL, place, PAGE)]

    def counted(self, user: str, place: int) -> list[Past]:
        """The events of a user up to a place in the order of arrival, oldest first."""
        return [Past(*row) for row in self._read(OF_USER, user, place)]

    def history(self, user: str, most: int) -> list[Past]:
        """The latest items of a user, oldest first."""
        return [Past(*row) for row in reversed(self._read(HISTORY, user, most))]

    def users(self, after: str, most: int) -> list[str]:
        """The users that follow a name, in the order of the database; "" for the first ones."""
        return [name for (name,) in self._read(USERS, after, most)]

    def all(self) -> Iterator[tuple[str, Past]]:
        """Every event, with its user, in the order of arrival; those that arrive meanwhile too."""
        last = -1
        while rows := self.since(last):
            yield from ((user, past) for _, user, past in rows)
            last = rows[-1][0]

    def forget(self, user: str, who: str = "") -> int:
        """Erase a user: events, feedback, and what the files still hold of them; the number of events."""
        deleted = self._transact(lambda run: erasure.erase(run, user, who))
        self.scrub()
        return deleted

    def prune(self, before: float, who: str = "") -> int:
        """Delete all events and feedback before a time; their number."""
        deleted = self._transact(lambda run: erasure.prune(run, before, who))
        self.scrub()
        return deleted

    def subject(self, user: str) -> str:
        """The digest by which the audit names a user."""
        return erasure.key_of(self.salt, "user", user)[:16]

    @abstractmethod
    def check(self) -> None:
        """Raise BusyError where events could not be stored now."""

"""Events that the server stores: the SQL that both databases share, and the contract of a store.

An acknowledged event is on disk. Its id is unique, so sending it again changes nothing. A history is
in the order of time, whenever its events arrived; events of the same time are in the order of arrival.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from abaca.errors import BusyError, QueryError, StoreError

VERSION = 1
"""Version of the tables; a store of another version is refused."""

PAGE = 50_000
"""Events that are read at once."""

TABLES = f"""
CREATE TABLE IF NOT EXISTS abaca_store (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS abaca_events (
  place {{number}} PRIMARY KEY{{numbered}},
  id TEXT NOT NULL UNIQUE,
  "user" TEXT NOT NULL,
  item TEXT NOT NULL,
  time DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS abaca_events_of_user ON abaca_events ("user", time, place);
CREATE TABLE IF NOT EXISTS abaca_feedback (
  place {{number}} PRIMARY KEY{{numbered}},
  id TEXT NOT NULL UNIQUE,
  "user" TEXT NOT NULL,
  item TEXT NOT NULL,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  time DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS abaca_feedback_of_user ON abaca_feedback ("user", item, kind, time);
INSERT INTO abaca_store SELECT {VERSION} WHERE NOT EXISTS (SELECT version FROM abaca_store);
"""
FIND_VERSION = "SELECT max(version) FROM abaca_store"
TOUCH = ("UPDATE abaca_store SET version = version + 1", "UPDATE abaca_store SET version = version - 1")
"""In one transaction they change nothing, but are written and synced: they fail where a write would fail."""
ADD = 'INSERT INTO abaca_events (id, "user", item, time) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING'
HISTORY = 'SELECT item, time FROM abaca_events WHERE "user" = ? ORDER BY time DESC, place DESC LIMIT ?'
ALL = 'SELECT place, "user", item, time FROM abaca_events WHERE place > ? ORDER BY place LIMIT ?'
OF_USER = 'SELECT item, time FROM abaca_events WHERE "user" = ? AND place <= ? ORDER BY time, place'
FORGET = 'DELETE FROM abaca_events WHERE "user" = ?'
FORGET_FEEDBACK = 'DELETE FROM abaca_feedback WHERE "user" = ?'
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


class Past(NamedTuple):
    """An item that a user chose, and when."""

    item: str
    time: float  # seconds since 1970


class RefusedError(BusyError):
    """The database refuses a statement for its content; other statements may succeed."""


class Store(ABC):
    """A database of events; calls come from several threads. BusyError where it cannot be reached."""

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
    def _change(self, sql: str, *values: Any) -> int:
        """The number of rows that a statement changed."""

    def add_each(self, batches: Sequence[Sequence[Event]]) -> list[int | Exception]:
        """Store batches in one transaction; where the database refuses one, each in its own, so the others succeed."""
        try:
            return list(self.add(batches))
        except (RefusedError, QueryError) as error:
            if len(batches) == 1:
                return [error]
            return [result for batch in batches for result in self.add_each([batch])]

    def since(self, place: int) -> list[tuple[int, str, str, float]]:
        """Some events after a place in the order of arrival: place, user, item, time; none at the end."""
        return self._read(ALL, place, PAGE)

    def counted(self, user: str, place: int) -> list[Past]:
        """The events of a user up to a place in the order of arrival, oldest first."""
        return [Past(*row) for row in self._read(OF_USER, user, place)]

    def history(self, user: str, most: int) -> list[Past]:
        """The latest items of a user, oldest first."""
        return [Past(*row) for row in reversed(self._read(HISTORY, user, most))]

    def users(self, after: str, most: int) -> list[str]:
        """The users that follow a name, in the order of the database; "" for the first ones."""
        return [name for (name,) in self._read(USERS, after, most)]

    def all(self) -> Iterator[tuple[str, str, float]]:
        """Every event, user, item and time, in the order of arrival; those that arrive meanwhile too."""
        last = -1
        while rows := self.since(last):
            yield from (row[1:] for row in rows)
            last = rows[-1][0]

    def forget(self, user: str) -> int:
        """Delete all events and all feedback of a user; the number of events."""
        self._change(FORGET_FEEDBACK, user)
        return self._change(FORGET, user)

    @abstractmethod
    def check(self) -> None:
        """Raise BusyError where events could not be stored now."""


def check_version(found: int | None, where: str) -> None:
    """Refuse tables of another version."""
    if found is not None and found != VERSION:
        raise StoreError(f"{where} has tables of version {found}, this release reads version {VERSION}; update abaca")

"""Events that the server stores: the SQL that both databases share, and the contract of a store.

An acknowledged event is on disk. Its id is unique, so sending it again changes nothing. A history is
in the order of time, whenever its events arrived; events of the same time are in the order of arrival.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from abaca.errors import StoreError

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
  time DOUBLE PRECISION NOT NULL,
  type TEXT
);
CREATE INDEX IF NOT EXISTS abaca_events_of_user ON abaca_events ("user", time, place);
INSERT INTO abaca_store SELECT {VERSION} WHERE NOT EXISTS (SELECT version FROM abaca_store);
"""
ADD_TYPE = "ALTER TABLE abaca_events ADD COLUMN type TEXT"
"""For tables of a release that kept no types; such a release reads and writes the new tables too."""
FIND_VERSION = "SELECT max(version) FROM abaca_store"
ADD = 'INSERT INTO abaca_events (id, "user", item, time, type) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING'
HISTORY = 'SELECT item, time, type FROM abaca_events WHERE "user" = ? ORDER BY time DESC, place DESC LIMIT ?'
ALL = 'SELECT place, "user", item, time, type FROM abaca_events WHERE place > ? ORDER BY place LIMIT ?'
FORGET = 'DELETE FROM abaca_events WHERE "user" = ?'
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


class Past(NamedTuple):
    """An item that a user chose, when, and how."""

    item: str
    time: float  # seconds since 1970
    type: str | None = None


class Store(ABC):
    """A database of events; calls come from several threads. BusyError where it cannot be reached."""

    @abstractmethod
    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Store batches in one transaction, on disk when this returns. The number of new events of each batch."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    def _read(self, sql: str, *values: Any) -> list[Any]:
        """The rows of a query."""

    @abstractmethod
    def _change(self, sql: str, *values: Any) -> int:
        """The number of rows that a statement changed."""

    def history(self, user: str, most: int) -> list[Past]:
        """The latest items of a user, oldest first."""
        return [Past(*row) for row in reversed(self._read(HISTORY, user, most))]

    def users(self, after: str, most: int) -> list[str]:
        """The users that follow a name, in the order of the database; "" for the first ones."""
        return [name for (name,) in self._read(USERS, after, most)]

    def all(self) -> Iterator[tuple[str, Past]]:
        """Every event, with its user, in the order of arrival; those that arrive meanwhile too."""
        last = -1
        while rows := self._read(ALL, last, PAGE):
            yield from ((row[1], Past(*row[2:])) for row in rows)
            last = rows[-1][0]

    def forget(self, user: str) -> int:
        """Delete all events of a user; their number."""
        return self._change(FORGET, user)

    def check(self) -> None:
        """Raise BusyError where the database cannot be reached."""
        self._read(FIND_VERSION)


def check_version(found: int | None, where: str) -> None:
    """Refuse tables of another version."""
    if found is not None and found != VERSION:
        raise StoreError(f"{where} has tables of version {found}, this release reads version {VERSION}; update abaca")

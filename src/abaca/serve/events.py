"""Events that the server remembers: what a store of them promises, and the tables that keep them.

An event that was acknowledged is on disk. Its id makes it unique, so that sending it again changes nothing. A user's
history is in the order of time, whenever its events arrived; events of the same time are in the order of arrival.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from abaca.errors import StoreError

VERSION = 1
"""Of the tables; a store of another version is refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS abaca_store (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS abaca_events (
  place {number} PRIMARY KEY{numbered},
  id TEXT NOT NULL UNIQUE,
  "user" TEXT NOT NULL,
  item TEXT NOT NULL,
  time DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS abaca_events_of_user ON abaca_events ("user", time, place);
"""
ADD = 'INSERT INTO abaca_events (id, "user", item, time) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING'
HISTORY = 'SELECT item FROM abaca_events WHERE "user" = ? ORDER BY time DESC, place DESC LIMIT ?'
FORGET = 'DELETE FROM abaca_events WHERE "user" = ?'


class Event(NamedTuple):
    """A user chose an item; ids are text here."""

    id: str
    user: str
    item: str
    time: float  # seconds since 1970


class Store(Protocol):
    """What every database must do; calls come from several threads."""

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Remember batches in one transaction; when it returns they are on disk. How many of each were new."""

    def history(self, user: str, most: int) -> list[str]:
        """The latest items of a user, oldest first."""

    def forget(self, user: str) -> int:
        """Delete all of a user; how many events there were."""

    def check(self) -> None:
        """Raise BusyError where the database cannot be asked."""

    def close(self) -> None:
        """Let go of the database."""


def check_version(found: int | None, where: str) -> None:
    """Refuse tables of another version."""
    if found is not None and found != VERSION:
        raise StoreError(f"{where} has tables of version {found}, this release reads version {VERSION}; update abaca")

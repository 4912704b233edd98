"""Events in a SQLite file."""

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from abaca.errors import BusyError, StoreError
from abaca.serve.events import ADD, FORGET, HISTORY, TABLES, VERSION, Event, check_version

SECONDS = 5.0
"""How long to wait for another process that writes."""

Result = TypeVar("Result")


class SqliteStore:
    """One connection writes and one reads, each behind a lock; write-ahead log, synced at every commit."""

    def __init__(self, path: Path) -> None:
        self._write, self._read = threading.Lock(), threading.Lock()
        try:
            self._writer = self._connect(path)
            self._make_tables(str(path))
            self._reader = self._connect(path)
        except sqlite3.Error as error:
            raise StoreError(
                f"{path} cannot be opened as a store ({error}); give a file that can be written"
            ) from error

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Remember batches in one transaction."""
        return _try(self._write, lambda: self._add(batches))

    def _add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        with self._writer:  # commits, or takes everything back
            self._writer.execute("BEGIN IMMEDIATE")
            return [self._writer.executemany(ADD, events).rowcount for events in batches]

    def history(self, user: str, most: int) -> list[str]:
        """The latest items of a user, oldest first."""
        rows = _try(self._read, lambda: self._reader.execute(HISTORY, (user, most)).fetchall())
        return [item for (item,) in reversed(rows)]

    def forget(self, user: str) -> int:
        """Delete all of a user."""
        return _try(self._write, lambda: self._forget(user))

    def _forget(self, user: str) -> int:
        with self._writer:
            return self._writer.execute(FORGET, (user,)).rowcount

    def check(self) -> None:
        """Ask for anything."""
        _try(self._read, lambda: self._reader.execute("SELECT version FROM abaca_store").fetchall())

    def close(self) -> None:
        """Close the file."""
        with self._write, self._read:
            self._reader.close()
            self._writer.close()

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=SECONDS, isolation_level=None, check_same_thread=False)
        log_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _make_tables(self, where: str) -> None:
        script = TABLES.format(number="INTEGER", numbered=" AUTOINCREMENT")
        with closing(self._writer.cursor()) as cursor:
            cursor.executescript(f"BEGIN IMMEDIATE; {script} COMMIT;")
            cursor.execute(
                f"INSERT INTO abaca_store SELECT {VERSION} WHERE NOT EXISTS (SELECT version FROM abaca_store)"
            )
            check_version(cursor.execute("SELECT max(version) FROM abaca_store").fetchone()[0], where)


def log_ahead(connection: sqlite3.Connection) -> None:
    """Write ahead; SQLite itself does not wait where another process is just changing a new file to that."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _try(lock: threading.Lock, action: Callable[[], Result]) -> Result:
    with lock:
        try:
            return action()
        except sqlite3.OperationalError as error:
            raise BusyError(f"the store cannot be used now ({error})") from error

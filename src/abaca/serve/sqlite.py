"""Events in a SQLite file."""

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from abaca.errors import BusyError, StoreError
from abaca.serve.events import ADD, ADD_TYPE, FIND_VERSION, TABLES, Event, Store, check_version

SECONDS = 5.0
"""Longest wait for another process that writes."""

Result = TypeVar("Result")


class SqliteStore(Store):
    """One connection writes and one reads, each behind a lock; write-ahead log, synced at every commit."""

    def __init__(self, path: Path) -> None:
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        try:
            self._writer = self._connect(path)
            self._make_tables(str(path))
            self._reader = self._connect(path)
        except sqlite3.Error as error:
            raise StoreError(
                f"{path} cannot be opened as a store ({error}); give a file that can be written"
            ) from error

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Store batches in one transaction."""
        return _try(self._write_lock, lambda: self._add(batches))

    def _add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        with self._writer:  # commits, or rolls back
            self._writer.execute("BEGIN IMMEDIATE")
            return [self._writer.executemany(ADD, events).rowcount for events in batches]

    def _read(self, sql: str, *values: Any) -> list[Any]:
        return _try(self._read_lock, lambda: self._reader.execute(sql, values).fetchall())

    def _change(self, sql: str, *values: Any) -> int:
        return _try(self._write_lock, lambda: self._writer.execute(sql, values).rowcount)

    def close(self) -> None:
        """Close the file."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=SECONDS, isolation_level=None, check_same_thread=False)
        use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _make_tables(self, where: str) -> None:
        script = TABLES.format(number="INTEGER", numbered=" AUTOINCREMENT")
        with closing(self._writer.cursor()) as cursor:
            cursor.executescript(f"BEGIN IMMEDIATE; {script}")
            if "type" not in [column[1] for column in cursor.execute("PRAGMA table_info(abaca_events)")]:
                cursor.execute(ADD_TYPE)
            cursor.execute("COMMIT")
            check_version(cursor.execute(FIND_VERSION).fetchone()[0], where)


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite itself does not wait for another process that switches a new file."""
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

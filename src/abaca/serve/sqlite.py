"""Events in a SQLite file."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from abaca.errors import BusyError, QueryError, StoreError
from abaca.serve.erasure import without_erased
from abaca.serve.events import ADD, NOTHING, TOUCH, RefusedError, Store
from abaca.serve.layout import Run, make_layout

SECONDS = 5.0
"""Longest wait for another process that writes."""

NUMBERED = "INTEGER", " AUTOINCREMENT"
"""How SQLite numbers rows."""
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class SqliteStore(Store):
    """One connection writes and one reads, each behind a lock; write-ahead log, synced at every commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        try:
            self._writer = self._connect(path)
            self.salt = self._in_transaction(lambda run: make_layout(run, str(path), *NUMBERED))
            self._reader = self._connect(path)
            self._files = SameFiles(path, Path(f"{path}-wal"))
        except sqlite3.Error as error:
            raise StoreError(
                f"{path} cannot be opened as a store ({error}); give a file that can be written"
            ) from error

    def add(self, batches: Sequence[Sequence[Sequence[Any]]], sql: str = ADD) -> list[int]:
        """Store batches in one transaction."""
        return self._write(lambda: self._add(batches, sql))

    def _add(self, batches: Sequence[Sequence[Sequence[Any]]], sql: str) -> list[int]:
        return self._in_transaction(
            lambda run: [
                self._writer.executemany(sql, rows).rowcount if rows else 0 for rows in without_erased(run, batches)
            ]
        )

    def _in_transaction(self, action: Callable[[Run], Result]) -> Result:
        with self._writer:  # commits, or rolls back
            self._writer.execute("BEGIN IMMEDIATE")
            return action(lambda sql, *values: self._writer.execute(sql, values))

    def _transact(self, action: Callable[[Run], int]) -> int:
        return self._write(lambda: self._in_transaction(action))

    def scrub(self) -> None:
        """Move the write-ahead log into the file, whose deleted rows are overwritten with zeros, and empty it."""
        if self._write(self._checkpoint):
            logger.warning("%s-wal may hold deleted rows until the other processes that read it end", self.path)

    def _checkpoint(self) -> bool:
        """Whether another process kept the write-ahead log from being emptied."""
        with self._read_lock:
            return bool(self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])

    @contextmanager
    def snapshot(self) -> Iterator[Callable[[str], Iterator[Sequence[Any]]]]:
        """A function that reads queries as of one moment."""
        with closing(self._connect(self.path)) as connection:
            try:
                connection.execute("BEGIN")
                yield connection.execute
            except sqlite3.Error as error:
                raise BusyError(f"the store cannot be read ({error}); `abaca store check` looks for damage") from error

    def faults(self) -> list[str]:
        """What SQLite finds wrong with the file."""
        try:
            found = [str(row[0]) for row in self._read("PRAGMA integrity_check(20)")]
        except RefusedError as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def _read(self, sql: str, *values: Any) -> list[Any]:
        return _try(self._read_lock, lambda: self._reader.execute(sql, values).fetchall())

    def _write(self, action: Callable[[], Result]) -> Result:
        """Write, and make sure that it went into the files that carry the store's name."""
        self._files.check()
        result = _try(self._write_lock, action)
        self._files.check()
        return result

    def check(self) -> None:
        """Raise BusyError where events could not be stored now: a row is written and taken back, another is synced."""
        self._write(self._try_writing)

    def _try_writing(self) -> None:
        with self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.execute("SAVEPOINT tried")
            self._writer.execute(ADD, NOTHING)
            self._writer.execute("ROLLBACK TO tried")
            for sql in TOUCH:
                self._writer.execute(sql)

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
        connection.execute("PRAGMA secure_delete = ON")
        return connection


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


class SameFiles:
    """Knows files by their inodes: a file that was moved or deleted can be written on, but nobody would find it."""

    def __init__(self, *paths: Path) -> None:
        self._known = {path: _inode(path) for path in paths}

    def check(self) -> None:
        """Raise BusyError where a name no longer leads to the file that is open."""
        for path, inode in self._known.items():
            found = _inode(path)
            if inode is None:
                self._known[path] = found
            elif found != inode:
                raise BusyError(f"{path} was moved, deleted or replaced; move it back, or restart the server")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _try(lock: threading.Lock, action: Callable[[], Result]) -> Result:
    if not lock.acquire(timeout=SECONDS):
        raise BusyError("the store is busy: others wait for it")
    try:
        return action()
    except (sqlite3.DataError, UnicodeError, OverflowError) as error:
        raise QueryError(f"the store cannot take this ({error})") from error
    except (sqlite3.OperationalError, sqlite3.InternalError) as error:
        raise BusyError(f"the store cannot be used now ({error})") from error
    except sqlite3.Error as error:
        raise RefusedError(f"the store cannot be used now ({error})") from error
    finally:
        lock.release()

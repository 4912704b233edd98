"""Connections to PostgreSQL, each call within a limit of time.

libpq waits for an answer without a limit. A thread therefore shuts the socket of a call that is late; the call then
fails as if the server had closed the connection. A database that is frozen, or behind a network that drops
everything, cannot hold a thread for longer. Connections are made by the call that needs one, so a database that is
back is used by the next call.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from abaca.errors import BusyError

TICK = 0.1
"""Seconds between two looks at running calls."""
CONNECT_SECONDS = 2
"""Longest time of one attempt to connect."""
IDLE_SECONDS = 30
"""The database ends a transaction that sends nothing for this time: its client has vanished, and others wait for it."""
PREPARE = """
SELECT set_config('lock_timeout', %s, false), set_config('idle_in_transaction_session_timeout', %s, false),
  set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
    ELSE current_setting('synchronous_commit') END, false)
"""
"""What is set once for each connection. A commit is on disk, whatever the default of the database."""

Connection = psycopg.Connection[Any]


class Pool:
    """At most `most` connections; closing it ends calls that are running."""

    def __init__(self, address: str, most: int, lock_seconds: float) -> None:
        self.address, self.lock_seconds = address, lock_seconds
        """`lock_seconds` is how long a statement waits for a lock, also where its client is gone."""
        self._room = threading.BoundedSemaphore(most)
        self._idle: list[Connection] = []
        self._running: dict[Connection, float] = {}
        self._wake = threading.Condition()
        self._closed = False
        threading.Thread(target=self._watch, name="abaca-store-limit", daemon=True).start()

    @contextlib.contextmanager
    def connection(self, until: float) -> Iterator[Connection]:
        """A connection in a transaction, until a moment of the monotonic clock."""
        if not self._room.acquire(timeout=max(until - time.monotonic(), 0)):
            raise BusyError("the store is busy: all connections to its database are in use")
        try:
            connection = self._idle_one() or self._connect(until)
            try:
                with self._limited(connection, until), connection.transaction():
                    yield connection
            finally:
                self._keep(connection)
        finally:
            self._room.release()

    def close(self) -> None:
        """Close every connection, also those in use."""
        with self._wake:
            self._closed = True
            for connection in self._running:
                _shut(connection)
            self._wake.notify()
        self.drop_idle()

    def _keep(self, connection: Connection) -> None:
        """Keep a connection for the next call, unless it is broken."""
        usable = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
        if usable and not self._closed:
            self._idle.append(connection)
        else:
            _end(connection)

    def _idle_one(self) -> Connection | None:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        return None

    def drop_idle(self) -> None:
        """Forget idle connections: one was broken, so the others may be."""
        while (connection := self._idle_one()) is not None:
            _end(connection)

    def _connect(self, until: float) -> Connection:
        if self._closed:
            raise BusyError("the store is closed")
        seconds = max(1, min(CONNECT_SECONDS, int(until - time.monotonic())))
        connection = psycopg.connect(self.address, connect_timeout=seconds, autocommit=True, client_encoding="utf8")
        try:
            with self._limited(connection, until):
                connection.execute(PREPARE, (f"{self.lock_seconds * 1000:.0f}", f"{IDLE_SECONDS * 1000}"))
        except BaseException:
            _end(connection)
            raise
        return connection

    @contextlib.contextmanager
    def _limited(self, connection: Connection, until: float) -> Iterator[None]:
        with self._wake:
            self._running[connection] = until
            self._wake.notify()
        try:
            yield
        finally:
            with self._wake:
                del self._running[connection]

    def _watch(self) -> None:
        while not self._closed:
            with self._wake:
                self._wake.wait_for(lambda: self._running or self._closed)
                now = time.monotonic()
                for connection, until in self._running.items():
                    if now > until:
                        _shut(connection)
            time.sleep(TICK)


def _shut(connection: Connection) -> None:
    """End a connection under a call of another thread, which then fails."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as handle:
        handle.shutdown(socket.SHUT_RDWR)


def _end(connection: Connection) -> None:
    with contextlib.suppress(Exception):
        connection.close()

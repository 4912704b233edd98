"""Events in a PostgreSQL database."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool

from abaca.errors import BusyError, StoreError
from abaca.serve.events import ADD, FORGET, HISTORY, TABLES, VERSION, Event, check_version

SECONDS = 8.0
"""How long to try again when the database went away."""

LOCK = 0x61626163
"""Servers that start at the same time make the tables one after another."""

Connection = psycopg.Connection[Any]
Result = TypeVar("Result")


class PostgresStore:
    """A small pool of connections; what fails because a connection broke is tried again: ids make that safe."""

    def __init__(self, address: str) -> None:
        try:
            with psycopg.connect(address, connect_timeout=10) as connection:
                self._make_tables(connection)
        except psycopg.Error as error:
            said = str(error).strip().splitlines()[0]
            raise StoreError(f"the PostgreSQL store cannot be opened ({said}); check --store") from error
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            address, min_size=1, max_size=4, check=ConnectionPool.check_connection, open=True, name="abaca-store"
        )

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Remember batches in one transaction."""
        return self._try(lambda connection: _add(connection, batches))

    def history(self, user: str, most: int) -> list[str]:
        """The latest items of a user, oldest first."""
        rows = self._try(lambda connection: connection.execute(_sql(HISTORY), (user, most)).fetchall())
        return [item for (item,) in reversed(rows)]

    def forget(self, user: str) -> int:
        """Delete all of a user."""
        return self._try(lambda connection: connection.execute(_sql(FORGET), (user,)).rowcount)

    def check(self) -> None:
        """Ask for anything, without patience."""
        self._try(lambda connection: connection.execute("SELECT version FROM abaca_store").fetchone(), seconds=1)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _try(self, action: Callable[[Connection], Result], seconds: float = SECONDS) -> Result:
        until = time.monotonic() + seconds
        while True:
            try:
                with self._pool.connection(timeout=max(until - time.monotonic(), 0.1)) as connection:
                    return action(connection)
            except psycopg.OperationalError as error:
                if time.monotonic() > until:
                    raise BusyError("the store's database cannot be reached") from error
                time.sleep(0.05)

    @staticmethod
    def _make_tables(connection: Connection) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        connection.execute(_sql(TABLES.format(number="BIGINT GENERATED ALWAYS AS IDENTITY", numbered="")))
        connection.execute(
            _sql(f"INSERT INTO abaca_store SELECT {VERSION} WHERE NOT EXISTS (SELECT version FROM abaca_store)")
        )
        row = connection.execute("SELECT max(version) FROM abaca_store").fetchone()
        check_version(row[0] if row else None, "the PostgreSQL store")


def _add(connection: Connection, batches: Sequence[Sequence[Event]]) -> list[int]:
    counts = []
    with connection.cursor() as cursor:
        for events in batches:
            cursor.executemany(_sql(ADD), events)
            counts.append(cursor.rowcount)
    return counts


def _sql(text: str) -> str:
    """The store's own SQL with PostgreSQL's sign for a parameter; nothing of a request is ever in it."""
    return text.replace("?", "%s")

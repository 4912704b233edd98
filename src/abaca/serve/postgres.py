"""Events in a PostgreSQL database."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool

from abaca.errors import BusyError, StoreError
from abaca.serve.events import ADD, ADD_TYPE, FIND_VERSION, TABLES, Event, Store, check_version

SECONDS = 8.0
"""Longest time of trying again when the database cannot be reached."""

LOCK = 0x61626163
"""Servers that start at the same time make the tables one after another."""

Connection = psycopg.Connection[Any]
Result = TypeVar("Result")


class PostgresStore(Store):
    """A small pool of connections. A call whose connection broke is tried again: ids of events make that safe."""

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
        """Store batches in one transaction."""
        return self._try(lambda connection: _add(connection, batches))

    def _read(self, sql: str, *values: Any) -> list[Any]:
        return self._try(lambda connection: connection.execute(_sql(sql), values).fetchall())

    def _change(self, sql: str, *values: Any) -> int:
        return self._try(lambda connection: connection.execute(_sql(sql), values).rowcount)

    def check(self) -> None:
        """Raise BusyError where the database cannot be reached within a second."""
        self._try(lambda connection: connection.execute(FIND_VERSION).fetchone(), seconds=1)

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
        connection.execute(ADD_TYPE.replace("COLUMN", "COLUMN IF NOT EXISTS"))
        row = connection.execute(FIND_VERSION).fetchone()
        check_version(row[0] if row else None, "the PostgreSQL store")


def _add(connection: Connection, batches: Sequence[Sequence[Event]]) -> list[int]:
    counts = []
    with connection.cursor() as cursor:
        for events in batches:
            cursor.executemany(_sql(ADD), events)
            counts.append(cursor.rowcount)
    return counts


def _sql(text: str) -> str:
    """SQL with PostgreSQL's sign for a parameter; it never holds anything of a request."""
    return text.replace("?", "%s")

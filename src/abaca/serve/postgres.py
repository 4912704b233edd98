"""Events in a PostgreSQL database."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg

from abaca.errors import BusyError, QueryError, StoreError
from abaca.serve.erasure import without_erased
from abaca.serve.events import ADD, NOTHING, PAGE, TOUCH, RefusedError, Store
from abaca.serve.layout import Run, make_layout
from abaca.serve.pool import Connection, Pool

SECONDS = 8.0
"""Longest time of a call, with all that is tried again when the database cannot be reached."""
START_SECONDS = 30.0
"""Longest time to open the store: another server may be making the tables."""
CHECK_SECONDS = 2.0
PAUSE = 0.05
MOST_CONNECTIONS = 4
TOO_LARGE = "54"
"""The class of errors for what exceeds a limit of PostgreSQL, such as the size of a row of an index."""

LOCK, LOCK_OF_WRITERS = 0x61626163, 0x61626164
"""Servers that start at the same time make the tables one after another. Transactions with events wait for each other
too, so that events are numbered in the order in which they become visible: servers that learn follow that number."""

Result = TypeVar("Result")


class PostgresStore(Store):
    """A small pool of connections. A call whose connection broke is tried again: ids of events make that safe."""

    def __init__(self, address: str, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._pool = Pool(address, MOST_CONNECTIONS, seconds or SECONDS)
        try:
            with self._pool.connection(time.monotonic() + START_SECONDS) as connection:
                _check_encoding(connection)
                self.salt = self._make_tables(connection)
        except psycopg.Error as error:
            self._pool.close()
            raise StoreError(f"the PostgreSQL store cannot be opened ({_said(error)}); check --store") from error
        except StoreError:
            self._pool.close()
            raise

    def add(self, batches: Sequence[Sequence[Sequence[Any]]], sql: str = ADD) -> list[int]:
        """Store batches in one transaction."""
        return self._try(lambda connection: _add(connection, batches, sql))

    def _read(self, sql: str, *values: Any) -> list[Any]:
        return self._try(lambda connection: connection.execute(_sql(sql), values).fetchall())

    def _transact(self, action: Callable[[Run], int]) -> int:
        return self._try(lambda connection: action(_alone(connection)))

    @contextmanager
    def snapshot(self) -> Iterator[Callable[[str], Iterator[Sequence[Any]]]]:
        """A function that reads queries as of one moment."""

        def rows(sql: str) -> Iterator[Sequence[Any]]:
            with connection.cursor(name="abaca_snapshot") as cursor:
                cursor.itersize = PAGE
                yield from cursor.execute(_sql(sql))

        try:
            with psycopg.connect(self._pool.address, client_encoding="utf8") as connection:
                connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
                yield rows
        except psycopg.Error as error:
            raise BusyError(f"the store's database cannot be read ({_said(error)})") from error

    def scrub(self) -> None:
        """Nothing: a server cannot wait for a vacuum. PostgreSQL makes one by itself, the command line at once."""

    def faults(self) -> list[str]:
        """Nothing: PostgreSQL reports damage when it reads it, which counting all rows does."""
        return []

    def vacuum(self) -> None:
        """Take deleted rows out of the tables; what is left of their bytes is overwritten by later rows."""
        try:
            with psycopg.connect(self._pool.address, autocommit=True) as connection:
                connection.execute("VACUUM abaca_events, abaca_feedback")
        except psycopg.Error as error:
            raise BusyError(f"the rows are deleted, but a vacuum failed ({_said(error)})") from error

    def check(self) -> None:
        """Raise BusyError where the database cannot be written, soon."""
        self._try(_check, CHECK_SECONDS)

    def close(self) -> None:
        """Close the connections; calls that are running fail."""
        self._pool.close()

    def _try(self, action: Callable[[Connection], Result], seconds: float | None = None) -> Result:
        until = time.monotonic() + (seconds or self.seconds or SECONDS)
        while True:
            try:
                with self._pool.connection(until) as connection:
                    return action(connection)
            except (psycopg.DataError, UnicodeError) as error:
                raise QueryError(f"the store's database cannot take this ({_said(error)})") from error
            except psycopg.OperationalError as error:
                if error.sqlstate is not None and error.sqlstate.startswith(TOO_LARGE):
                    raise QueryError(f"the store's database cannot take this ({_said(error)})") from error
                if error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P")):
                    raise BusyError(f"the store's database cannot be used now ({_said(error)})") from error
                self._pool.drop_idle()
                if time.monotonic() + PAUSE > until:
                    raise BusyError("the store's database cannot be reached") from error
                time.sleep(PAUSE)
            except psycopg.Error as error:
                raise RefusedError(f"the store's database refuses this now ({_said(error)})") from error

    @staticmethod
    def _make_tables(connection: Connection) -> str:
        connection.execute(f"SET LOCAL lock_timeout = '{START_SECONDS:.0f}s'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        return make_layout(_run(connection), "the PostgreSQL store", "BIGINT GENERATED ALWAYS AS IDENTITY")


def _check_encoding(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"the PostgreSQL database has the encoding {encoding}, which cannot hold every id; "
            "give one that was made with ENCODING 'UTF8'"
        )


def _check(connection: Connection) -> None:
    """Write and commit one row, and have the database plan the statement that stores events."""
    connection.execute("EXPLAIN " + _sql(ADD), NOTHING)
    for sql in TOUCH:
        connection.execute(_sql(sql))


def _said(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _run(connection: Connection) -> Run:
    return lambda sql, *values: connection.execute(_sql(sql), values)


def _alone(connection: Connection) -> Run:
    """Statements of a transaction that no other writer runs beside."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_OF_WRITERS,))
    return _run(connection)


def _add(connection: Connection, batches: Sequence[Sequence[Sequence[Any]]], sql: str) -> list[int]:
    counts, run = [], _alone(connection)
    with connection.cursor() as cursor:
        for rows in without_erased(run, batches):
            if rows:
                cursor.executemany(_sql(sql), rows)
            counts.append(cursor.rowcount if rows else 0)
    return counts


def _sql(text: str) -> str:
    """SQL with PostgreSQL's sign for a parameter; it never holds anything of a request."""
    return text.replace("?", "%s")

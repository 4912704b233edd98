"""A DuckDB database that spills to a temporary folder: logs may be larger than memory."""

import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow

from abaca.data.temporary import Temporary
from abaca.errors import LogError

if TYPE_CHECKING:
    import duckdb

MEMORY = "1GB"
"""The memory that DuckDB may use before it writes to its temporary folder."""

THREADS = 4
"""At most this many threads: each needs its share of MEMORY."""

BATCH_ROWS = 500_000


class Database:
    """One DuckDB database and its temporary folder; `close`, or losing the object, deletes both."""

    def __init__(self, threads: int = THREADS) -> None:
        import duckdb  # late, here and elsewhere: a server need not load it, and it reports leaks where it ends

        temporary = Temporary()
        self.folder = temporary.path
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY,
            "temp_directory": str(self.folder / "spill"),
            "threads": min(threads, os.cpu_count() or 1),
            "preserve_insertion_order": True,
        }
        self.connection = duckdb.connect(":memory:", config=settings)
        self._finalizer = weakref.finalize(self, _discard, self.connection, temporary)
        self.run("SET TimeZone = 'UTC'")
        self.run("SET enable_progress_bar = false")

    def run(self, sql: str, values: Iterable[Any] = ()) -> None:
        """Run a statement for its effect."""
        self.connection.execute(sql, list(values))

    def rows(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small answer."""
        return self.connection.execute(sql, list(values)).fetchall()

    def row(self, sql: str, values: Iterable[Any] = ()) -> tuple[Any, ...]:
        """The first row of an answer that has one."""
        return self.rows(sql, values)[0]

    def value(self, sql: str, values: Iterable[Any] = ()) -> Any:
        """The one value of an answer."""
        return self.row(sql, values)[0]

    def batches(self, sql: str) -> pyarrow.RecordBatchReader:
        """A large answer, batch by batch."""
        relation = self.connection.sql(sql)
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return read(BATCH_ROWS)

    def types(self, sql: str) -> dict[str, str]:
        """The columns of a query and their DuckDB types."""
        return {row[0]: str(row[1]) for row in self.rows(f"DESCRIBE {sql}")}

    def replace(self, table: str, sql: str) -> None:
        """Replace a table by the result of a query, which may read the table itself."""
        self.run(f"CREATE OR REPLACE TABLE {name(table + '_next')} AS {sql}")
        self.run(f"DROP TABLE IF EXISTS {name(table)}")
        self.run(f"ALTER TABLE {name(table + '_next')} RENAME TO {name(table)}")

    def replace_numbered(self, table: str, sql: str) -> None:
        """The same for a query of one column `id`, with the place `code` of each row, from 0, by ascending id."""
        self.replace(table, f"SELECT id, (row_number() OVER (ORDER BY id) - 1)::INTEGER AS code FROM ({sql})")

    def at(self, sql: str, place: int) -> Any:
        """The value at a place, from 0, among the ascending values of a query of one column `id`."""
        return self.value(f"{sql} ORDER BY id LIMIT 1 OFFSET {place}")

    def named(self, table: str) -> str:
        """How SQL names a table."""
        return name(table)

    def text(self, value: str) -> str:
        """A string as a literal."""
        return text(value)

    def drop(self, *tables: str) -> None:
        """Drop tables that are no longer needed."""
        for table in tables:
            self.run(f"DROP TABLE IF EXISTS {name(table)}")

    @contextmanager
    def registered(self, table: str, arrow: pyarrow.Table) -> Iterator[None]:
        """An Arrow table that queries may read under a name, for a while."""
        self.connection.register(table, arrow)
        try:
            yield
        finally:
            self.connection.unregister(table)

    def without_wildcards(self, path: Path) -> Path:
        """The path, or where it has signs that DuckDB would expand, a link to it that has none."""
        if not set("*?[") & set(str(path)):
            return path
        link = self.folder / f"link-{len(list(self.folder.iterdir()))}{''.join(path.suffixes[-2:])}"
        link.symlink_to(path.resolve())
        return link

    def close(self) -> None:
        """Close the database and delete its folder."""
        self._finalizer()


@contextmanager
def enough_room() -> Iterator[None]:
    """Add advice to an error of DuckDB about disk space or memory."""
    import duckdb

    try:
        yield
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        first = str(error).splitlines()[0]
        raise LogError(
            f"not enough disk space or memory: {first}; free some, or set TMPDIR to a folder on a larger disk"
        ) from error


def text(value: str) -> str:
    """A string as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """A name as an SQL identifier."""
    return '"' + value.replace('"', '""') + '"'


def _discard(connection: "duckdb.DuckDBPyConnection", temporary: Temporary) -> None:
    connection.close()
    temporary.close()

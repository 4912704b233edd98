"""Opening the store of events."""

from pathlib import Path

from abaca.errors import StoreError
from abaca.serve.events import Store


def open_store(address: str) -> Store:
    """A PostgreSQL database by its address (postgresql://…), or a SQLite file by its path."""
    kind, separator, _ = address.partition("://")
    if address == ":memory:":
        raise StoreError("--store :memory: would lose everything at the end; give the path of a SQLite file")
    if not separator:
        from abaca.serve.sqlite import SqliteStore

        return SqliteStore(Path(address))
    if kind in ("postgresql", "postgres"):
        try:
            from abaca.serve.postgres import PostgresStore
        except ImportError as error:
            raise StoreError(f"a PostgreSQL store needs {error.name}; pip install 'abaca[postgres]'") from error
        return PostgresStore(address)
    raise StoreError(f"--store cannot be '{kind}://…'; give the path of a SQLite file, or postgresql://USER@HOST/NAME")

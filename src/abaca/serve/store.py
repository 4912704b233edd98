"""Opening the store of events."""

from pathlib import Path

import pyarrow

from abaca.errors import StoreError
from abaca.serve.events import Store


def open_store(address: str, seconds: float | None = None) -> Store:
    """A PostgreSQL database by its address (postgresql://…), or a SQLite file by its path.

    `seconds` is the longest time of a call to a database, where it differs from the default.
    """
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
        check_address(address)
        return PostgresStore(address, seconds)
    raise StoreError(f"--store cannot be '{kind}://…'; give the path of a SQLite file, or postgresql://USER@HOST/NAME")


def check_address(address: str) -> None:
    """Refuse an address that PostgreSQL would misread; its own message could hold a part of the password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        misread = "@" in str(conninfo_to_dict(address).get("host", ""))
    except (ProgrammingError, UnicodeError):
        misread = True
    if misread:
        raise StoreError(
            "--store: the address cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/NAME, and in the password "
            "%40 for @, %3A for :, %2F for / and %25 for %"
        ) from None


def stored_rows(store: Store) -> pyarrow.Table:
    """The events of a store as a table of users, items, times in seconds since 1970, and types where known."""
    events = [(user, *past) for user, past in store.all()]
    names = ("user", "item", "time", "event")
    types = (pyarrow.string(), pyarrow.string(), pyarrow.float64(), pyarrow.string())
    columns = zip(*events, strict=True) if events else ((), (), (), ())
    arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pyarrow.table(arrays, names=names)

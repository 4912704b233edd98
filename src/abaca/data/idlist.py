"""Lists of ids in files: one id a line, or a table with a column of ids."""

from pathlib import Path

from abaca.data.database import Database
from abaca.data.itemtable import id_column, load_file
from abaca.data.reading.formats import format_of, open_files
from abaca.errors import LogError, QueryError
from abaca.types import Id


def read_ids(path: Path) -> list[Id]:
    """The ids of a file.

    Parquet, JSON lines and text with several columns are tables; their column of ids is found as that of an item
    table. Any other text has one id a line.
    """
    try:
        kind = format_of(path) if path.is_file() else None
        if kind in ("parquet", "json"):
            return _column(path)
        if kind is not None and len(open_files(path)[0].columns) > 1:
            return _column(path)
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise QueryError(f"{path} cannot be read as a list of ids ({error.strerror}); check the name") from error
    except UnicodeDecodeError as error:
        raise QueryError(f"{path} cannot be read as a list of ids ({error}); write one id per line") from error
    return [line.strip() for line in lines if line.strip()]


def _column(path: Path) -> list[Id]:
    """The ids of a table, in its order."""
    file = open_files(path)[0]
    try:
        place = file.columns.index(id_column(file.columns, "item", file.name))
    except LogError as error:
        raise QueryError(f"{error}; or write one id per line") from error
    database = Database()
    load_file(database, file)
    query = f"SELECT c{place} FROM item_table WHERE c{place} IS NOT NULL ORDER BY rowid"
    return [id for (id,) in database.rows(query)]

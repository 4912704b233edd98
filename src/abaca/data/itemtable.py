"""The item table (id, title, …), and the Parquet files of raw ids."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from abaca.data.database import Database, name, text
from abaca.data.engine import Ints
from abaca.data.reading.columns import candidates, check_once
from abaca.data.reading.formats import LogFile, open_files
from abaca.data.reading.tables import is_table, to_arrow
from abaca.data.reading.values import text_sql
from abaca.errors import LogError


@dataclass(frozen=True)
class ItemTable:
    """An item table as `item_table(key, c0, c1, …)` in its own database, one row per id."""

    database: Database
    columns: dict[int, str]
    """The names of the columns beside the id, by place."""
    repeated: int
    """How many rows were left out: of several rows with one id the first is taken."""


def read_items(source: Any, item_column: str, ids: pyarrow.Array) -> ItemTable:
    """Read the item table of a log whose items have these ids.

    Ids are compared as text: a log may have 7 from Parquet where its item table has "7" from a CSV.
    """
    database = Database()
    if isinstance(source, str | os.PathLike):
        files = open_files(Path(source))
        if len(files) > 1:
            raise LogError(f"{source}: the item table is one file, this is {len(files)}; write them into one")
        where, columns = files[0].name, files[0].columns
        load_file(database, files[0])
    elif is_table(source):
        where, table = "the item table", to_arrow(source)
        columns = tuple(table.column_names)
        with database.registered("arrow_part", table.rename_columns([f"c{place}" for place in range(len(columns))])):
            database.replace("item_table", "SELECT * FROM arrow_part")
    else:
        raise LogError(f"an item table is a file or a table, not a {type(source).__name__}")
    place = columns.index(id_column(columns, item_column, where))
    repeated = _key_by(database, place, len(columns))
    with database.registered("ids", pyarrow.table({"id": ids})):
        matched = database.value("SELECT count(*) FROM ids JOIN item_table ON id::VARCHAR = key")
    if not matched:
        raise LogError(f"{where}: none of its ids in column {columns[place]!r} is an item of the log; check the column")
    return ItemTable(database, {other: column for other, column in enumerate(columns) if other != place}, repeated)


def write_catalogue(file: Path, ids: pyarrow.Array, order: Ints, items: ItemTable | None) -> None:
    """Write row i: the id of item i, whose code is `order[i]`, and its item table columns."""
    catalogue = pyarrow.table({"id": ids.take(pyarrow.array(order)), "item": np.arange(len(order))})
    if items is None:
        pyarrow.parquet.write_table(catalogue.select(["id"]), file)
        return
    taken = {"id": "table_id"}
    listed = "".join(f", t.c{place} AS {name(taken.get(c, c))}" for place, c in items.columns.items())
    with items.database.registered("catalogue", catalogue):
        items.database.run(
            f"COPY (SELECT catalogue.id{listed} FROM catalogue LEFT JOIN item_table t ON t.key = catalogue.id::VARCHAR "
            f"ORDER BY catalogue.item) TO {text(str(file))} (FORMAT parquet)"
        )


def write_users(file: Path, ids: Iterable[pyarrow.RecordBatch]) -> None:
    """Write row u: the id of user u."""
    batches = iter(ids)
    first = next(batches)
    with pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def load_file(database: Database, file: LogFile) -> None:
    """Read a file into `item_table(c0, c1, …)`."""
    import duckdb

    places = range(len(file.columns))
    try:
        sql = replace(file, path=database.without_wildcards(file.path)).sql()
        types = database.types(sql)
        listed = [text_sql(f"c{p}", "JSON") if types[f"c{p}"] == "JSON" else f"c{p}" for p in places]
        broken = ", broken" if "broken" in types else ""
        named = ", ".join(f"{value} AS c{place}" for place, value in enumerate(listed))
        database.replace("item_table", f"SELECT {named}{broken} FROM ({sql})")
    except duckdb.Error as error:
        raise file.refusal(error) from error
    if broken and (first := database.value("SELECT min(rowid) FROM item_table WHERE broken")) is not None:
        raise LogError(f"{file.name} line {file.locate(first)}: not a JSON object; fix the line")


def id_column(columns: tuple[str, ...], item_column: str, where: str) -> str:
    """The column of ids: of the log's name, called id, or one that is recognised."""
    for column in columns:
        check_once(column, columns, where)
    by_lower = {column.lower(): column for column in reversed(columns)}
    found = by_lower.get(item_column.lower()) or by_lower.get("id") or next(iter(candidates("item", columns)), None)
    if found is None:
        raise LogError(
            f"{where}: no column looks like the item id, there are {', '.join(columns)}; name it {item_column!r}"
        )
    return found


def _key_by(database: Database, place: int, width: int) -> int:
    """Keep the first row of each id; how many others there were."""
    before = database.value(f"SELECT count(c{place}) FROM item_table")
    columns = ", ".join(f"c{other}" for other in range(width))
    database.replace(
        "item_table",
        f"SELECT c{place}::VARCHAR AS key, {columns} FROM item_table WHERE c{place} IS NOT NULL "
        f"QUALIFY row_number() OVER (PARTITION BY c{place}::VARCHAR ORDER BY rowid) = 1",
    )
    return int(before - database.value("SELECT count(*) FROM item_table"))

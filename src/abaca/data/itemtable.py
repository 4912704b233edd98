"""The item table (id, title, …), and the Parquet files that keep raw ids."""

import os
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow

from abaca.data.arrays import Ints
from abaca.data.reading.columns import candidates, check_once
from abaca.data.reading.formats import LogFile, open_files
from abaca.data.reading.tables import is_table, to_arrow
from abaca.data.reading.values import text_sql
from abaca.data.store import Store, name, text
from abaca.errors import LogError


def stage_items(store: Store, source: Any, item_column: str) -> tuple[list[str], int]:
    """Make `item_table(key, c0, c1, …)` of an item table; returns the columns' names and how many rows were left out.

    Of several rows with one id the first is taken. Ids are compared as text: a log may have 7 from Parquet where its
    item table has "7" from a CSV.
    """
    if isinstance(source, str | os.PathLike):
        files = open_files(Path(source))
        if len(files) > 1:
            raise LogError(f"{source}: the item table is one file, this is {len(files)}; write them into one")
        where, columns = files[0].name, files[0].columns
        _load_file(store, files[0])
    elif is_table(source):
        where, table = "the item table", to_arrow(source)
        columns = tuple(table.column_names)
        with store.registered("arrow_part", table.rename_columns([f"c{place}" for place in range(len(columns))])):
            store.replace("item_table", "SELECT * FROM arrow_part")
    else:
        raise LogError(f"an item table is a file or a table, not a {type(source).__name__}")
    place = columns.index(_id_column(columns, item_column, where))
    repeated = _key_by(store, place, len(columns))
    matched = store.value("SELECT count(*) FROM item_codes JOIN item_table ON id::VARCHAR = key")
    if not matched:
        raise LogError(f"{where}: none of its ids in column {columns[place]!r} is an item of the log; check the column")
    return ["" if position == place else column for position, column in enumerate(columns)], repeated


def write_catalogue(store: Store, file: Path, order: Ints, columns: list[str]) -> None:
    """Write row i: the id of item i, whose code is `order[i]`, and what the item table says of it."""
    numbered = pyarrow.table({"code": order, "item": np.arange(len(order))})
    taken = {"id": "table_id"}
    listed = "".join(f", t.c{place} AS {name(taken.get(c, c))}" for place, c in enumerate(columns) if c)
    join = "LEFT JOIN item_table t ON t.key = codes.id::VARCHAR" if columns else ""
    with store.registered("arrow_part", numbered):
        store.run(
            f"COPY (SELECT codes.id{listed} FROM arrow_part JOIN item_codes codes USING (code) {join} "
            f"ORDER BY arrow_part.item) TO {text(str(file))} (FORMAT parquet)"
        )


def write_users(store: Store, file: Path) -> None:
    """Write row u: the id of user u."""
    kept = 'code IN (SELECT "user" FROM kept)'
    store.run(f"COPY (SELECT id FROM user_codes WHERE {kept} ORDER BY code) TO {text(str(file))} (FORMAT parquet)")


def _load_file(store: Store, file: LogFile) -> None:
    places = range(len(file.columns))
    try:
        path = store.without_wildcards(file.path)
        sql = LogFile(path, file.name, file.format, file.columns, file.delimiter, file.header_line).sql()
        types = store.types(sql)
        listed = [text_sql(f"c{p}", "JSON") if types[f"c{p}"] == "JSON" else f"c{p}" for p in places]
        broken = ", broken" if "broken" in types else ""
        named = ", ".join(f"{value} AS c{place}" for place, value in enumerate(listed))
        store.replace("item_table", f"SELECT {named}{broken} FROM ({sql})")
    except duckdb.Error as error:
        for row in file.rows(list(places)) if file.format != "parquet" else ():
            if row.fault is not None:
                raise LogError(f"{file.name} line {row.line}: {row.fault[1]}; fix the line") from error
        raise LogError(f"{file.name}: cannot be read ({str(error).splitlines()[0]}); write the file again") from error
    if broken and (first := store.value("SELECT min(rowid) FROM item_table WHERE broken")) is not None:
        raise LogError(f"{file.name} line {file.locate(first)}: not a JSON object; fix the line")


def _id_column(columns: tuple[str, ...], item_column: str, where: str) -> str:
    for column in columns:
        check_once(column, columns, where)
    by_lower = {column.lower(): column for column in reversed(columns)}
    found = by_lower.get(item_column.lower()) or by_lower.get("id") or next(iter(candidates("item", columns)), None)
    if found is None:
        raise LogError(
            f"{where}: no column looks like the item id, there are {', '.join(columns)}; name it {item_column!r}"
        )
    return found


def _key_by(store: Store, place: int, width: int) -> int:
    """Keep the first row of each id; how many others there were."""
    before = store.value(f"SELECT count(c{place}) FROM item_table")
    columns = ", ".join(f"c{other}" for other in range(width))
    store.replace(
        "item_table",
        f"SELECT c{place}::VARCHAR AS key, {columns} FROM item_table WHERE c{place} IS NOT NULL "
        f"QUALIFY row_number() OVER (PARTITION BY c{place}::VARCHAR ORDER BY rowid) = 1",
    )
    return int(before - store.value("SELECT count(*) FROM item_table"))

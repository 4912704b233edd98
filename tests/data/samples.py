"""A log small enough to check by hand, and ways to write it."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences

ROWS = [
    ("ann", "milk", 10),
    ("bob", "tea", 5),
    ("ann", "bread", 20),
    ("bob", "milk", 6),
    ("ann", "milk", 20),
    ("ann", "jam", 5),
    ("bob", "milk", 7),
    ("cid", "tea", 1),
]
"""In time order: ann jam milk bread milk (bread before milk at 20: file order); bob tea milk milk; cid tea."""

COLUMNS = ("user", "item", "time")
KEEP_ALL = PrepareOptions(min_user=1)


def write_csv(
    path: Path, rows: list[tuple[Any, ...]] = ROWS, columns: tuple[str, ...] = COLUMNS, sep: str = ","
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=sep)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def table(rows: list[tuple[Any, ...]] = ROWS) -> pyarrow.Table:
    return pyarrow.table({name: list(column) for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)})


def write_json(path: Path, rows: list[tuple[Any, ...]] = ROWS) -> Path:
    lines = [json.dumps(dict(zip(COLUMNS, row, strict=True)), ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_recbole(path: Path) -> Path:
    return write_csv(path, columns=("user_id:token", "item_id:token", "timestamp:float"), sep="\t")


def write_parquet(path: Path, rows: list[tuple[Any, ...]] = ROWS) -> Path:
    pyarrow.parquet.write_table(table(rows), path)
    return path


def zipped(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def zstandard(path: Path) -> Path:
    packed = path.with_name(path.name + ".zst")
    with pyarrow.output_stream(str(packed), compression="zstd") as stream:
        stream.write(path.read_bytes())
    return packed


def rows_of(source: Any, **columns: Any) -> list[tuple[Any, ...]]:
    """What a log holds after reading, in file order."""
    with read_log(source, **columns) as log:
        return log.database.rows('SELECT "user", item, "time" FROM log ORDER BY "row"')


def prepared(folder: Path, rows: Any = None, options: PrepareOptions = KEEP_ALL, **more: Any) -> Sequences:
    """Sequences of rows or of any other source of a log."""
    source = table(ROWS if rows is None else rows) if rows is None or isinstance(rows, list) else rows
    with read_log(source) as log:
        return prepare(log, folder, options=options, **more)


def histories(sequences: Sequences) -> dict[Any, list[Any]]:
    """Every user's raw item ids, in order."""
    ids = sequences.catalogue.ids
    return {
        user: [ids[item] for item in sequences.history(index, sequences.offsets[index + 1])]
        for index, user in enumerate(sequences.user_ids)
    }


def targets(sequences: Sequences, split: str) -> list[tuple[Any, Any, list[Any]]]:
    """(user id, target id, history ids) of every target."""
    ids = sequences.catalogue.ids
    users, positions = getattr(sequences, split)
    return [
        (sequences.user_ids[u], ids[sequences.items[p]], [ids[item] for item in sequences.history(u, p)])
        for u, p in zip(users, positions, strict=True)
    ]

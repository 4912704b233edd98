"""Answers as a table, a row per history, and the files that such tables become."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from abaca.data.catalogue import Catalogue
from abaca.data.queries import Query
from abaca.data.reading.values import IdKind
from abaca.recommendation import Recommendations

ID_TYPES = {"text": pyarrow.string(), "integer": pyarrow.int64()}


def schema_of(catalogue: Catalogue, key: str, kind: IdKind) -> pyarrow.Schema:
    """The columns: whose history, the lists of the answer, the ids that are not known, and what rules did."""
    id_type = pyarrow.int64() if catalogue.ids and isinstance(catalogue.ids[0], int) else pyarrow.string()
    return pyarrow.schema(
        {
            key: ID_TYPES[kind],
            "ids": pyarrow.list_(id_type),
            "probabilities": pyarrow.list_(pyarrow.float64()),
            "reasons": pyarrow.list_(pyarrow.string()),
            "repeat_probability": pyarrow.float64(),
            "estimated": pyarrow.bool_(),
            "unknown": pyarrow.list_(pyarrow.string()),
            "rules": pyarrow.list_(pyarrow.string()),
        }
    )


def table_of(histories: Sequence[Query], answers: Sequence[Recommendations], schema: pyarrow.Schema) -> pyarrow.Table:
    """A row per history."""
    columns: list[list[Any]] = [
        [history.key for history in histories],
        [answer.ids for answer in answers],
        [[item.probability for item in answer] for answer in answers],
        [[item.reason for item in answer] for answer in answers],
        [answer.repeat_probability for answer in answers],
        [answer.estimated for answer in answers],
        [[str(id) for id in answer.unknown] for answer in answers],
        [[str(rule) for rule in answer.rules] for answer in answers],
    ]
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _write_parquet(path: Path, schema: pyarrow.Schema, tables: Iterator[pyarrow.Table]) -> None:
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for table in tables:
            writer.write_table(table.cast(schema))


def _write_jsonl(path: Path, schema: pyarrow.Schema, tables: Iterator[pyarrow.Table]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for table in tables:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())


def _write_csv(path: Path, schema: pyarrow.Schema, tables: Iterator[pyarrow.Table]) -> None:
    """A line per recommendation: a CSV has no lists."""
    key = schema.field(0)
    lists = {"id": "ids", "probability": "probabilities", "reason": "reasons"}
    fields = [key, pyarrow.field("place", pyarrow.int64())]
    fields += [pyarrow.field(name, schema.field(column).type.value_type) for name, column in lists.items()]
    with pyarrow.csv.CSVWriter(path, pyarrow.schema(fields)) as writer:
        for table in tables:
            owner = pyarrow.compute.list_parent_indices(table["ids"])
            length = pyarrow.compute.list_value_length(table["ids"]).to_pylist()
            place = [place for count in length for place in range(1, count + 1)]
            columns = [table[key.name].take(owner), pyarrow.array(place, pyarrow.int64())]
            columns += [pyarrow.compute.list_flatten(table[column]) for column in lists.values()]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields)))


WRITERS: dict[str, Callable[[Path, pyarrow.Schema, Iterator[pyarrow.Table]], None]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
}
"""How tables are written, by the ending of the file."""

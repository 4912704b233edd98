"""The counts that models use, as group-bys: item counts, and the transitions of `evidence/transitions.py`."""

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow

from abaca.data.engine import ORDER, Engine, Ints, SQLEngine
from abaca.data.prepare import Training
from abaca.evidence.transitions import DISTANCE, KEPT, UNIT, Transitions
from abaca.spark.tables import SparkTables, streamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def item_counts(rows: "DataFrame") -> "DataFrame":
    """How often each `item` occurs: `item`, `count`."""
    return rows.groupBy("item").count()


def transitions(rows: "DataFrame") -> "DataFrame":
    """The strongest followers of each item: `item`, `follower`, `units`, in the order of items, strongest first.

    The rows are interactions with the columns `user`, `place` (in the user's order) and `item`.
    """
    from pyspark.sql import Window, functions

    near = Window.partitionBy("user").orderBy("place").rowsBetween(1, DISTANCE)
    after = rows.select("item", functions.collect_list("item").over(near).alias("after"))
    pairs = after.select("item", functions.posexplode("after").alias("before", "follower"))
    pairs = pairs.selectExpr("item", "follower", f"{UNIT} DIV (before + 1) AS units")
    summed = pairs.groupBy("item", "follower").agg(functions.sum("units").alias("units"))
    rank = functions.row_number().over(Window.partitionBy("item").orderBy(functions.desc("units"), "follower"))
    kept = summed.withColumn("rank", rank).where(f"rank <= {KEPT}")
    return kept.orderBy("item", "rank").drop("rank")


def count(engine: Engine, training: Training) -> dict[str, np.ndarray]:
    """The transitions of the training rows of an engine, as the arrays of `Transitions`."""
    tables = cast(SparkTables, cast(SQLEngine, engine).tables)
    tables.put("training", training_rows(tables, training))
    rows = tables.spark.table(tables.named("training"))
    counts = np.zeros(training.size, dtype=np.int64)
    for batch in streamed(item_counts(rows)):
        items, found = batch.columns
        counts[items.to_numpy()] = found.to_numpy()
    columns = [[column.to_numpy() for column in batch.columns] for batch in streamed(transitions(rows))]
    items, followers, units = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    tables.drop("training", "kept_users", "lengths", "numbers")
    starts = np.searchsorted(items, np.arange(training.size + 1))
    return vars(Transitions(starts, followers.astype(np.int32), units.astype(np.int64), counts))


def training_rows(tables: SparkTables, training: Training) -> "DataFrame":
    """What training may see: `user`, `place`, and `item` by its index."""
    kept = tables.named("kept")
    tables.replace_numbered("kept_users", f"SELECT DISTINCT kept.user AS id FROM {kept} AS kept")
    lengths = _uploaded(tables, "lengths", "length", np.arange(len(training.lengths)), training.lengths)
    numbers = _uploaded(tables, "numbers", "number", training.order, np.arange(len(training.order)))
    placed = (
        f"SELECT kept.user AS user, kept.item, row_number() OVER (PARTITION BY kept.user ORDER BY {ORDER}) AS place "
        f"FROM {kept} AS kept"
    )
    return tables.spark.sql(
        f"SELECT placed.user AS user, placed.place, numbers.number AS item FROM ({placed}) AS placed "
        f"JOIN {tables.named('kept_users')} AS users ON users.id = placed.user "
        f"JOIN {lengths} AS lengths ON lengths.code = users.code "
        f"JOIN {numbers} AS numbers ON numbers.code = placed.item WHERE placed.place <= lengths.length"
    )


def _uploaded(tables: SparkTables, name: str, column: str, codes: Ints, values: Ints) -> str:
    """A table of numbers by code, sent by the driver."""
    arrow = pyarrow.table({"code": codes.astype(np.int32), column: values.astype(np.int32)})
    return tables.view(name, tables.spark.createDataFrame(arrow))

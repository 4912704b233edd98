"""The tables of a log in Spark: what `data/engine.py` needs to run its SQL there."""

import io
import uuid
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTITION_BITS = 33
"""Of Spark's increasing ids, the lower bits count the rows of a partition; the others are its number."""


class SparkTables:
    """Temporary views of a session under names of their own; each is computed once and kept on the executors' disks."""

    def __init__(self, spark: "SparkSession") -> None:
        self.spark = spark
        self._mark = f"abaca_{uuid.uuid4().hex[:8]}"
        self._frames: dict[str, DataFrame] = {}
        self._views: set[str] = set()

    def named(self, table: str) -> str:
        """How SQL names a table."""
        return f"{self._mark}_{table}"

    def text(self, value: str) -> str:
        """A string as a literal, in which a backslash and a quote are escaped."""
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"

    def put(self, table: str, frame: "DataFrame") -> None:
        """Compute a frame, and make it the table of this name."""
        made = checkpointed(frame)
        self.view(table, made)
        free(self._frames.pop(table, None))
        self._frames[table] = made

    def view(self, table: str, frame: "DataFrame") -> str:
        """Make a frame, which is computed whenever it is read, the table of this name; returns how SQL names it."""
        frame.createOrReplaceTempView(self.named(table))
        self._views.add(table)
        return self.named(table)

    def replace(self, table: str, sql: str) -> None:
        """Replace a table by the result of a query, which may read the table itself."""
        self.put(table, self.spark.sql(sql))

    def replace_numbered(self, table: str, sql: str) -> None:
        """The same for a query of one column `id`, with the place `code` of each row, from 0, by ascending id."""
        from pyspark.sql import functions

        at = functions.monotonically_increasing_id().alias("at")
        self.put(table, self.spark.sql(sql).repartitionByRange("id").sortWithinPartitions("id").select("id", at))
        placed = self._frames[table]
        partition = functions.shiftright("at", PARTITION_BITS).cast("int")
        sizes = {row[0]: row[1] for row in placed.groupBy(partition).count().collect()}
        counts = [sizes.get(number, 0) for number in range(max(sizes) + 1)]
        before = functions.array(*(functions.lit(count) for count in accumulate(counts, initial=0)))
        number: Column = functions.col("at").bitwiseAND(functions.lit((1 << PARTITION_BITS) - 1))
        code = (functions.get(before, partition) + number).cast("int").alias("code")
        self.view(table, placed.select("id", code))

    def drop(self, *tables: str) -> None:
        """Drop tables that are no longer needed."""
        for table in tables:
            self.spark.catalog.dropTempView(self.named(table))
            self._views.discard(table)
            free(self._frames.pop(table, None))

    def row(self, sql: str) -> tuple[Any, ...]:
        """The first row of an answer that has one."""
        return tuple(self.spark.sql(sql).take(1)[0])

    def at(self, sql: str, place: int) -> Any:
        """The value at a place, from 0, among the ascending values of a query of one column `id`."""
        self.replace_numbered("places", sql)
        value = self.row(f"SELECT id FROM {self.named('places')} WHERE code = {place}")[0]
        self.drop("places")
        return value

    def batches(self, sql: str) -> Iterable[pyarrow.RecordBatch]:
        """A large answer, batch by batch and in its order."""
        return streamed(self.spark.sql(sql))

    def close(self) -> None:
        """Drop all tables."""
        self.drop(*list(self._views))


def checkpointed(frame: "DataFrame") -> "DataFrame":
    """A computed frame that has forgotten how it was made.

    It is on the executors' disks; or, where the session has a folder for checkpoints, there, and outlives executors.
    """
    from pyspark import StorageLevel

    context = getattr(frame.sparkSession, "_sc", None)
    if context is not None and context.getCheckpointDir() is not None:
        return frame.checkpoint(eager=True)
    return frame.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


def free(frame: "DataFrame | None") -> None:
    """Delete the copy that a frame was computed into; Spark would do so some time after the frame is forgotten."""
    if frame is not None and hasattr(frame, "_jdf"):
        frame._jdf.queryExecution().logical().rdd().unpersist(False)


def streamed(frame: "DataFrame") -> Iterator[pyarrow.RecordBatch]:
    """The rows of a frame in their order; the driver holds those of one or two partitions at a time.

    The partitions are computed beside each other first, and kept on the executors' disks.
    """
    packed = checkpointed(frame.mapInArrow(_packed, "batch binary"))
    try:
        empty = True
        for row in packed.toLocalIterator(prefetchPartitions=False):
            with pyarrow.ipc.open_stream(io.BytesIO(row["batch"])) as stream:
                yield from stream
            empty = False
        if empty:
            yield pyarrow.RecordBatch.from_pylist([], frame.limit(0).toArrow().schema)
    finally:
        free(packed)


def _packed(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Each batch as one row: its bytes."""
    for batch in batches:
        sink = io.BytesIO()
        with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pyarrow.record_batch({"batch": pyarrow.array([sink.getvalue()], pyarrow.binary())})

"""Reading a log with Spark: a frame, or the files of a path that Spark can read."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from abaca import errors
from abaca.data.database import Database
from abaca.data.log import BaseLog, OnBadRow
from abaca.data.reading.columns import Columns, Wanted, choose, passed_over
from abaca.data.reading.formats import SAMPLE
from abaca.data.reading.staging import Found, Staging
from abaca.data.reading.values import BAD
from abaca.errors import LogError, SpecError
from abaca.spark.files import Files, TextLines, open_files, shown_names
from abaca.spark.rows import FILE_BITS, ReadColumns, ReadLines, plain_uri, schema_of
from abaca.spark.tables import SparkTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAME = "the frame"


class SparkLog(BaseLog):
    """An interaction log whose rows Spark holds as the table `log(row, user, item, time, rest, event)`."""

    def __init__(self, tables: SparkTables, found: Found, rows: int, names: tuple[str, ...]) -> None:
        self._tables = tables
        super().__init__(found, rows, names)

    def tables(self) -> SparkTables:
        return self._tables

    def close(self) -> None:
        """Free the executors' disks."""
        self._tables.close()


def read_log(
    source: "DataFrame | str",
    *,
    spark: "SparkSession | None" = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    event: str | None = None,
    order: str | None = None,
    on_bad_row: OnBadRow = "error",
    like: Columns | None = None,
) -> SparkLog:
    """Read a log from a frame, or from a path that Spark can read: files or folders, local, on HDFS or in a store.

    The rules for columns, ids, times and bad rows are those of `abaca.read_log`. Rows at the same time keep the order
    of the files. A frame that was not read from Parquet files has the order in which Spark returns its rows; where that
    is not the same every time, give the column that holds the `order`.
    """
    if on_bad_row not in ("error", "skip"):
        raise SpecError(f"`on_bad_row` is error or skip, got {on_bad_row!r}")
    wanted, skip = Wanted(user, item, time, event, like), on_bad_row == "skip"
    if not isinstance(source, str):
        return _of_frame(source, wanted, order, skip=skip)
    if order is not None:
        raise SpecError("`order` belongs to a frame; files have their own order")
    spark = spark or active_session()
    found = open_files(spark, source)
    if isinstance(found, Files):
        return _of_frame(spark.read.parquet(*found.paths), wanted, None, skip=skip)
    return _of_lines(spark, found, wanted, skip=skip)


def active_session() -> "SparkSession":
    """The session of this thread."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise SpecError("there is no Spark session; pass `spark=SparkSession.builder.getOrCreate()`")
    return spark


def _of_frame(frame: "DataFrame", wanted: Wanted, order: str | None, *, skip: bool) -> SparkLog:
    from pyspark.sql import functions

    chosen = choose(frame.columns, wanted, FRAME)
    named = [column for column in chosen if column is not None]
    columns = [functions.col(_quoted(column)).alias(f"c{place}") for place, column in enumerate(named)]
    placed, files = _placed(frame, columns, order)
    staging = _sampled(placed, named, chosen)
    places = [None if column is None else named.index(column) for column in chosen]
    read = placed.mapInArrow(ReadColumns(staging.reading, places, files), schema_of(staging.reading))
    found = replace(staging.found(), skip=skip, passed_over=passed_over(frame.columns, wanted, chosen), bad_rows={})
    names = ("frame",) if files is None else shown_names(list(files))
    return _log(frame.sparkSession, read, found, names, lambda row: _frame_place(row, names, files))


def _placed(frame: "DataFrame", columns: Sequence[Any], order: str | None) -> "tuple[DataFrame, dict[str, int] | None]":
    """The columns with the place of each row: in `order`, in its file, or as Spark returns it; the files' numbers."""
    from pyspark.sql import functions

    if order is not None:
        if order not in frame.columns:
            raise LogError(f"{FRAME}: there is no column {order!r}; pass `order=COLUMN` with one that it has")
        return frame.select(*columns, functions.col(_quoted(order)).cast("bigint").alias("row")), None
    files = frame.inputFiles()
    if not files or not all(file.endswith((".parquet", ".pq")) for file in files):
        return frame.select(*columns, functions.monotonically_increasing_id().alias("row")), None
    path, row = functions.col("_metadata.file_path").alias("file"), functions.col("_metadata.row_index")
    ordered = sorted(map(plain_uri, files), key=lambda path: path.split("/"))
    numbers = {path: number for number, path in enumerate(ordered)}
    return frame.select(*columns, path, row.cast("bigint").alias("row")), numbers


def _sampled(placed: "DataFrame", named: list[str], chosen: Columns) -> Staging:
    """What the first rows of a frame say of its ids and times; values decide only where times are text."""
    from pyspark.sql import functions

    columns = [f"c{place}" for place in range(len(named))]
    rows = placed.limit(0)
    if chosen.time is not None:
        time = f"c{named.index(chosen.time)}"
        if dict(placed.dtypes)[time] == "string":
            order = ["file", "row"] if "file" in placed.columns else ["row"]
            rows = placed.where(functions.col(time).isNotNull()).orderBy(*order).limit(SAMPLE)
    database = Database(threads=1)
    staging = Staging(database, Wanted(*chosen), skip=True)
    staging.add_table(rows.select(*columns).toArrow().rename_columns(named), FRAME)
    database.close()
    return staging


def _of_lines(spark: "SparkSession", lines: TextLines, wanted: Wanted, *, skip: bool) -> SparkLog:
    staging = lines.sampled(wanted)
    files = lines.files(staging.wanted)
    read = lines.frame(spark).mapInArrow(ReadLines(staging.reading, files), schema_of(staging.reading))
    found = replace(staging.found(), skip=skip, bad_rows={})
    return _log(spark, read, found, lines.names, lambda row: lines.place(spark, files, row))


def _log(spark: "SparkSession", read: "DataFrame", found: Found, names: tuple[str, ...], place: Any) -> SparkLog:
    """Read all rows once; a bad one is an error where bad rows are not skipped."""
    from pyspark.errors import PythonException
    from pyspark.sql import functions

    tables = SparkTables(spark)
    try:
        tables.put("read", read)
    except PythonException as error:
        raise own_error(error) from error
    rows = spark.table(tables.named("read"))
    counts = {row[0]: row[1] for row in rows.groupBy("bad").count().collect()}
    good = counts.pop(0, 0)
    if counts and not found.skip:
        first = rows.where("bad > 0").orderBy("row").select("row", "fault").take(1)[0]
        where, unit = place(first["row"])
        tables.close()
        raise LogError(f"{where}: {first['fault']}; fix the {unit}, or pass `on_bad_row='skip'`")
    tables.view("log", rows.where(functions.col("bad") == 0).drop("bad", "fault"))
    bad = {BAD[number]: count for number, count in sorted(counts.items())}
    return SparkLog(tables, replace(found, bad_rows=bad), good, names)


def own_error(error: Exception) -> Exception:
    """The error of Abaca that an executor raised, else the one that was given."""
    found = re.findall(r"^abaca\.errors\.(\w+): (.*)", str(error), re.MULTILINE)
    if not found:
        return error
    name, message = found[-1]
    own: Exception = getattr(errors, name)(message)
    return own


def _frame_place(row: int, names: tuple[str, ...], files: dict[str, int] | None) -> tuple[str, str]:
    """Where a row of a frame is, and what it is called."""
    if files is None:
        return f"{FRAME} row with the order {row}", "row"
    number, place = divmod(row, 1 << FILE_BITS)
    return f"{names[number]} row {place + 1}", "row"


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"

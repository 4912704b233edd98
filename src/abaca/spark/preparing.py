"""Preparing a log with Spark: the same options, and the same folder, as on one machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from abaca.data import prepare as rules
from abaca.data.prepare import PrepareOptions, Progress
from abaca.data.sequences import Sequences
from abaca.spark.log import SparkLog, read_log
from abaca.spark.statistics import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def prepare(
    frame: "DataFrame | SparkLog",
    path: str | Path,
    *,
    options: PrepareOptions | None = None,
    items: Any = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    transitions: bool = False,
    **reading: Any,
) -> Sequences:
    """Write the sequences of a frame into a folder of the driver, all of it or nothing, and open them.

    `options`, `items` and `overwrite` are those of `abaca.prepare`; other arguments are those of `read_log`. The driver
    holds numbers of each user and each item, never the log: its rows pass in order from executors to the folder. With
    `transitions`, Spark also counts what training would count to fit evidence.
    """
    log = frame if isinstance(frame, SparkLog) else read_log(frame, **reading)
    try:
        return rules.prepare(
            log, path, options=options, items=items, overwrite=overwrite, progress=progress,
            counting=count if transitions else None,
        )  # fmt: skip
    finally:
        if log is not frame:
            log.close()

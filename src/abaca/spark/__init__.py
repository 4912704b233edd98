"""Spark prepares logs and scores histories: functions on frames, with the answers of a single process."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from abaca.spark.log import SparkLog, read_log
    from abaca.spark.preparing import prepare
    from abaca.spark.recommending import recommend
    from abaca.spark.statistics import item_counts, transitions

# Loaded at first use: an executor that reads rows should not wait for torch.
_HOMES = {
    "SparkLog": "abaca.spark.log",
    "item_counts": "abaca.spark.statistics",
    "prepare": "abaca.spark.preparing",
    "read_log": "abaca.spark.log",
    "recommend": "abaca.spark.recommending",
    "transitions": "abaca.spark.statistics",
}

__all__ = ["SparkLog", "item_counts", "prepare", "read_log", "recommend", "transitions"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'abaca.spark' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

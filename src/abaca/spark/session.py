"""The Spark session of the command line."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from warnings import filterwarnings

from abaca.errors import SpecError
from abaca.extra import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """Settings spelled KEY=VALUE, by key."""
    pairs = [setting.partition("=") for setting in given]
    wrong = [key for key, sign, _ in pairs if not sign or not key.startswith("spark.")]
    if wrong:
        raise SpecError(f"`spark` {wrong[0]!r} is not a setting; write it like spark.master=local[4]")
    return {key: value for key, _, value in pairs}


def session(settings: Mapping[str, str] | None = None) -> "SparkSession":
    """The session that Spark's own settings describe (`spark-submit`, `spark-defaults.conf`), and further ones."""
    sql = needs("pyspark.sql", "spark")
    from pyspark.errors import PySparkRuntimeError

    filterwarnings("ignore", "PySpark does not yet fully support pandas")  # which Abaca does not use there
    builder = sql.SparkSession.builder.appName("abaca")
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    master = (settings or {}).get("spark.master") or os.environ.get("MASTER", "local")
    if master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        found: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SpecError(
            f"Spark does not start ({str(error).splitlines()[0]}); it needs Java 17, such as Debian's "
            "openjdk-17-jre-headless, on the PATH or in JAVA_HOME"
        ) from error
    return found

"""One standalone cluster of Spark for all tests: a master and two workers, each with processes of its own."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.sql.files.maxPartitionBytes": "4000",  # small files have several blocks, on both workers
    "spark.sql.files.openCostInBytes": "1000",
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on a cluster whose files are in a temporary folder."""
    pyspark = pytest.importorskip("pyspark", reason="Spark is an extra: pip install 'abaca[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17: install openjdk-17-jre-headless")
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    package = Path(pyspark.__file__).parent
    for part in ("bin", "jars", "python"):
        (home / part).symlink_to(package / part)
    source = str(Path(__file__).parents[2] / "src")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_HOME", str(home))  # workers write their logs there
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
        builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("abaca tests")
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        yield spark
        spark.stop()

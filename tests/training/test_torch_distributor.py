"""The recipe of docs/scale.md for Spark, as it is there, on a Spark of this machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.synthetic import synthetic_log
from abaca.recommender import load
from abaca.training.state import RECORD

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_the_recipe_for_spark_trains_a_model(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (recipe,) = [code for code in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "pyspark" in code]
    with read_log(synthetic_log("copy-after-repeat", users=60, items=40, length=14, seed=5)) as log:
        sequences = prepare(log, tmp_path / "sequences")
    recipe = recipe.replace("Recommender()", 'Recommender("gru4rec", epochs=2, dim=8, hidden=8, lr=0.01)')
    recipe = recipe.replace("SparkSession.builder", 'SparkSession.builder.master("local[2]")')
    recipe = recipe.replace('"sequences", "model"', f"{str(sequences.path)!r}, {str(tmp_path / 'model')!r}")
    of_spark = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **of_spark}
    done = subprocess.run([sys.executable, "-c", recipe], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "model" / RECORD).read_text().count(f'"targets": {sequences.training_targets}') == 2
    assert load(tmp_path / "model").saved is not None

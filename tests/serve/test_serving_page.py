"""docs/serving.md is true: its commands are answered by a real server, and its examples have the server's shape."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from abaca.recommender import Recommender
from abaca.serve import requests, schemas

from .samples import SMALL, Live

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
WORDS = ["milk", "bread", "tea", "rice", "soap", "jam", "salt", "oats"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (apt-get install curl)")
def test_every_command_of_the_page_is_answered(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    log = pyarrow.table({"user": np.repeat(np.arange(30), 10), "item": rng.choice(WORDS, 300)})
    titles = pyarrow.table({"id": WORDS, "title": [word.title() for word in WORDS]})
    Recommender("gru4rec", "softmax+CPR:3", **SMALL).fit(log, items=titles).save(tmp_path / "model")
    server = Live(tmp_path / "model", "--store", tmp_path / "events.db").ready()
    lines = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ curl")]
    for line in lines:
        words = shlex.split(line.removeprefix("$ ").replace("localhost:8000", server.url))
        done = subprocess.run([*words, "--fail-with-body"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}"
    bought = {"customer": ["c1", "c2"] * 600, "sku": [WORDS[i % 8] for i in range(1200)], "ts": range(1200)}
    pyarrow.parquet.write_table(pyarrow.table(bought), tmp_path / "purchases.parquet")
    (script,) = blocks("py")
    script = script.replace("http://localhost:8000", server.url)
    for _ in range(2):  # the second time all are duplicates
        subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    stored = server.client.get("/users/c2/history").json()
    server.end()
    assert len(stored["items"]) == 600
    assert len(lines) == 17
    (first,) = json.loads(blocks("json")[0])["answers"]
    assert set(first) == set(schemas.Answer.model_fields)
    assert set(first["items"][0]) == set(schemas.Recommended.model_fields)
    assert set(json.loads(blocks("json")[1])) == set(schemas.Problem.model_fields)


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    for limit in (requests.MOST_IDS, requests.MOST_HISTORIES, requests.MOST_N, requests.MOST_ITEMS):
        assert f"{limit:,}" in PAGE
    asked = {name for name in requests.Ask.model_fields if f"`{name}`" in PAGE}
    assert asked == set(requests.Ask.model_fields)

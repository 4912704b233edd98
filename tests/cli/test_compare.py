"""`abaca compare` and `abaca tune` as a person runs them."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest
import typer
from typer.testing import CliRunner, Result

from abaca.cli import compare, tune
from abaca.data.synthetic import synthetic_log
from abaca.errors import SpecError

ROWS = [
    "softmax", "softmax+Mi", "softmax+C", "softmax+CP", "softmax+CPR:9", "softmax+CPR:9+Mi", "softmax+CPR:3,6,9+Mi",
    "mos:3", "softmax+nodup",
]  # fmt: skip
STUDY = f"""
title = "All rows"
outputs = {json.dumps(ROWS)}
examples = ["softmax", "repeatnet", "softmax+CPR:9+Mi"]
baselines = ["popularity"]
[options]
epochs = EPOCHS
warmup = 1
size = 4
batch_targets = 400
[encoders.sasrec]
[encoders.gru4rec]
also = ["repeatnet"]
[sweep]
outputs = ["softmax"]
[sweep.options]
dropout = [0.0, 0.4]
[[data]]
name = "shop"
log = "shop.parquet"
items = "items.csv"
"""


def run(*words: object) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    for module in (compare, tune):
        module.add_to(app)
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def study(folder: Path, text: str = STUDY, epochs: int = 1) -> Path:
    (folder / "data").mkdir()
    log = synthetic_log("mixed", users=40, items=30, length=14, seed=0)
    pyarrow.parquet.write_table(log, folder / "data" / "shop.parquet")
    names = "".join(f"{item},Thing {item}\n" for item in range(30))
    (folder / "data" / "items.csv").write_text(f"item,title\n{names}", encoding="utf-8")
    (folder / "study.toml").write_text(text.replace("EPOCHS", str(epochs)), encoding="utf-8")
    return folder / "study.toml"


def test_one_command_gives_tables_figures_and_examples(tmp_path: Path) -> None:
    rows = ["softmax", "softmax+CPR:9+Mi"]
    path = study(tmp_path, STUDY.replace(json.dumps(ROWS), json.dumps(rows)).replace("[encoders.sasrec]", ""))
    result = run("compare", path, "--data", tmp_path / "data", "--jobs", 1, "--examples", "--to", tmp_path / "to")
    assert result.exit_code == 0
    assert "All rows: 3 of 3 rows tested" in result.stdout
    assert str(tmp_path / "to" / "report.html") in result.stdout
    assert "Thing " in result.stdout
    assert "gru4rec repeatnet" in result.stdout
    page = (tmp_path / "to" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 6
    for row in [*rows, "repeatnet", "popularity"]:
        assert f"<th>{row}</th>" in page


def test_mistakes_are_named(tmp_path: Path) -> None:
    path = study(tmp_path)
    with pytest.raises(SpecError, match="--jobs -1"):
        run("compare", path, "--jobs", -1)
    with pytest.raises(SpecError, match="no results yet"):
        run("compare", path, "--only-report")
    with pytest.raises(SpecError, match=r"shop.parquet does not exist; pass .* --data FOLDER"):
        run("compare", path)


def test_a_tuned_config_trains(tmp_path: Path) -> None:
    study(tmp_path)
    (tmp_path / "space.toml").write_text("lr = [0.001, 0.01]\n", encoding="utf-8")
    (tmp_path / "fixed.toml").write_text('output = "softmax+C"\ndim = 4\nwarmup = 1\n', encoding="utf-8")
    words = ["tune", tmp_path / "data" / "shop.parquet", tmp_path / "tuned", "--space", tmp_path / "space.toml"]
    words += ["--config", tmp_path / "fixed.toml", "--encoder", "sasrec", "--trials", 1, "--epochs", 1]
    result = run(*words)
    assert "best of 1 trials" in result.stdout
    best = (tmp_path / "tuned" / "best.toml").read_text(encoding="utf-8")
    assert 'output = "softmax+C"' in best
    assert "lr = 0.0" in best
    assert "1 trials are done already" in run(*words).stderr


def entries(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


@pytest.mark.slow
def test_killed_in_the_middle_it_finishes_without_doing_anything_twice(tmp_path: Path) -> None:
    path = study(tmp_path, epochs=2)
    command = [sys.executable, "-m", "abaca", "compare", str(path), "--data", str(tmp_path / "data"), "--jobs", "2"]
    results = tmp_path / "results.jsonl"
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 500
    while not results.exists() or sum(e["kind"] == "run" for e in entries(results)) < 4:
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()  # its workers notice and end by themselves
    first.wait()
    before = results.read_bytes()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "19 of 19 rows tested" in done.stdout
    assert results.read_bytes().startswith(before)
    found = [(entry["kind"], entry["id"]) for entry in entries(results)]
    assert len(found) == len(set(found))
    (tmp_path / "report.html").unlink()
    shutil.rmtree(tmp_path / "work")
    shutil.rmtree(tmp_path / "data")
    again = subprocess.run([*command, "--only-report"], capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f"<th>{row}</th>" in page for row in [*ROWS, "repeatnet"])
    assert page.count("<svg") == 6

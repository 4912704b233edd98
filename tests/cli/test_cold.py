"""`--features` and `--hold-out-items` on the command line: trained, evaluated, and what is printed of cold targets."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from commandline import Cli
from test_cold_items import item_table, log

QUICK = ["--epochs", "1", "--dim", "8", "--encoder", "gru4rec", "--output", "softmax", "--hold-out-items", "0.2"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "log.parquet", tmp_path / "items.parquet"
    for path, table in zip(paths, (log(), item_table()), strict=True):
        pyarrow.parquet.write_table(table, path)
    return paths


def test_cold_targets_are_reported(cli: Cli, files: tuple[Path, Path], tmp_path: Path) -> None:
    rows, items = files
    code, _, said = cli("train", rows, tmp_path / "model", "--items", items, "--features", "kind", *QUICK)
    assert code == 0, said
    code, _, said = cli("train", rows, tmp_path / "without", *QUICK)
    assert code == 0, said
    found = json.loads(cli("evaluate", tmp_path / "model", tmp_path / "without", rows, "--no-baselines", "--json")[1])
    (cold,) = found["cold"]
    assert cold["items"] == 12
    assert cold["targets"] == found["evaluations"][0]["cold"] == found["evaluations"][1]["cold"]
    assert [one["catalogue"] for one in found["evaluations"][:2]] == [60, 48]
    told = cli("evaluate", tmp_path / "model", rows, "--no-baselines")[1]
    assert f"{cold['targets']} targets are items that training never saw" in told
    assert "hr@10 of cold targets among 12 cold items" in told
    missed = cli("evaluate", tmp_path / "without", rows, "--no-baselines")[1]
    assert "that training never saw: they count as misses" in missed


def test_a_column_that_is_not_there_is_refused(cli: Cli, files: tuple[Path, Path], tmp_path: Path) -> None:
    rows, items = files
    code, _, said = cli("train", rows, tmp_path / "model", "--items", items, "--features", "colour", *QUICK)
    assert code != 0
    assert "no column 'colour'" in said

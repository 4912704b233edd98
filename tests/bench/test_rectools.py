"""The race beside RecTools, without RecTools: the data sent to it, and the table of the runs."""

import importlib.util
import json
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from abaca.data.sequences import Sequences
from abaca.errors import SpecError

FILE = Path(__file__).parents[2] / "benchmarks" / "race.py"


@pytest.fixture(scope="module")
def race() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rectools_race", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_peer_gets_the_training_rows_and_the_same_targets(
    race: ModuleType, small: Sequences, tmp_path: Path
) -> None:
    race.write_log(small, tmp_path / "log.npz")
    log = np.load(tmp_path / "log.npz")
    for user in range(small.users):
        mine = log["items"][log["users"] == user]
        assert mine.tolist() == small.items[small.offsets[user] : small.train_end[user]].tolist()
    assert log["valid_users"].tolist() == small.valid.users.tolist()
    assert log["valid_items"].tolist() == small.items[small.valid.positions].tolist()
    assert np.all(np.diff(log["times"])[np.diff(log["users"]) == 0] >= 0)


def test_the_best_figure_so_far(race: ModuleType) -> None:
    points = [{"cpu_seconds": 61.0, "masked": 0.2}, {"cpu_seconds": 301.0, "masked": 0.1}]
    assert race.best_until(points, 1, "masked") == race.best_until(points, 5, "masked") == 0.2
    assert race.best_until(points, 0.5, "masked") is None
    assert race.best_until(points, 1, "unmasked") is None


def test_a_report_of_the_runs(race: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has no runs"):
        race.report(Namespace(results=tmp_path))
    for model, figures in (("abaca", {"unmasked": 0.07}), ("hstu", {"masked": 0.05, "unmasked": 0.04})):
        points = [{"cpu_seconds": 60.0, **figures}, {"cpu_seconds": 300.0, **figures}]
        run = {"data": "films", "model": model, "system": model, "minutes": 5, "points": points}
        (tmp_path / f"films-{model}.json").write_text(json.dumps(run), encoding="utf-8")
    race.report(Namespace(results=tmp_path))
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| films | abaca | unmasked | 7.00 | 7.00 | – |" in table
    assert "| films | hstu | masked | 5.00 | 5.00 | – |" in table
    assert "<svg" in (tmp_path / "learning.svg").read_text(encoding="utf-8")


def test_a_python_that_does_not_exist_is_named(race: ModuleType, small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere cannot be run.*setup\.sh"):
        race.theirs(small, [60.0], Namespace(peer=tmp_path / "nowhere", model="hstu", seed=0))

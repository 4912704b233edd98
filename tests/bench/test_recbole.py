"""The race against RecBole, without RecBole: the data sent to it, and who is compared with whom."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from abaca.data.sequences import Sequences
from abaca.errors import SpecError

FOLDER = Path(__file__).parents[2] / "benchmarks" / "recbole"


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("race", FOLDER / "race.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_atomic_file_holds_every_history_in_order(race: ModuleType, small: Sequences, tmp_path: Path) -> None:
    sys.modules["peer"].write_atomic(small, tmp_path / "log.inter")
    head, *rows = (tmp_path / "log.inter").read_text().splitlines()
    assert head == "user_id:token\titem_id:token\ttimestamp:float"
    columns = np.array([row.split("\t") for row in rows], dtype=int)
    assert columns[:, 1].tolist() == small.items.tolist()
    for user in range(small.users):
        mine = columns[columns[:, 0] == user]
        assert mine[:, 2].tolist() == list(range(small.offsets[user + 1] - small.offsets[user]))


def test_each_model_is_compared_with_the_same_work_of_its_peer(race: ModuleType) -> None:
    assert (
        race.references("sasrec softmax+CPR:100+Mi, training, overlap 0")["RecBole"] == "RecBole: SASRecCPR, training"
    )
    given = race.references("gru4rec softmax, evaluation given states")
    assert given["RecBole"] == "RecBole: GRU4Rec, evaluation given states"
    assert race.references("RecBole: GRU4Rec, training") == {}


def test_a_python_that_does_not_exist_is_named(race: ModuleType, small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere cannot be run.*setup\.sh"):
        race.Peer(tmp_path / "nowhere", small)


def test_scores_of_the_peer_are_ranked_by_counting(race: ModuleType) -> None:
    class Fake:
        def spend(self, do: str, **request: object) -> None: ...

        def scores(self, model: str) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
            scores = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.3]])
            return scores, np.array([2, 0]), {"ndcg@10": 0.0, "hit@10": 1.0, "mrr@10": 0.5}

    found = race.same_scores(race.PAIRS["SASRec"], Fake())
    assert found["hr@10"] == (1.0, 1.0)
    assert found["mrr@10"] == (0.5, 0.5)  # both targets are second: one beaten, one tied

"""The race against another library: what is sent there, and how its scores are ranked here.

RecBole itself needs an environment of its own: where ABACA_PEER names its Python, the race is run on a small log.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from abaca.bench.learning import Curve, Point, figure, learn, learn_peer, pair_of, table
from abaca.bench.measure import Measurement, Spent
from abaca.bench.peer import Peer, write_atomic
from abaca.bench.peers import PAIRS, Given, PeersBench, faster
from abaca.bench.step import Enough
from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences
from abaca.data.synthetic import synthetic_log
from abaca.errors import SpecError
from abaca.nn.logits import Question, answer
from abaca.training.trainer import Step, TrainingOptions

PYTHON = Path(os.environ.get("ABACA_PEER", ""))
OPTIONS = TrainingOptions(batch_targets=100, targets=10, overlap=5)


def test_the_atomic_file_holds_every_history_in_order(small: Sequences, tmp_path: Path) -> None:
    write_atomic(small, tmp_path / "log.inter")
    head, *rows = (tmp_path / "log.inter").read_text().splitlines()
    assert head == "user_id:token\titem_id:token\ttimestamp:float"
    columns = np.array([row.split("\t") for row in rows], dtype=int)
    assert columns[:, 1].tolist() == small.items.tolist()
    for user in range(small.users):
        mine = columns[columns[:, 0] == user]
        assert mine[:, 2].tolist() == list(range(small.offsets[user + 1] - small.offsets[user]))


def test_given_scores_are_ranked_by_counting() -> None:
    scores = np.random.default_rng(0).random((300, 50)).astype(np.float32)
    targets = torch.arange(300) % 50
    nothing = torch.empty(300, 0, dtype=torch.long)
    found = answer(Given(scores), Question(targets, 10, nothing, nothing))
    order = np.argsort(-scores, axis=1)
    assert found.rank.tolist() == [1 + order[row].tolist().index(row % 50) for row in range(300)]
    assert found.items.tolist() == order[:, :10].tolist()


def test_every_model_here_has_its_rival() -> None:
    bench = PeersBench(Path("sequences"), Path("python"))
    assert bench.references("sasrec softmax+CPR:100+Mi, training, overlap 0") == {
        "RecBole": "RecBole: SASRecCPR, training",
        "RecBole with anomaly detection": "RecBole with anomaly detection: SASRecCPR, training",
    }
    assert bench.references("gru4rec softmax, evaluation given states")["RecBole"] == (
        "RecBole: GRU4Rec, evaluation given states"
    )
    assert bench.references("gru4rec softmax, metrics alone given states")["RecBole"] == (
        "RecBole: GRU4Rec, evaluation given states"
    )
    assert bench.references("RecBole: GRU4Rec, training") == {}
    assert [pair.peer for pair in bench.pairs] == [pair.peer for pair in PAIRS]


def test_part_of_the_time_is_told_as_times_faster() -> None:
    (found,) = faster([Measurement("a", (Spent(1.0, 1.0, 1),), {"RecBole": 0.05})])
    assert found.more == {"× RecBole": 20.0}
    assert found.ratios == {}


def test_a_peer_that_is_not_there_or_not_right_is_named(small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere cannot be run.*setup\.sh"):
        Peer(tmp_path / "nowhere", small)
    with pytest.raises(SpecError, match="there is no peer BERT"):
        PeersBench(Path("sequences"), Path("python"), models=("BERT",))
    with pytest.raises(SpecError, match="there is no peer BERT"):
        pair_of("BERT")


def test_validation_takes_no_part_in_the_time_of_training() -> None:
    now, told = [0.0], list[Point]()

    def later(seconds: float) -> float:
        now[0] += seconds
        return now[0] / 1000

    curve = Curve(lambda: later(70), 4.0, 2, told.append, lambda: now[0])
    for number in range(3):
        later(1)
        curve.on_step(Step(0, number + 1, 3, 0.0, 10 * (number + 1), 0.0))
    later(50)
    curve.on_epoch({})
    later(1)
    with pytest.raises(Enough):
        curve.on_step(Step(1, 1, 3, 0.0, 10, 0.0))
    assert [(point.cpu_seconds, point.targets) for point in told] == [(2.0, 20), (4.0, 40)]
    assert curve.points == told
    assert told[0].value == pytest.approx(0.072)


def test_training_for_some_time_makes_a_curve(small: Sequences) -> None:
    points = learn(pair_of("GRU4Rec"), small, OPTIONS, 0.1, 2, lambda point: None)
    assert points[-1].cpu_seconds >= 0.1
    assert 0 < points[-1].value < 1
    curves = {"here": points, "there": points[:1]}
    drawn = figure("Learning", curves)
    assert ">here<" in drawn
    assert ">there<" in drawn
    assert table("Learning", curves).count("| here |") == len(points)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.name, reason="ABACA_PEER does not name a Python that has RecBole")
def test_the_race_is_run(tmp_path: Path) -> None:
    with read_log(synthetic_log("copy-after-repeat", users=60, items=200, length=14, seed=5)) as log:
        sequences = prepare(log, tmp_path / "sequences")  # RecBole's CPR needs more than a hundred items
    bench = PeersBench(sequences.path, PYTHON, models=("GRU4RecCPR",), steps=1, peer_batches=1, peer_batch=32)
    contenders = bench.contenders()
    theirs = [run() for name, run in contenders.items() if name.startswith("RecBole")]
    assert [run.targets for run in theirs] == [32, 32, 60, 60]
    for ours, their in bench.sides.same_scores(bench.pairs[0]).values():
        assert ours == pytest.approx(their, abs=5e-5)
    points = learn_peer(bench.pairs[0], bench.sides.peer, 0.1, 1, lambda point: None)
    assert points[0].targets >= 32

"""Bursts of training, of whole steps on a log and of steps that grow."""

import pytest

from abaca.bench.growth import GrowthBench, RandomSequences
from abaca.bench.step import Burst, Enough, StepBench, burst
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.nn.build import make_model
from abaca.options import TrainingOptions
from abaca.training.callbacks import Step

OPTIONS = TrainingOptions(batch_targets=100, targets=10, overlap=5)


def test_a_burst_counts_the_steps_after_the_first() -> None:
    callback = Burst(2)
    callback.on_step(Step(0, 1, 9, 0.0, 100, 0.0))
    callback.on_step(Step(0, 2, 9, 0.0, 190, 0.0))
    with pytest.raises(Enough):
        callback.on_step(Step(0, 3, 9, 0.0, 270, 0.0))
    assert callback.spent.targets == 170


def test_a_burst_trains_the_model(small: Sequences) -> None:
    model = make_model("gru4rec", "softmax", small.catalogue.size, dim=8, hidden=8)
    before = model.items.weight.detach().clone()
    spent = burst(model, small, OPTIONS, 3)
    assert 200 <= spent.targets <= 400
    assert spent.cpu > 0
    assert not before.equal(model.items.weight)


def test_a_log_with_too_few_steps_is_refused(small: Sequences) -> None:
    model = make_model("gru4rec", "softmax", small.catalogue.size, dim=8, hidden=8)
    with pytest.raises(SpecError, match="fewer --steps"):
        burst(model, small, OPTIONS, 7)


def test_layers_are_compared_with_their_own_encoder(small: Sequences) -> None:
    bench = StepBench(small.path, ("gru4rec",), ("softmax", "softmax+C"), 10, 5, 100, 1)
    contenders = bench.contenders()
    assert list(contenders) == ["gru4rec softmax", "gru4rec softmax+C"]
    assert bench.references("gru4rec softmax+C")["softmax"] == "gru4rec softmax"
    assert contenders["gru4rec softmax+C"]().targets == pytest.approx(100, abs=20)


def test_one_size_grows_at_a_time() -> None:
    bench = GrowthBench((40, 60), (5, 10), (1, 2), rows=20, encoder="gru4rec", output="softmax+CPR:3", middle=60)
    names = [
        "40 items, history 5, 1 thread",
        "60 items, history 5, 1 thread",
        "60 items, history 10, 1 thread",
        "60 items, history 5, 2 threads",
    ]
    assert list(bench.contenders()) == names
    assert set(bench.references(names[0]).values()) == {names[1]}
    assert [bench.contenders()[name]().targets for name in names] == [20] * 4


def test_drawn_histories_repeat_and_stay_in_the_catalogue() -> None:
    drawn = RandomSequences(items=30, history=10, users=4)
    assert drawn.items.min() >= 0
    assert drawn.items.max() < 30
    assert len(set(drawn.items.tolist())) < len(drawn.items) == drawn.offsets[-1] == 44


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SpecError, match="longest history"):
        GrowthBench(rows=10, histories=(50,))
    with pytest.raises(SpecError, match="items must be one or more sizes"):
        GrowthBench(items=(0,))
    with pytest.raises(SpecError, match="middle must be above 0"):
        GrowthBench(middle=0)

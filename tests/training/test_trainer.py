"""The training loop: seeds, options, schedules, early stopping, and resuming to the bit."""

import dataclasses
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.data.synthetic import synthetic_log
from abaca.errors import ModelError, SequencesError, SpecError, TrainingError
from abaca.nn.build import make_model
from abaca.options import TrainingOptions
from abaca.recommender import Recommender
from abaca.training.callbacks import Callback, Step
from abaca.training.start import start_from_counts
from abaca.training.state import LOCK, RECORD, STATE, locked_run, save_state
from abaca.training.trainer import Trainer, swapped
from abaca.types import Record

QUICK = TrainingOptions(
    epochs=3, lr=0.02, warmup=4, batch_targets=100, targets=5, overlap=4, window=8, average=0.0, patience=0
)


class Run(NamedTuple):
    weights: dict[str, Tensor]
    records: list[Record]
    trainer: Trainer

    @property
    def figures(self) -> list[Record]:
        """The record without its times."""
        return [{key: record[key] for key in record if "seconds" not in key} for record in self.records]


class Cut(Exception):
    """The run ends here, as if the machine had gone."""


class CutAt(Callback):
    """Saves the state after a step, then stops the run at another."""

    def __init__(self, trainer: Trainer, folder: Path, save_at: int, cut_at: int) -> None:
        self.trainer, self.folder, self.save_at, self.cut_at = trainer, folder, save_at, cut_at

    def on_step(self, step: Step) -> None:
        taken = self.trainer.progress["taken"]
        if taken == self.save_at:
            save_state(self.folder, self.trainer.state(), self.trainer.progress)
        if taken == self.cut_at:
            raise Cut


def trainer_for(sequences: Sequences, options: TrainingOptions, output: str = "softmax+CPR:5", **more: Any) -> Trainer:
    """A fresh model that drops out, so that the state of the random numbers matters."""
    torch.manual_seed(options.seed)
    model = make_model("gru4rec", output, sequences.catalogue.size, dim=8, hidden=8, dropout=0.2)
    if options.start == "counts":
        start_from_counts(model, sequences.training(), options.seed)
    return Trainer(model, sequences, options, **more)


def finish(trainer: Trainer, callback: Callback | None = None) -> Run:
    trainer.run(callback or Callback())
    weights = {name: weight.detach().clone() for name, weight in trainer.weights.items()}
    return Run(weights, trainer.progress["records"], trainer)


def train(sequences: Sequences, options: TrainingOptions = QUICK, **more: Any) -> Run:
    return finish(trainer_for(sequences, options, **more))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_loss_goes_down(small: Sequences) -> None:
    records = train(small).records
    losses = [record["loss"] for record in records]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < math.log(40) + 0.1  # where a fresh model begins: all 40 items alike
    assert losses[-1] < losses[0] - 0.3
    assert [record["targets"] for record in records] == [small.training_targets] * QUICK.epochs


def test_same_seed_same_weights_other_seed_other_weights(small: Sequences) -> None:
    torch.manual_seed(123)
    one = train(small)
    torch.manual_seed(456)
    assert same(one.weights, train(small).weights)
    assert one.figures == train(small).figures
    assert not same(one.weights, train(small, dataclasses.replace(QUICK, seed=1)).weights)


OTHER: dict[str, Any] = {
    "epochs": 4, "lr": 0.01, "schedule": "constant", "warmup": 9, "batch_targets": 60, "targets": 7, "overlap": 2,
    "window": 3, "weight_decay": 0.1, "clip": 0.1, "average": 0.9, "stop_after": 2, "patience": 1, "metric": "mrr@5",
    "seed": 7, "start": "counts", "share": 0.5, "ahead": 0.5,
}  # fmt: skip


OF_ITEMS = ("features", "feature_dropout")
"""Options of models that read an item table; see `test_cold_items.py`."""


@pytest.mark.parametrize(
    "field", [each.name for each in dataclasses.fields(TrainingOptions) if each.name not in OF_ITEMS]
)
def test_every_option_changes_something(small: Sequences, field: str, tmp_path: Path) -> None:
    if field == "checkpoint_minutes":  # changes when the state is saved and must change nothing else
        often, never = (dataclasses.replace(QUICK, checkpoint_minutes=minutes) for minutes in (0.0, 9.0))
        assert saves(small, often, tmp_path) > saves(small, never, tmp_path) == QUICK.epochs
        assert same(train(small, often).weights, train(small, never).weights)
        return
    if field == "event_weights":  # tested in test_eventtypes.py
        with pytest.raises(SpecError, match="`event_weights` needs types of events"):
            train(small, dataclasses.replace(QUICK, event_weights="buy=2"))
        return
    before = dataclasses.replace(QUICK, epochs=8, lr=0.05) if field == "patience" else QUICK
    output = "softmax+CP" if field == "share" else "softmax+CPR:5"  # R reads all items
    changed = dataclasses.replace(before, **{field: OTHER[field]})
    one, other = (train(small, options, output=output) for options in (before, changed))
    assert one.figures != other.figures


def test_only_item_tables_decay(small: Sequences) -> None:
    """Where a step has no gradients, AdamW takes lr · weight_decay of the weights off."""
    options = dataclasses.replace(QUICK, weight_decay=0.5)
    trainer = trainer_for(small, options, output="repeatnet")
    before = {name: weight.detach().clone() for name, weight in trainer.weights.items()}
    for weight in trainer.weights.values():
        weight.grad = torch.zeros_like(weight)
    trainer.optimizer.step()
    tables = {id(table.weight) for table in (trainer.model.items, *trainer.model.output.item_tables)}
    assert len(tables) == 2
    for name, weight in trainer.weights.items():
        share = 1 - options.lr * 0.5 if id(weight) in tables else 1.0
        torch.testing.assert_close(weight.detach(), share * before[name], atol=1e-6, rtol=1e-5)


def test_a_layer_that_reads_all_items_refuses_a_share(small: Sequences) -> None:
    with pytest.raises(SpecError, match=r"softmax\+CPR:5 reads all items: leave out share"):
        trainer_for(small, dataclasses.replace(QUICK, share=0.5))


def saves(sequences: Sequences, options: TrainingOptions, folder: Path) -> int:
    """How often a run writes its state."""
    written = 0
    trainer = trainer_for(sequences, options)
    state = trainer.state

    def counted() -> dict[str, Tensor]:
        nonlocal written
        written += 1
        return state()

    trainer.state = counted  # type: ignore[method-assign]
    trainer.run(Callback(), folder)
    return written


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("schedule", "cosin", "not one of cosine, linear, constant"),
        ("epochs", 0, "epochs must be above 0"),
        ("lr", -1.0, "lr must be above 0"),
        ("batch_targets", 0, "batch_targets must be above 0"),
        ("targets", 0, "targets must be above 0"),
        ("window", 0, "window must be above 0"),
        ("overlap", -1, "overlap must not be negative"),
        ("warmup", -1, "warmup must not be negative"),
        ("clip", -0.1, "clip must not be negative"),
        ("weight_decay", -0.1, "weight_decay must not be negative"),
        ("patience", -1, "patience must not be negative"),
        ("stop_after", -1, "stop_after must not be negative"),
        ("checkpoint_minutes", -1.0, "checkpoint_minutes must not be negative"),
        ("average", 1.0, r"average must be in \[0, 1\)"),
        ("metric", "ndcg", "not like ndcg@10"),
        ("metric", "ndcg@0", "not like ndcg@10"),
        ("metric", "recall@5", "not like ndcg@10"),
    ],
)
def test_options_that_make_no_sense_are_refused(field: str, value: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        TrainingOptions(**{field: value})


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1 / 4, 2 / 4, 3 / 4, 1, 1, 1, 1, 1]),
        ("linear", [1 / 4 * 1, 2 / 4 * 7 / 8, 3 / 4 * 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (
            "cosine",
            [min(1, (k + 1) / 4) * (1 + math.cos(math.pi * k / 8)) / 2 for k in range(8)],
        ),
    ],
)
def test_schedules_by_hand(small: Sequences, schedule: str, expected: list[float]) -> None:
    """Eight steps in two epochs, four of them warm-up; after them the rate is at its end."""
    options = dataclasses.replace(QUICK, epochs=2, batch_targets=174, schedule=schedule, lr=0.5)
    trainer = trainer_for(small, options)
    assert trainer.steps_per_epoch == 4
    used: list[float] = []

    class Rates(Callback):
        def on_step(self, step: Step) -> None:
            used.append(trainer.optimizer.param_groups[0]["lr"])

    run = finish(trainer, Rates())
    assert used == pytest.approx([0.5 * rate for rate in expected])
    assert run.records[-1]["lr"] == pytest.approx(0.5 if schedule == "constant" else 0)


def test_without_warmup_the_first_step_has_the_whole_rate(small: Sequences) -> None:
    trainer = trainer_for(small, dataclasses.replace(QUICK, warmup=0))
    assert trainer._rate() == 1


def test_early_stopping_keeps_the_best_weights(small: Sequences) -> None:
    options = dataclasses.replace(QUICK, epochs=12, lr=0.1, patience=2, schedule="constant")
    trainer = trainer_for(small, options)
    after: list[dict[str, Tensor]] = []

    class Keep(Callback):
        def on_epoch(self, record: Record) -> None:
            after.append({name: weight.detach().clone() for name, weight in trainer.weights.items()})

    run = finish(trainer, Keep())
    figures = [record["ndcg@10"] for record in run.records]
    best = figures.index(max(figures))
    assert len(figures) == best + 1 + 2 < 12
    assert trainer.progress["best_epoch"] == best
    assert trainer.progress["best"] == max(figures)
    assert same(run.weights, after[best])
    assert not same(run.weights, after[-1])
    assert not trainer.model.training


def test_without_patience_training_goes_to_the_end_and_keeps_the_best(small: Sequences) -> None:
    run = train(small, dataclasses.replace(QUICK, epochs=6, lr=0.1, patience=0))
    figures = [record["ndcg@10"] for record in run.records]
    assert len(figures) == 6
    assert run.trainer.progress["best_epoch"] == figures.index(max(figures))


def test_stop_after_cuts_the_schedule_short(small: Sequences) -> None:
    whole = train(small)
    short = train(small, dataclasses.replace(QUICK, stop_after=2))
    assert short.figures == whole.figures[:2]
    assert short.records[-1]["lr"] > 0
    assert len(train(small, dataclasses.replace(QUICK, stop_after=9)).records) == QUICK.epochs


def test_clipping_bounds_the_gradient(small: Sequences) -> None:
    trainer = trainer_for(small, dataclasses.replace(QUICK, clip=0.01))
    norms: list[float] = []

    class Norms(Callback):
        def on_step(self, step: Step) -> None:
            gradients = [weight.grad for weight in trainer.weights.values()]
            assert all(gradient is not None for gradient in gradients)
            norms.append(float(torch.stack([g.norm() for g in gradients if g is not None]).norm()))

    finish(trainer, Norms())
    assert max(norms) <= 0.01 * 1.001


def test_the_running_average_by_hand(small: Sequences) -> None:
    """What is kept is a ← a + (1 − decay)(w − a) after each step, with a decay that begins small."""
    options = dataclasses.replace(QUICK, epochs=1, average=0.6)
    trainer = trainer_for(small, options)
    name = "items.weight"
    expected = trainer.weights[name].detach().clone().double()
    count = 0

    class Follow(Callback):
        def on_step(self, step: Step) -> None:
            nonlocal expected, count
            count += 1
            decay = min(0.6, (1 + count) / (10 + count))
            expected = expected + (1 - decay) * (trainer.weights[name].detach().double() - expected)

    run = finish(trainer, Follow())
    assert count == trainer.steps_per_epoch
    torch.testing.assert_close(run.weights[name].double(), expected, rtol=0, atol=1e-6)
    assert not same(run.weights, train(small, dataclasses.replace(options, average=0.0)).weights)


def test_validation_sees_the_average_and_training_goes_on_without_it(small: Sequences) -> None:
    plain, averaged = (train(small, dataclasses.replace(QUICK, average=average)) for average in (0.0, 0.9))
    assert [r["loss"] for r in plain.records] == [r["loss"] for r in averaged.records]
    assert [r["ndcg@10"] for r in plain.records] != [r["ndcg@10"] for r in averaged.records]


def test_swapped_gives_the_weights_back() -> None:
    weights, other = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 4.0])}
    with swapped(weights, other):
        assert weights["w"].tolist() == [3.0, 4.0]
        assert other["w"].tolist() == [1.0, 2.0]
    assert weights["w"].tolist() == [1.0, 2.0]
    assert other["w"].tolist() == [3.0, 4.0]


def test_training_on_everything_trains_the_held_out_targets_and_does_not_validate(small: Sequences) -> None:
    run = train(small, everything=True)
    assert {record["targets"] for record in run.records} == {len(small.items) - small.users}
    assert all("ndcg@10" not in record for record in run.records)
    assert run.trainer.best is None


def test_nothing_to_train_on_is_refused(tmp_path: Path) -> None:
    table = {"user": [1, 1, 1, 2, 2, 2], "item": [1, 2, 3, 1, 2, 3], "time": [1, 2, 3, 1, 2, 3]}
    with read_log(pyarrow.table(table)) as log:
        sequences = prepare(log, tmp_path / "s", options=PrepareOptions(min_user=1))
    with pytest.raises(SequencesError, match="nothing to train on"):
        trainer_for(sequences, QUICK)


@pytest.mark.parametrize(("average", "patience", "output"), [(0.0, 0, "softmax+CPR:5"), (0.8, 1, "mos:2+C+Mi")])
def test_resuming_at_any_step_gives_the_same_weights_and_record(
    small: Sequences, tmp_path: Path, average: float, patience: int, output: str
) -> None:
    options = dataclasses.replace(QUICK, average=average, patience=patience, lr=0.05)
    whole = finish(trainer_for(small, options, output))
    steps = whole.trainer.progress["taken"]
    assert steps > 12
    for at in range(1, steps + 1, 2):
        cut = trainer_for(small, options, output)
        later = min(at + at % 4, steps)  # steps after the state was saved are lost
        with pytest.raises(Cut):
            cut.run(CutAt(cut, tmp_path, at, later))
        torch.manual_seed(999)
        resumed = trainer_for(small, dataclasses.replace(options), output)
        torch.rand(3)
        resumed.resume(tmp_path)
        run = finish(resumed)
        assert same(run.weights, whole.weights), f"cut after step {at}"
        assert run.figures == whole.figures


@pytest.mark.parametrize("output", ["softmax", "softmax+R:3", "mos-mix:2", "repeatnet", "softmax+CPR:3,6+Mi+nodup"])
@pytest.mark.parametrize("encoder", ["gru4rec", "sasrec", "hstu"])
def test_the_state_holds_everything_for_every_kind_of_model(
    small: Sequences, tmp_path: Path, encoder: str, output: str
) -> None:
    options = dataclasses.replace(QUICK, epochs=1, average=0.5)
    sizes: dict[str, Any] = {"dim": 4, "dropout": 0.1} | {"sasrec": {"window": 9}, "gru4rec": {"hidden": 4}}.get(
        encoder, {}
    )

    def made() -> Trainer:
        torch.manual_seed(0)
        return Trainer(make_model(encoder, output, small.catalogue.size, **sizes), small, options)

    whole = finish(made())
    cut = made()
    with pytest.raises(Cut):
        cut.run(CutAt(cut, tmp_path, 3, 3))
    resumed = made()
    resumed.resume(tmp_path)
    assert same(finish(resumed).weights, whole.weights)


def quick_recommender(**options: Any) -> Recommender:
    sizes = {"dim": 8, "hidden": 8, "dropout": 0.2}
    return Recommender("gru4rec", "softmax+C", **{**dataclasses.asdict(QUICK), **sizes, **options})


class CutAfter(Callback):
    """Stops at a step of an epoch."""

    def __init__(self, epoch: int, step: int) -> None:
        self.at = (epoch, step)

    def on_step(self, step: Step) -> None:
        if (step.epoch, step.step) == self.at:
            raise Cut


def lines(folder: Path) -> list[Record]:
    records = [json.loads(line) for line in (folder / RECORD).read_text().splitlines()]
    return [{key: record[key] for key in record if "seconds" not in key} for record in records]


@pytest.mark.parametrize("at", [(0, 1), (0, 5), (1, 2), (2, 6)])
def test_a_run_in_a_folder_resumes_with_the_same_record(small: Sequences, tmp_path: Path, at: tuple[int, int]) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    quick_recommender(checkpoint_minutes=0.0).fit(small, folder=whole)
    with pytest.raises(Cut):
        quick_recommender(checkpoint_minutes=0.0).fit(small, folder=cut, callback=CutAfter(*at))
    with (cut / RECORD).open("a") as record:
        record.write('{"epoch": 0, "lo')  # killed while it wrote a line
    resumed = quick_recommender(checkpoint_minutes=0.0).fit(small, folder=cut, resume=True)
    assert lines(cut) == lines(whole)
    assert len(lines(cut)) == QUICK.epochs
    assert (whole / "model.json").read_text().count("weights-") == 1
    assert sorted(path.name for path in whole.glob("weights-*")) == sorted(path.name for path in cut.glob("weights-*"))
    assert not (cut / STATE).exists()
    assert resumed.saved is not None


def test_a_resumed_run_keeps_its_number_of_threads(small: Sequences, tmp_path: Path) -> None:
    before, whole, cut = torch.get_num_threads(), tmp_path / "whole", tmp_path / "cut"
    try:
        torch.set_num_threads(1)
        quick_recommender(checkpoint_minutes=0.0).fit(small, folder=whole)
        with pytest.raises(Cut):
            quick_recommender(checkpoint_minutes=0.0).fit(small, folder=cut, callback=CutAfter(1, 1))
        torch.set_num_threads(3)
        seen = []

        class Threads(Callback):
            def on_step(self, step: Step) -> None:
                seen.append(torch.get_num_threads())

        quick_recommender(checkpoint_minutes=0.0).fit(small, folder=cut, resume=True, callback=Threads())
        assert set(seen) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert sorted(path.name for path in whole.glob("weights-*")) == sorted(path.name for path in cut.glob("weights-*"))


def test_resuming_a_finished_run_trains_nothing(small: Sequences, tmp_path: Path) -> None:
    one = quick_recommender().fit(small, folder=tmp_path)
    before = (tmp_path / RECORD).read_text()

    class Never(Callback):
        def on_step(self, step: Step) -> None:
            raise AssertionError("a finished run was trained again")

    again = quick_recommender().fit(small, folder=tmp_path, resume=True, callback=Never())
    assert one.saved is not None
    assert again.saved is not None
    assert same(dict(one.saved.model.state_dict()), dict(again.saved.model.state_dict()))
    assert (tmp_path / RECORD).read_text() == before
    assert again.evaluate().mean("ndcg@10") == one.evaluate().mean("ndcg@10")


def test_resuming_another_run_is_refused_and_says_what_differs(small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        quick_recommender(checkpoint_minutes=0.0).fit(small, folder=tmp_path, callback=CutAfter(0, 3))
    differs = "dim 8, not 4; lr 0.02, not 0.5; resume with the options it began with"
    with pytest.raises(ModelError, match=differs) as caught:
        quick_recommender(checkpoint_minutes=0.0, lr=0.5, dim=4).fit(small, folder=tmp_path, resume=True)
    assert str(tmp_path) in str(caught.value)


def test_a_folder_takes_one_run_at_a_time(small: Sequences, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with locked_run(folder, keep=True):
        for flags in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(ModelError, match="is being written by another process; wait for it"):
                quick_recommender().fit(small, folder=folder, **flags)
    assert not folder.exists()  # nothing was written there
    quick_recommender().fit(small, folder=folder)
    assert not (folder / LOCK).exists()


def test_a_run_that_was_stopped_is_not_lost_by_mistake(small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        quick_recommender(checkpoint_minutes=0.0).fit(small, folder=tmp_path, callback=CutAfter(0, 3))
    state = (tmp_path / STATE).read_bytes()
    with pytest.raises(ModelError, match="holds a run that was stopped; `resume=True` continues it"):
        quick_recommender().fit(small, folder=tmp_path)
    assert (tmp_path / STATE).read_bytes() == state
    quick_recommender().fit(small, folder=tmp_path, overwrite=True)
    assert not (tmp_path / STATE).exists()


def test_a_damaged_state_is_refused(small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        quick_recommender(checkpoint_minutes=0.0).fit(small, folder=tmp_path, callback=CutAfter(0, 3))
    state = tmp_path / STATE
    state.write_bytes(state.read_bytes()[:-10])
    with pytest.raises(ModelError, match=r"run.safetensors cannot be read .* train from the start"):
        quick_recommender(checkpoint_minutes=0.0).fit(small, folder=tmp_path, resume=True)


KILLS = 10
CONFIG = """
encoder = "gru4rec"
output = "softmax+CPR:5"
epochs = 20
batch_targets = 60
targets = 5
overlap = 5
dim = 8
hidden = 8
dropout = 0.2
average = 0.9
patience = 0
checkpoint_minutes = 0.0
"""


@pytest.mark.slow
def test_killed_at_ten_random_moments_it_reaches_the_same_weights(tmp_path: Path) -> None:
    """`kill -9` and `--resume`, for real; killed before anything was saved, a run begins anew, which is the same."""
    sequences, config = tmp_path / "sequences", tmp_path / "run.toml"
    with read_log(synthetic_log("copy-after-repeat", users=150, items=50, length=14, seed=1)) as log:
        prepare(log, sequences)
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "abaca", "train", str(sequences)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(folder: Path, *flags: str) -> "subprocess.Popen[bytes]":
        arguments = [*command, str(folder), "--config", str(config), *flags]
        with (tmp_path / "said").open("ab") as said:
            return subprocess.Popen(arguments, env=environment, stdout=said, stderr=said)

    began = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    needed = time.monotonic() - began
    rng, states = random.Random(0), set()
    for _ in range(KILLS):
        run = start(tmp_path / "killed", "--resume")
        state = tmp_path / "killed" / STATE
        seen = state.stat().st_mtime_ns if state.exists() else 0
        deadline = time.monotonic() + 3 * needed
        while time.monotonic() < deadline and run.poll() is None:  # it trains again: then kill it somewhere
            if state.exists() and state.stat().st_mtime_ns != seen:
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.2))
        run.send_signal(signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        states.add(state.stat().st_mtime_ns)
    assert len(states) == KILLS  # every run went on a little
    last = start(tmp_path / "killed", "--resume")
    assert last.wait() == 0, (tmp_path / "said").read_text()
    whole, killed = (load_file(next((tmp_path / name).glob("weights-*"))) for name in ("whole", "killed"))
    assert same(whole, killed)
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")


def test_training_that_diverges_stops_and_says_how_to_go_on(small: Sequences) -> None:
    trainer = trainer_for(small, QUICK)
    with torch.no_grad():
        trainer.weights["items.weight"][0] = torch.nan
    with pytest.raises(TrainingError, match="diverged; lower lr"):
        trainer.run(Callback())


class Spoil(Callback):
    """Ruins the weights in an epoch, as a loss would that explodes."""

    def __init__(self, trainer: Trainer, epoch: int, value: float) -> None:
        self.trainer, self.epoch, self.value = trainer, epoch, value

    def on_step(self, step: Step) -> None:
        if (step.epoch, step.step) == (self.epoch, step.steps):
            with torch.no_grad():
                for weight in self.trainer.weights.values():
                    weight.fill_(self.value)


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("value", [torch.nan, 1e38])
def test_training_that_diverges_after_good_epochs_keeps_the_best(
    small: Sequences, value: float, average: float
) -> None:
    options = dataclasses.replace(QUICK, epochs=4, average=average)
    good = train(small, dataclasses.replace(options, stop_after=2))
    trainer = trainer_for(small, options)
    ruined = finish(trainer, Spoil(trainer, 2, value))
    assert same(ruined.weights, good.weights)
    assert trainer.progress["best_epoch"] == good.trainer.progress["best_epoch"]
    best = trainer.progress["best_epoch"] + 1
    assert (
        f"training diverged; lower lr (now 0.02) or set clip, such as 1. The model is that of epoch {best}"
        in (trainer.progress["diverged"])
    )


@pytest.mark.parametrize("value", [torch.nan, 1e38])
@pytest.mark.parametrize("everything", [False, True])
def test_weights_that_cannot_answer_after_the_last_step_are_not_kept(
    small: Sequences, value: float, everything: bool
) -> None:
    """The loss was finite in every step, so only the weights show it; they would validate as perfect."""
    trainer = trainer_for(small, dataclasses.replace(QUICK, epochs=1), everything=everything)
    with pytest.raises(TrainingError, match=r"not finite in epoch 1, .*training diverged; lower lr"):
        trainer.run(Spoil(trainer, 0, value))


def test_a_model_says_that_its_training_diverged(
    small: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def exploding(self: Trainer, batch: Any) -> tuple[float, int]:
        if self.progress["epoch"] == 1:
            with torch.no_grad():
                self.weights["items.weight"].fill_(torch.nan)
        return step(self, batch)

    monkeypatch.setattr(Trainer, "_step", exploding)
    recommender = Recommender("gru4rec", "softmax", epochs=3, dim=8, hidden=8, window=8, lr=0.02)
    recommender.fit(small, folder=tmp_path)
    loaded = Recommender.load(tmp_path)
    assert loaded.saved is not None
    assert "The model is that of epoch 1, the best before" in loaded.saved.training["diverged"]
    assert len(loaded.recommend([loaded.saved.catalogue.ids[0]])) == 10


def test_the_warm_up_of_a_short_run_is_short(small: Sequences) -> None:
    trainer = trainer_for(small, dataclasses.replace(QUICK, epochs=2, warmup=10_000, schedule="constant"))
    trainer.progress["taken"] = trainer.steps_per_epoch
    assert trainer._rate() == 1.0

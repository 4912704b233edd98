"""The best model within a time: what is tried, what is chosen, and how long it takes, on a clock of its own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from abaca.auto import around
from abaca.data.sequences import Sequences
from abaca.data.synthetic import synthetic_log
from abaca.errors import ModelError, SpecError, TrainingError
from abaca.options import TrainingOptions
from abaca.recommender import Recommender, load
from abaca.training import budget
from abaca.training.budget import Clock, seconds_of
from abaca.training.callbacks import Callback, Callbacks, End, Start
from abaca.training.candidates import candidates
from abaca.training.halving import LONGEST, Search
from abaca.training.run import Run
from abaca.types import Record


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), (" 2 M ", 120), ("0.5m", 30)]
)
def test_times_are_read(written: str, seconds: float) -> None:
    assert seconds_of(written) == seconds


@pytest.mark.parametrize("written", ["20", "m", "-5m", "20x", "", "1h30m", "nan", 20, "inf m"])
def test_other_texts_are_refused(written: Any) -> None:
    with pytest.raises(SpecError, match="is not a time; write a number with its unit, such as 90s"):
        seconds_of(written)


def test_no_time_is_refused() -> None:
    with pytest.raises(SpecError, match="leaves no time"):
        seconds_of("0m")


class Time:
    """A clock that only training moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(budget, "time", found)
    return found


@dataclass(frozen=True)
class Pretended(Run):
    """A run whose epochs take `cost` seconds, and whose figure grows with its epochs up to `quality`."""

    time: Time = field(default_factory=Time)
    quality: float = 0.5
    cost: float = 1.0
    overhead: float = 0.0
    diverges: bool = False

    def train(self, *_: Any, callbacks: Sequence[Callback] = (), **__: Any) -> Any:
        callback = Callbacks(callbacks)
        callback.on_start(Start("sasrec", "softmax", {}, {}, self.epochs))
        if self.diverges:
            raise TrainingError("the loss is nan")
        epochs = 0
        record = {"seconds": self.cost / 2, "validation_seconds": self.cost / 2}
        while epochs < self.options.epochs and not (epochs and callback.stops):
            self.time.now += self.cost
            epochs += 1
            callback.on_epoch(record)
        self.time.now += self.overhead
        records = [record] * epochs
        training = {"records": records, "epochs": epochs, "quality": self.quality, "best": 1.0, "best_epoch": 0}
        return SimpleNamespace(figure=self.quality * (1 - 0.5**epochs), training=training)


class Trials(Callback):
    """Gathers the trials."""

    def __init__(self) -> None:
        self.found: list[Record] = []
        self.last: list[int] = []
        self.ended = ""

    def on_trial(self, trial: Record) -> None:
        self.found.append(trial)

    def on_start(self, start: Start) -> None:
        self.last.append(start.epochs)

    def on_end(self, end: End) -> None:
        self.ended = end.status


def pretended(time: Time, qualities: list[float], cost: float = 1.0, epochs: int = 16) -> tuple[Pretended, ...]:
    options = TrainingOptions(epochs=epochs)
    return tuple(
        Pretended("sasrec", "softmax", {"dim": 8}, options, time=time, quality=q, cost=cost) for q in qualities
    )


def found_by(runs: tuple[Pretended, ...], seconds: float, small: Sequences) -> tuple[Any, Trials]:
    trials = Trials()
    saved = Search(runs).train(small, torch.device("cpu"), Clock(seconds), callbacks=[trials])
    return saved, trials


def test_the_better_third_is_trained_longer_and_the_best_to_the_end(time: Time, small: Sequences) -> None:
    qualities = [0.3, 0.1, 0.5, 0.2, 0.6, 0.4]
    saved, trials = found_by(pretended(time, qualities), 100.0, small)
    rounds = [(trial["candidate"], trial["epochs"]) for trial in trials.found]
    assert rounds == [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (4, 6), (2, 6)]
    assert saved.training["quality"] == 0.6
    assert trials.last == [LONGEST]
    assert saved.training["epochs"] == LONGEST
    assert [trial["figure"] for trial in saved.training["budget"]["trials"]] == [t["figure"] for t in trials.found]


@pytest.mark.parametrize("seconds", [1.0, 3.0, 10.0, 33.0, 60.0, 200.0])
@pytest.mark.parametrize("cost", [0.5, 2.0, 7.0, 50.0])
@pytest.mark.parametrize("overhead", [0.0, 0.5, 2.0])
def test_the_time_is_kept_but_for_one_epoch(
    time: Time, small: Sequences, seconds: float, cost: float, overhead: float
) -> None:
    runs = [replace(run, overhead=overhead) for run in pretended(time, [0.3, 0.4, 0.5, 0.6, 0.7, 0.2], cost)]
    saved, trials = found_by(tuple(runs), seconds, small)
    first = cost + overhead  # trained in any case
    assert time.now <= max(first, seconds + cost)
    assert saved.figure >= max(trial["figure"] for trial in trials.found)


def test_the_last_training_has_the_epochs_that_fit(time: Time, small: Sequences) -> None:
    saved, trials = found_by(pretended(time, [0.5]), 20.0, small)
    assert [trial["epochs"] for trial in trials.found] == [2]
    assert trials.last == [17]  # 18 seconds are left, and 5 % of slack
    assert saved.training["epochs"] == 17


def test_a_run_that_diverges_is_recorded_and_not_chosen(time: Time, small: Sequences) -> None:
    bad, good = pretended(time, [0.9, 0.1])
    saved, trials = found_by((replace(bad, diverges=True), good), 50.0, small)
    assert saved.training["quality"] == 0.1
    assert trials.found[0]["error"] == "the loss is nan"
    with pytest.raises(TrainingError, match="within the budget: the loss is nan"):
        found_by((replace(bad, diverges=True),), 50.0, small)


def test_options_are_changed_one_at_a_time_and_given_ones_never() -> None:
    changes = around({"lr": 0.001, "dropout": 0.1, "dim": 64}, {"dim"})
    assert changes == [{}, {"lr": 0.002}, {"dropout": 0.0}, {"lr": 0.0005}, {"dropout": 0.25}]
    run = Run("sasrec", "softmax", {"dim": 64, "dropout": 0.1}, TrainingOptions(lr=0.001))
    made = candidates([run, replace(run, encoder="gru4rec")], {"dim", "lr"})
    assert [(each.encoder, each.encoder_options["dropout"]) for each in made] == [
        ("sasrec", 0.1), ("gru4rec", 0.1), ("sasrec", 0.0), ("gru4rec", 0.0), ("sasrec", 0.25), ("gru4rec", 0.25),
    ]  # fmt: skip


QUICK: dict[str, Any] = {"epochs": 2, "warmup": 1, "dim": 8, "dropout": 0.1, "batch_targets": 200, "min_user": 3}


@pytest.fixture(scope="module")
def log() -> Any:
    return synthetic_log(rule="mixed", users=60, items=30, length=12, seed=0)


class Stop(Trials):
    """Interrupts a search after some trials."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def on_trial(self, trial: Record) -> None:
        super().on_trial(trial)
        if len(self.found) == self.after:
            raise KeyboardInterrupt


def test_a_model_within_a_budget_is_a_model_like_any_other(log: Any, tmp_path: Path) -> None:
    trials = Trials()
    model = Recommender(output="softmax+followers", lr=0.01, **QUICK)
    made = model.fit(log, budget="1h", folder=tmp_path / "model", callback=trials)
    again = load(tmp_path / "model")
    assert again.saved is not None
    record = again.saved.training["budget"]
    assert record["seconds"] == 3600
    assert [trial["encoder"] for trial in record["trials"]] == ["sasrec", "gru4rec"]
    assert [{**trial, "metric": "ndcg@10"} for trial in record["trials"]] == trials.found
    assert trials.ended == "finished"
    best = max(record["trials"], key=lambda trial: trial["figure"])
    assert made.encoder == again.encoder == best["encoder"]
    assert again.saved.figure == again.saved.training["with_evidence"] >= best["figure"]
    assert again.training.epochs == 2, "an option that is given is kept"
    assert not (tmp_path / "model" / "trials.jsonl").exists()
    assert again.recommend([1, 2, 3], n=2)


def test_validation_chooses_the_options(log: Any) -> None:
    trials = Trials()
    made = Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="1h", callback=trials)
    assert [trial["options"]["lr"] for trial in trials.found] == [0.0015, 0.003, 0.00075]
    best = max(trials.found, key=lambda trial: trial["figure"])
    assert made.training.lr == made.chosen["lr"] == best["options"]["lr"]
    assert "dim" not in made.chosen


def test_an_encoder_that_is_given_is_kept(log: Any) -> None:
    trials = Trials()
    Recommender("gru4rec", "softmax", lr=0.01, **QUICK).fit(log, budget="1h", callback=trials)
    assert [trial["encoder"] for trial in trials.found] == ["gru4rec"]
    other = Trials()
    Recommender(output="softmax", heads=2, lr=0.01, **QUICK).fit(log, budget="1h", callback=other)
    assert {trial["encoder"] for trial in other.found} == {"sasrec"}, "gru4rec has no heads"


def test_a_stopped_search_goes_on_where_it_was(log: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="1h", folder=folder, callback=Stop(2))
    with pytest.raises(ModelError, match="holds a run that was stopped"):
        Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="1h", folder=folder)
    with pytest.raises(ModelError, match="resume with the same budget"):
        Recommender("gru4rec", "softmax", **QUICK).fit(log, folder=folder, resume=True)
    with pytest.raises(ModelError, match="another budget, log or options"):
        Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="2h", folder=folder, resume=True)
    with (folder / "trials.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"trial": {"cand')  # as a kill leaves it
    rest = Trials()
    made = Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="1h", folder=folder, resume=True, callback=rest)
    assert made.saved is not None
    trials = made.saved.training["budget"]["trials"]
    whole = Trials()
    Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="1h", callback=whole)
    assert [(t["candidate"], t["epochs"]) for t in trials] == [(t["candidate"], t["epochs"]) for t in whole.found]
    assert [t["figure"] for t in trials] == [t["figure"] for t in whole.found]
    assert len(rest.found) == len(trials) - 2
    same = Recommender("gru4rec", "softmax", **QUICK).fit(
        log, budget="1h", folder=folder, resume=True, callback=Stop(1)
    )
    assert same.saved is not None
    assert same.saved.training["budget"] == made.saved.training["budget"]


def test_the_last_training_resumes_from_its_checkpoint(log: Any, tmp_path: Path) -> None:
    class Kill(Trials):
        def on_epoch(self, record: Record) -> None:
            if record["epoch"] == 1:
                raise KeyboardInterrupt

    folder = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        Recommender("gru4rec", "softmax", lr=0.01, **QUICK).fit(log, budget="1h", folder=folder, callback=Kill())
    seen: list[int] = []

    class See(Trials):
        def on_epoch(self, record: Record) -> None:
            seen.append(record["epoch"])

    made = Recommender("gru4rec", "softmax", lr=0.01, **QUICK)
    made.fit(log, budget="1h", folder=folder, resume=True, callback=See())
    whole = Recommender("gru4rec", "softmax", lr=0.01, **QUICK).fit(log, budget="1h", callback=Trials())
    assert made.saved is not None
    assert whole.saved is not None
    assert seen == [1], "the first epoch of the last training is not repeated"
    assert made.saved.figure == whole.saved.figure
    assert sorted(path.name for path in folder.glob("*.jsonl")) == ["training.jsonl"]


def test_time_before_an_interruption_counts(log: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="1h", folder=folder, callback=Stop(1))
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    spent = json.dumps({**json.loads(lines[1]), "spent": 3599.0})
    (folder / "trials.jsonl").write_text(f"{lines[0]}\n{spent}\n", encoding="utf-8")
    made = Recommender("gru4rec", "softmax", **QUICK).fit(
        log, budget="1h", folder=folder, resume=True, callback=Stop(1)
    )
    assert made.saved is not None
    assert made.saved.training["budget"]["spent"] > 3599
    assert len(made.saved.training["budget"]["trials"]) == 1


def test_an_overwritten_search_leaves_nothing(log: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        Recommender("gru4rec", "softmax", **QUICK).fit(log, budget="1h", folder=folder, callback=Stop(1))
    made = Recommender("gru4rec", "softmax", **QUICK).fit(log, folder=folder, overwrite=True)
    assert made.saved is not None
    assert "budget" not in made.saved.training
    assert not (folder / "trials.jsonl").exists()
    after = Recommender("gru4rec", "softmax", **QUICK).fit(
        log, budget="1h", folder=folder, overwrite=True, callback=Trials()
    )
    assert after.saved is not None
    assert "budget" in after.saved.training


def test_what_has_nothing_to_search_is_refused(log: Any) -> None:
    with pytest.raises(SpecError, match="a baseline has no options to search"):
        Recommender(baseline="popularity").fit(log, budget="1m")
    made = Recommender("gru4rec", "softmax", **QUICK).fit(log)
    with pytest.raises(SpecError, match="a refit has the options of the earlier fit"):
        made.fit(log, refit=True, budget="1m")


def test_a_callback_can_stop_training_and_the_best_epoch_stays(log: Any) -> None:
    class Once(Callback):
        @property
        def stops(self) -> bool:
            return True

    made = Recommender("gru4rec", "softmax", **{**QUICK, "epochs": 5}).fit(log, callback=Once())
    assert made.saved is not None
    assert len(made.saved.training["records"]) == 1
    assert made.saved.training["best_epoch"] == 0

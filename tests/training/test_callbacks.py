"""Callbacks: what is called when, several of them, and how a run ends."""

from pathlib import Path
from typing import Any

import pytest

import abaca
from abaca.data.sequences import Sequences
from abaca.recommender import Recommender
from abaca.training.callbacks import Callback, Callbacks, End, Start, Step
from abaca.types import Record


class Seen(Callback):
    """Writes down every call; fails or stops where it is told to."""

    def __init__(self, at: str = "", error: type[BaseException] = RuntimeError) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.at, self.error = at, error

    def _note(self, name: str, value: Any) -> None:
        self.calls.append((name, value))
        if name == self.at:
            raise self.error

    def on_start(self, start: Start) -> None:
        self._note("start", start)

    def on_step(self, step: Step) -> None:
        self._note("step", step)

    def on_epoch(self, record: Record) -> None:
        self._note("epoch", record)

    def on_end(self, end: End) -> None:
        self._note("end", end)

    @property
    def names(self) -> list[str]:
        """The calls, steps in a row as one."""
        names = [name for name, _ in self.calls]
        return [name for place, name in enumerate(names) if place == 0 or name != names[place - 1]]

    def last(self, name: str) -> Any:
        return [value for called, value in self.calls if called == name][-1]


def quick(**options: Any) -> Recommender:
    return Recommender("gru4rec", "softmax+CPR:5", epochs=2, dim=8, lr=0.02, warmup=2, batch_targets=200, **options)


def test_a_run_calls_start_steps_epochs_and_end(small: Sequences, tmp_path: Path) -> None:
    seen = Seen()
    model = quick().fit(small, folder=tmp_path / "model", callback=seen)
    assert seen.names == ["start", "step", "epoch", "step", "epoch", "end"]
    start, end = seen.last("start"), seen.last("end")
    assert (start.encoder, start.output, start.name, start.epochs) == ("gru4rec", "softmax+CPR:5", "model", 2)
    assert start.options["lr"] == 0.02
    assert start.options["dim"] == 8
    assert start.data == {"users": 60, "items": 40, "interactions": 840, "targets": 660}
    assert start.records == ()
    assert model.saved is not None
    training = model.saved.training
    assert [record for name, record in seen.calls if name == "epoch"] == training["records"]
    assert end == End("finished", {"best": training["best"], "best_epoch": training["best_epoch"]})


def test_several_callbacks_are_called_in_their_order(small: Sequences, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = Seen(), Seen()
    quick().fit(small, callback=[first, second], progress=True)
    assert first.names == second.names == ["start", "step", "epoch", "step", "epoch", "end"]
    assert first.last("start").name == "gru4rec softmax+CPR:5"  # there is no folder
    assert "epoch   2/2  loss" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "status"), [(RuntimeError, "failed"), (KeyboardInterrupt, "stopped")])
def test_the_end_is_told_also_after_an_error(small: Sequences, error: type[BaseException], status: str) -> None:
    other, failing = Seen(), Seen("epoch", error)
    with pytest.raises(error):
        quick().fit(small, callback=[other, failing])
    assert other.names == failing.names == ["start", "step", "epoch", "end"]
    assert other.last("end") == End(status)


def test_a_callback_that_did_not_start_is_not_ended(small: Sequences) -> None:
    other, failing, after = Seen(), Seen("start"), Seen()
    with pytest.raises(RuntimeError):
        quick().fit(small, callback=[other, failing, after])
    assert (other.names, failing.names, after.names) == (["start", "end"], ["start"], [])


def test_an_error_at_the_end_of_one_does_not_keep_the_others_from_ending() -> None:
    first, failing, last = Seen(), Seen("end"), Seen()
    with pytest.raises(RuntimeError), Callbacks([first, failing, last]) as every:
        every.on_start(Start("sasrec", "softmax", {}, {}, 1))
    assert first.names == last.names == ["start", "end"]


def test_a_resumed_run_tells_the_epochs_before_it(small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        quick().fit(small, folder=tmp_path, callback=StopIn(epoch=1))
    seen = Seen()
    quick().fit(small, folder=tmp_path, resume=True, callback=seen)
    (before,) = seen.last("start").records
    assert before["epoch"] == 0
    assert seen.names == ["start", "step", "epoch", "end"]
    assert seen.last("epoch")["epoch"] == 1


class StopIn(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_step(self, step: Step) -> None:
        if step.epoch == self.epoch:
            raise RuntimeError


def test_a_baseline_starts_and_ends(small: Sequences) -> None:
    seen = Seen()
    Recommender(baseline="popularity").fit(small, callback=seen)
    assert seen.names == ["start", "end"]
    assert (seen.last("start").encoder, seen.last("start").epochs) == ("rule", 0)
    assert seen.last("end") == End("finished")


def test_the_class_is_public() -> None:
    assert abaca.Callback is Callback

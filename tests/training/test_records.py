"""Runs of a folder: finished, unfinished and damaged ones, and what differs between them."""

import json
from pathlib import Path
from typing import Any

import pytest

from abaca.data.sequences import Sequences
from abaca.display import sparkline
from abaca.errors import ModelError
from abaca.recommender import Recommender, load
from abaca.training.callbacks import Callback, Step
from abaca.training.records import RunSummary, differing, epochs_text, read_runs


class StopIn(Callback):
    """Stops a run in an epoch, as Ctrl-C does."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_step(self, step: Step) -> None:
        if step.epoch == self.epoch:
            raise KeyboardInterrupt


def quick(output: str = "softmax", **options: Any) -> Recommender:
    return Recommender("gru4rec", output, epochs=3, dim=8, batch_targets=200, **options)


@pytest.fixture(scope="module")
def folder(small: Sequences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one with evidence, a refit, two that were stopped, and files that are none of ours."""
    place = tmp_path_factory.mktemp("runs")
    quick(lr=0.01).fit(small, folder=place / "plain")
    quick("softmax+habits", lr=0.02).fit(small, folder=place / "deep" / "habits")
    load(place / "plain").fit(small, refit=True, folder=place / "final")
    for name, epoch in (("stopped", 2), ("young", 0)):
        with pytest.raises(KeyboardInterrupt):
            quick(lr=0.03).fit(small, folder=place / name, callback=StopIn(epoch))
    (place / "other").mkdir()
    (place / "other" / "model.json").write_text('{"kind": "a chair"}')
    return place


def by_name(folder: Path) -> dict[str, RunSummary]:
    return {run.name: run for run in read_runs(folder)}


def test_every_run_is_found_with_its_figures(folder: Path) -> None:
    runs = by_name(folder)
    assert set(runs) == {"plain", "deep/habits", "final", "stopped", "young"}
    training = json.loads((folder / "plain" / "model.json").read_text())["training"]
    plain = runs["plain"]
    assert plain.state == "finished"
    assert (plain.best, plain.best_epoch) == (training["best"], training["best_epoch"] + 1)
    assert plain.curve == [record["ndcg@10"] for record in training["records"]]
    spent = [record["seconds"] + record["validation_seconds"] for record in training["records"]]
    assert plain.seconds == pytest.approx(sum(spent))
    habits = json.loads((folder / "deep" / "habits" / "model.json").read_text())["training"]
    assert runs["deep/habits"].figure == habits["with_evidence"]
    assert runs["deep/habits"].best == habits["best"]


def test_unfinished_runs_have_their_options_and_epochs(folder: Path) -> None:
    runs = by_name(folder)
    assert (runs["stopped"].state, len(runs["stopped"].records)) == ("unfinished", 2)
    assert runs["stopped"].options["lr"] == 0.03
    assert epochs_text(runs["stopped"]).startswith("2 epochs, best ")
    assert epochs_text(runs["stopped"]).endswith("(unfinished)")
    assert (runs["young"].records, runs["young"].options, runs["young"].best) == ([], {}, None)  # no checkpoint yet


def test_a_refit_has_a_curve_of_its_loss(folder: Path) -> None:
    final = by_name(folder)["final"]
    assert (final.metric, final.best, final.options["refit"]) == (None, None, True)
    assert final.curve == [record["loss"] for record in final.records]


def test_the_best_figure_comes_first(folder: Path) -> None:
    figures = [run.figure for run in read_runs(folder)]
    known = [figure for figure in figures if figure is not None]
    assert known == sorted(known, reverse=True)
    assert figures[: len(known)] == known


def test_only_options_that_differ_are_named(folder: Path) -> None:
    assert set(differing(read_runs(folder))) == {"output", "lr", "refit"}
    assert differing([by_name(folder)["plain"], by_name(folder)["young"]]) == []


def test_a_damaged_run_and_a_cut_record_do_not_hide_the_others(folder: Path, tmp_path: Path) -> None:
    for name in ("plain", "stopped"):
        (tmp_path / name).mkdir()
    text = (folder / "plain" / "model.json").read_text()
    (tmp_path / "plain" / "model.json").write_text(text.replace('"lr": 0.01', '"lr": 0.5'))
    record = (folder / "stopped" / "training.jsonl").read_text()
    (tmp_path / "stopped" / "training.jsonl").write_text(record[:-20])
    runs = by_name(tmp_path)
    assert runs["plain"].state == "damaged"
    assert (runs["stopped"].state, len(runs["stopped"].records)) == ("unfinished", 1)


def test_a_model_directory_itself_is_a_run(folder: Path) -> None:
    assert [run.name for run in read_runs(folder / "plain")] == ["plain"]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no run"):
        read_runs(tmp_path)
    with pytest.raises(ModelError, match="is not a folder"):
        read_runs(tmp_path / "none")


def test_a_sparkline() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 0, 7) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, 1], 1, 1) == "▁▁"
    assert sparkline([-5, float("nan"), 50], 0, 7) == "▁▁█"
    assert sparkline(list(range(1000)), 0, 999, width=3) == "▁▅█"
    assert sparkline([], 0, 0) == ""

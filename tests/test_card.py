"""The card of a model: its numbers are those of the evaluation, and equal files give equal cards."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import abaca
from abaca.card import make_card
from abaca.cli import app, main
from abaca.data.sequences import Sequences
from abaca.durable import checksum
from abaca.errors import ModelError
from abaca.evaluation.against import evaluate_baselines, popularity_bias
from abaca.recommender import Recommender
from abaca.training.card import CARD, EVALUATION
from abaca.training.checkpoint import set_index, weights_of


@pytest.fixture(scope="module")
def fitted(small: Sequences, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "model"
    options: dict[str, Any] = {"epochs": 2, "dim": 8, "batch_targets": 200, "lr": 0.02}
    Recommender("gru4rec", "softmax+CP+habits", **options).fit(small, folder=folder)
    return folder


@pytest.fixture(scope="module")
def measured(fitted: Path, small: Sequences) -> Path:
    """The same with figures in its card."""
    folder = Path(shutil.copytree(fitted, fitted.parent / "measured"))
    make_card(folder, small)
    return folder


@pytest.fixture
def model(fitted: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    return Path(shutil.copytree(fitted, tmp_path / "model"))


def row(card: str, name: str) -> list[str]:
    """The cells of the row of a table with this name."""
    (line,) = [line for line in card.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_training_writes_a_card_with_what_it_knows(model: Path, small: Sequences) -> None:
    card = (model / CARD).read_text(encoding="utf-8")
    saved = abaca.load(model).saved
    assert saved is not None
    assert row(card, "users") == ["60"]
    assert row(card, "interactions") == ["840"]
    assert row(card, "training targets") == ["660"]
    assert row(card, "items that it can recommend") == [str(small.catalogue.size)]
    assert row(card, "period") == ["2020-09-13T12:26:41Z to 2020-09-13T12:26:54Z"]
    assert row(card, "lr") == ["0.02"]
    assert row(card, "validation ndcg@10 with evidence") == [f"{saved.training['with_evidence']:.4f}"]
    assert f"Trained with Abaca {abaca.__version__}" in card
    assert "Not measured yet" in card
    for name in ("catalogue", "weights"):
        (path,) = model.glob(f"{name}-*")
        assert row(card, path.name) == [f"{path.stat().st_size:,}", checksum(path)]


def test_it_states_what_the_model_must_not_be_used_for(model: Path) -> None:
    card = (model / CARD).read_text(encoding="utf-8")
    assert "must not be used" in card
    assert "filter bubble" in card
    for rule in re.findall(r"`((?:repeats|max_repeat_share)=[^`]*)`", card):
        name, _, value = rule.partition("=")
        assert abaca.Policy(**{name: value.strip('"') if '"' in value else float(value)})  # it is a rule there is


def test_figures_are_those_of_the_evaluation(measured: Path, small: Sequences) -> None:
    card = (measured / CARD).read_text(encoding="utf-8")
    result = abaca.load(measured).evaluate(small)
    groups = ("all", "repeat", "new", "buy again", "discover")
    for evaluation in (result, *evaluate_baselines(small, "test", (10,))):
        name = f"**{evaluation.name}**" if evaluation is result else evaluation.name
        means = [evaluation.mean("ndcg@10", group) for group in groups]
        assert row(card, name) == ["–" if mean != mean else f"{mean:.4f}" for mean in means]
    summary, bias = result.summary, popularity_bias(result, small, 10)
    ndcg = summary.groups["all"].metrics["ndcg@10"]
    assert row(card, "NDCG@10, 95 % interval") == [f"{ndcg.value:.4f} ({ndcg.low:.4f} to {ndcg.high:.4f})"]
    assert row(card, "repeats among the targets") == [f"{summary.repeats_happen:.1%}"]
    assert row(card, "repeats among the first 10 recommended") == [f"{summary.repeats_recommended[10]:.1%}"]
    assert summary.calibration is not None
    assert row(card, "calibration error of that probability") == [f"{summary.calibration.ece:.4f}"]
    assert row(card, "coverage: share of the catalogue in anyone's first 10") == [f"{summary.coverage[10]:.1%}"]
    assert row(card, "mean popularity percentile of recommended items") == [f"{bias.recommended:.1%}"]
    assert row(card, "mean popularity percentile of targets") == [f"{bias.targets:.1%}"]


def test_a_card_is_made_again_to_the_letter(measured: Path, small: Sequences, tmp_path: Path) -> None:
    first = (measured / CARD).read_text(encoding="utf-8")
    moved = Path(shutil.copytree(measured, tmp_path / "elsewhere"))
    (moved / CARD).unlink()
    assert make_card(moved) == first  # the figures are kept beside the model
    (moved / EVALUATION).unlink()
    assert make_card(moved, small.path) == first


def test_figures_of_other_weights_are_not_shown(measured: Path, small: Sequences, tmp_path: Path) -> None:
    model = Path(shutil.copytree(measured, tmp_path / "model"))
    options: dict[str, Any] = {"epochs": 1, "dim": 8, "seed": 3}
    Recommender("gru4rec", "softmax", **options).fit(small, folder=model, overwrite=True)
    assert (model / EVALUATION).exists()
    assert "Not measured yet" in (model / CARD).read_text(encoding="utf-8")


def test_a_model_without_held_out_targets_says_so(model: Path, small: Sequences, tmp_path: Path) -> None:
    abaca.load(model).fit(small, refit=True, folder=tmp_path / "final")
    assert "no target is held out" in (tmp_path / "final" / CARD).read_text(encoding="utf-8")
    with pytest.raises(ModelError, match="refitted on everything"):
        make_card(tmp_path / "final", small)


def test_a_baseline_and_a_model_of_an_earlier_release_have_cards(small: Sequences, tmp_path: Path) -> None:
    Recommender(baseline="personal frequency").fit(small, folder=tmp_path / "rule")
    assert "# Model card: rule personal frequency" in make_card(tmp_path / "rule", small)
    release = Path(__file__).parent / "fixtures" / "release-0.1.0"
    old = next(path.parent for path in sorted(release.rglob("model.json")))
    card = make_card(shutil.copytree(old, tmp_path / "old"))
    assert "Trained with Abaca not recorded" in card
    assert "filter bubble" in card


def test_the_command(
    model: Path, small: Sequences, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["abaca", "card", str(model), str(small.path)])
    monkeypatch.setattr(app, "registered_commands", [])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert capsys.readouterr().out == (model / CARD).read_text(encoding="utf-8") == make_card(model)


def test_a_search_index_is_on_the_card(model: Path) -> None:
    (model / "draft").write_bytes(b"an index")
    set_index(model, weights_of(model), model / "draft", "ivf", 8, {})
    (path,) = model.glob("index-*")
    assert row((model / CARD).read_text(encoding="utf-8"), path.name) == ["8", checksum(path)]

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow
import pytest

from abaca.cli.train import read_config
from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.errors import SequencesError, SpecError
from abaca.recommender import Recommender
from abaca.study.tuning import Search, Tuning, read_space
from abaca.training.callbacks import Callback

FIXED = {"epochs": 1, "warmup": 1, "seed": 0, "batch_targets": 200}
SPACE = {"lr": {"low": 1e-4, "high": 1e-1, "log": True}, "size": [4, 8]}


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


class KillLater(Callback):
    def on_epoch(self, record: dict) -> None:  # type: ignore[type-arg]
        raise Killed


def test_the_best_trial_becomes_a_config(small: Sequences, tmp_path: Path) -> None:
    lines: list[str] = []
    search = Search("gru4rec", "softmax+C", FIXED, SPACE)
    found = Tuning(search, small, tmp_path).run(3, 0, lines.append, Callback())
    assert len(lines) == found.trials == 3
    text = (tmp_path / "best.toml").read_text(encoding="utf-8")
    config = read_space(tmp_path / "best.toml")
    assert f"{found.value:.4f}" in text
    assert config["encoder"] == "gru4rec"
    assert config["dim"] == config["hidden"]
    again = Recommender(config.pop("encoder"), config.pop("output"), **config).fit(small)
    assert again.saved is not None
    assert again.saved.training["best"] == found.value
    more = Tuning(search, small, tmp_path).run(4, 0, lines.append, Callback())
    assert len(lines) == more.trials == 4
    assert more.value >= found.value


def test_a_killed_trial_goes_on(small: Sequences, tmp_path: Path) -> None:
    search = Search("gru4rec", "softmax", {**FIXED, "epochs": 2}, SPACE)
    with pytest.raises(Killed):
        Tuning(search, small, tmp_path).run(1, 0, lambda text: None, KillLater())
    tuning = Tuning(search, small, tmp_path)
    begun = tuning.study.trials[0]
    found = tuning.run(1, 0, lambda text: None, Callback())
    states = [trial.state.name for trial in tuning.study.trials]
    assert states == ["FAIL", "COMPLETE"]
    assert tuning.study.trials[1].params == begun.params
    assert found.trials == 1


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"lrr": [1]}, "no option 'lrr'; did you mean lr"),
        ({"lr": []}, "lr has no values"),
        ({"lr": {"low": 1, "hihg": 2}}, "unknown key 'hihg'"),
        ({"lr": {"low": 2.0, "high": 1.0}}, "lr must be a list of values or a range"),
        ({"lr": {"low": "1e-4", "high": 1e-2}}, "lr must be a list of values or a range"),
        ({"dropout": {"low": 0.0, "high": 0.5, "log": True}}, "dropout cannot begin at 0 with log = true"),
        ({"lr": 3}, "must be a table"),
        ({"dropout": [0.0, 1.5, 0.3]}, "dropout"),
        ({"size": {"low": 4, "high": 8, "step": 0}}, "step = 0; it is a number above 0"),
        ({"lr": {"low": 0.1, "high": 1.0, "log": True, "step": 0.1}}, "goes without log"),
        ({"size": {"low": 8, "high": 16, "step": 0.5}}, r"by 0.5; write the ends as 8.0, 16.0"),
        ({"min_user": [1, 2]}, "cannot be set or searched"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(space: dict, said: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(SpecError, match=said):
        Search("gru4rec", "softmax", FIXED, space)


def test_a_space_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="does not exist"):
        read_space(tmp_path / "none.toml")


def test_what_another_search_left_does_not_matter(small: Sequences, tmp_path: Path) -> None:
    space = {"lr": [0.01]}
    with pytest.raises(Killed):
        Tuning(Search("gru4rec", "softmax", {**FIXED, "epochs": 2}, space), small, tmp_path).run(
            1, 0, lambda text: None, KillLater()
        )
    found = Tuning(Search("gru4rec", "softmax+C", {**FIXED, "epochs": 2}, space), small, tmp_path).run(
        1, 0, lambda text: None, Callback()
    )
    assert found.trials == 1


def test_searches_side_by_side_make_no_more_trials_than_asked_for(small: Sequences, tmp_path: Path) -> None:
    search = Search("gru4rec", "softmax", FIXED, SPACE)
    first, second = Tuning(search, small, tmp_path), Tuning(search, small, tmp_path, seed=1)
    ran: list[str] = []

    def beside(text: str) -> None:
        ran.append(text)
        if len(ran) == 1:
            second.run(3, 0, ran.append, Callback())

    assert first.run(3, 0, beside, Callback()).trials == 3


def test_words_are_searched_too(small: Sequences, tmp_path: Path) -> None:
    lines: list[str] = []
    search = Search("gru4rec", "softmax", FIXED, {"schedule": ["constant"], "lr": [0.01]})
    Tuning(search, small, tmp_path).run(1, 0, lines.append, Callback())
    assert lines[0].endswith("with schedule constant, lr 0.01")


def test_searchers_that_try_the_same_train_it_once(small: Sequences, tmp_path: Path) -> None:
    trained: list[int] = []

    class Slow(Callback):
        def on_epoch(self, record: dict) -> None:  # type: ignore[type-arg]
            trained.append(record["epoch"])
            time.sleep(0.3)

    search = Search("gru4rec", "softmax", FIXED, {"lr": [0.01]})
    searchers = [Tuning(search, small, tmp_path) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda tuning: tuning.run(2, 0, lambda text: None, Slow()), searchers))
    assert trained == [0]
    assert found[0].value == found[1].value
    states = {trial.state.name for trial in searchers[0].study.trials}
    assert states == {"COMPLETE"}


class StopLater(Callback):
    def on_epoch(self, record: dict) -> None:  # type: ignore[type-arg]
        raise KeyboardInterrupt


def test_a_stopped_trial_goes_on(small: Sequences, tmp_path: Path) -> None:
    """Ctrl-C: Optuna notes the trial as failed, the next search goes on with its training."""
    search = Search("gru4rec", "softmax", {**FIXED, "epochs": 2}, SPACE)
    with pytest.raises(KeyboardInterrupt):
        Tuning(search, small, tmp_path).run(1, 0, lambda text: None, StopLater())
    tuning = Tuning(search, small, tmp_path)
    begun = tuning.study.trials[0]
    tuning.run(1, 0, lambda text: None, Callback())
    assert [trial.state.name for trial in tuning.study.trials] == ["FAIL", "COMPLETE"]
    assert tuning.study.trials[1].params == begun.params


def test_options_that_do_not_fit_together_end_a_trial_not_the_search(small: Sequences, tmp_path: Path) -> None:
    lines: list[str] = []
    search = Search("sasrec", "softmax", {**FIXED, "heads": 4}, {"size": {"low": 4, "high": 8}})
    Tuning(search, small, tmp_path).run(12, 0, lines.append, Callback())
    assert len(lines) == 12
    refused = [text for text in lines if "cannot be divided among 4 heads" in text]
    assert 0 < len(refused) < 12
    lines.clear()
    stepped = Search("sasrec", "softmax", {**FIXED, "heads": 4}, {"size": {"low": 4, "high": 8, "step": 4}})
    Tuning(stepped, small, tmp_path).run(3, 0, lines.append, Callback())
    assert all("validation NDCG@10" in text for text in lines)


def test_the_best_options_of_an_encoder_are_a_config_too(small: Sequences, tmp_path: Path) -> None:
    search = Search("sasrec", "softmax", {**FIXED, "dim": 4}, {"blocks": [1], "inner": [8]})
    Tuning(search, small, tmp_path).run(1, 0, lambda text: None, Callback())
    config = read_config(tmp_path / "best.toml")
    assert (config["blocks"], config["inner"]) == (1, 8)
    Recommender(config.pop("encoder"), config.pop("output"), **config)


def test_any_seed_will_do(small: Sequences, tmp_path: Path) -> None:
    search = Search("gru4rec", "softmax", FIXED, SPACE)
    assert Tuning(search, small, tmp_path, seed=20240131123456).run(1, 0, lambda text: None, Callback()).trials == 1


def test_without_validation_nothing_can_be_chosen(tmp_path: Path) -> None:
    with read_log(pyarrow.table({"user": [1, 1, 2, 2], "item": [1, 2, 1, 2]})) as log:
        sequences = prepare(log, tmp_path / "sequences", options=PrepareOptions(min_user=2))
    with pytest.raises(SequencesError, match="there is no validation target"):
        Tuning(Search("gru4rec", "softmax", FIXED, SPACE), sequences, tmp_path)

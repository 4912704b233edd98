"""Models that the last release trained and saved: they load, and give the same ranks and recommendations."""

import json
from pathlib import Path

import pytest

import abaca
from abaca.data.log import read_log
from abaca.data.synthetic import synthetic_log

FOLDER = Path(__file__).parent / "fixtures" / "release-0.1.0"
ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ANSWERS["models"])
def test_a_model_of_the_last_release_gives_the_same_answers(name: str) -> None:
    expected, log = ANSWERS["models"][name], dict(ANSWERS["log"])
    model = abaca.load(FOLDER / name)
    with read_log(synthetic_log(log.pop("kind"), **log)) as given:
        found = model.evaluate(given)
    assert found.rank.tolist() == expected["rank"]
    assert found.mean("ndcg@10") == pytest.approx(expected["ndcg@10"])
    answer = model.recommend(expected["history"], n=5)
    assert answer.ids == expected["recommended"]
    assert [item.probability for item in answer] == pytest.approx(expected["probabilities"], rel=1e-5)
    assert answer.repeat_probability == pytest.approx(expected["repeat_probability"], rel=1e-5)

"""Popularity percentiles and bias, checked by hand."""

import numpy as np
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.evaluation.against import PopularityBias, evaluate_baselines, popularity_bias, popularity_percentiles
from abaca.evaluation.baselines import BASELINES
from abaca.evaluation.evaluate import Evaluation


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    """Two users; in training a is taken four times, b and c twice each, d and e never."""
    folder = tmp_path_factory.mktemp("four")
    rows = {"u": "aabcde", "v": "abcade"}
    lines = [f"{user},{item},{time}" for user, items in rows.items() for time, item in enumerate(items)]
    (folder / "log.csv").write_text("user,item,time\n" + "\n".join(lines) + "\n")
    with read_log(folder / "log.csv") as log:
        return prepare(log, folder / "sequences", options=PrepareOptions(min_user=1))


def test_percentiles(four: Sequences) -> None:
    """u trains on aabc and v on abca: a 4, b 2, c 2, d 0 and e 0 times."""
    found = dict(zip(four.catalogue.ids, popularity_percentiles(four).tolist(), strict=True))
    assert found == {"a": 1.0, "b": 2.5 / 4, "c": 2.5 / 4, "d": 0.5 / 4, "e": 0.5 / 4}


def test_bias_counts_the_first_items_and_no_cold_target(four: Sequences) -> None:
    a, b, d = (four.catalogue.index(id) for id in "abd")
    assert None not in (a, b, d)
    top = np.array([[a, d], [b, -1]], dtype=np.int32)
    ints, flags = np.array([1, 1]), np.array([False, False])
    targets = np.array([d, 5])  # 5 is beyond the catalogue
    result = Evaluation(
        "x", "test", (2,), 5, ints, ints, targets, ints, ints, flags, top, top > 9, np.array([0.5, 0.5])
    )
    assert popularity_bias(result, four, 2) == PopularityBias((1 + 2.5 / 4 + 0.5 / 4) / 3, 0.5 / 4)
    assert popularity_bias(result, four, 1) == PopularityBias((1 + 2.5 / 4) / 2, 0.5 / 4)


def test_every_baseline_is_evaluated(small: Sequences) -> None:
    found = evaluate_baselines(small, "valid", (5, 10))
    assert [result.name for result in found] == list(BASELINES)
    assert all(result.split == "valid" and result.cutoffs == (5, 10) for result in found)

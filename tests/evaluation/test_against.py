"""Popularity percentiles and bias, checked by hand."""

from datetime import UTC, datetime, timedelta
from typing import Self

import numpy as np
import pyarrow
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.evaluation.against import (
    PopularityBias,
    evaluate_baselines,
    popularity_bias,
    popularity_percentiles,
    validate_baselines,
)
from abaca.evaluation.baselines import BASELINES, Popularity
from abaca.evaluation.baselines.baseline import Shortlist
from abaca.evaluation.evaluate import Evaluation, evaluate
from abaca.histories import Histories


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


class Memory(Popularity):
    """Learns the validation targets by heart; after other histories it is popularity."""

    name = "memory"
    fitted = True

    def fit(self, sequences: Sequences, *, everything: bool = False) -> Self:
        super().fit(sequences, everything=everything)
        targets = zip(*sequences.valid, strict=True)
        self.known = {tuple(sequences.history(user, at).tolist()): int(sequences.items[at]) for user, at in targets}
        return self

    def _shortlist(self, histories: Histories) -> Shortlist:
        listed = [(row, self.known.get(tuple(histories[row].tolist()))) for row in range(len(histories))]
        pairs = np.array([pair for pair in listed if pair[1] is not None], dtype=np.int64).reshape(-1, 2)
        return Shortlist(pairs[:, 0], pairs[:, 1], np.ones(len(pairs)))


def test_no_baseline_is_validated_on_targets_that_it_was_fitted_on(
    small: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abaca.evaluation.against.BASELINES", {"memory": Memory, "popularity": Popularity})
    fitted_on_them, popular = (result.mean("ndcg@5") for result in evaluate_baselines(small, "valid", (5,)))
    assert fitted_on_them == 1 > popular
    assert validate_baselines(small, "ndcg@5") == {"memory": pytest.approx(popular), "popularity": popular}


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    """60 users, each with an item of mornings and one of evenings, in any order; one row a day."""
    random, first = np.random.default_rng(3), datetime(2024, 1, 1, tzinfo=UTC)
    rows = []
    for user in range(60):
        favourites, day = random.choice(20, 2, replace=False), 0
        for _ in range(24):
            evening = int(random.integers(2))
            day += int(random.integers(1, 4))
            rows.append((user, int(favourites[evening]), first + timedelta(days=day, hours=8 + 12 * evening)))
    names = ("user", "item", "time")
    table = pyarrow.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    with read_log(table) as log:
        return prepare(log, tmp_path_factory.mktemp("hours") / "sequences")


def test_a_baseline_that_reads_the_moment_of_the_query_gets_it(hours: Sequences) -> None:
    known, without = (
        {each.name.split(",")[0]: each for each in evaluate_baselines(hours, "test", (1,), now=now)}
        for now in (True, False)
    )
    assert [name for name in known if known[name].now_known] == ["counts alone"]
    assert known["counts alone"].mean("hr@1") > without["counts alone"].mean("hr@1") + 0.2


@pytest.mark.parametrize("name", BASELINES)
def test_only_baselines_that_say_so_read_the_moment_of_the_query(name: str, hours: Sequences) -> None:
    baseline = BASELINES[name]().fit(hours)
    ranks = [evaluate(baseline, hours, now=now).rank for now in (True, False)]
    assert np.array_equal(*ranks) != baseline.reads_now

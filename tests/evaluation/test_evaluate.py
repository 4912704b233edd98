"""Ranks, groups, cold targets and comparisons on a log small enough to check by hand."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from abaca.data.catalogue import Catalogue
from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences, Targets
from abaca.errors import SequencesError, SpecError
from abaca.evaluation.baselines import Popularity
from abaca.evaluation.evaluate import Evaluation, compare, evaluate, table
from abaca.evaluation.membership import Membership
from abaca.evaluation.ranker import no_answer
from abaca.histories import Histories
from abaca.nn.answers import Answer, Question

CATALOGUE = 4  # items 0 … 3; 4 and 5 are cold


class Given(Sequences):
    """Sequences written out: the last item of a user is the test target, the one before it the validation target."""

    def __init__(self, rows: Sequence[Sequence[int]], catalogue: int, cold: int = 0) -> None:
        lengths = [len(row) for row in rows]
        self.path, self.manifest = Path("given"), {"source": {"files": ["given"]}}
        self.items = np.concatenate([np.array(row, dtype=np.int32) for row in rows])
        self.times = None
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self.train_end = self.offsets[1:] - 2
        users = np.arange(len(rows))
        self.test, self.valid = (Targets(users, self.offsets[1:] - back) for back in (1, 2))
        self.catalogue = Catalogue(list(range(catalogue + cold)), catalogue)


class Scored:
    """Ranks by one score per item, the plain way; predicts a repeat with the probability given."""

    def __init__(self, scores: Sequence[float], name: str = "scored", probability: float = np.nan) -> None:
        self.scores = np.array(scores, dtype=float)
        self.name = name
        self.probability = probability
        self.histories: list[list[int]] = []
        self.now: list[float] | None = []

    estimated = False

    @property
    def catalogue(self) -> int:
        return len(self.scores)

    def ask(self, histories: Histories, question: Question) -> Answer:
        self.histories += [history.tolist() for history in histories]
        self.now = None if histories.now is None else [*(self.now or []), *histories.now.tolist()]
        found = no_answer(len(histories), question.n, self.catalogue)
        found.rank[:] = torch.from_numpy((self.scores >= self.scores[question.targets.numpy()][:, None]).sum(axis=1))
        padded, given = np.append(self.scores, -np.inf), question.mass_of.numpy()
        above = padded[given] >= self.scores[question.targets.numpy()][:, None]
        found.ahead[:] = torch.from_numpy((above & (given != question.targets.numpy()[:, None])).sum(axis=1))
        best = np.argsort(-self.scores, kind="stable")[: question.n]
        found.items[:], found.logits[:] = torch.from_numpy(best), torch.from_numpy(self.scores[best])
        return found._replace(mass=torch.full((len(histories),), self.probability))


@pytest.fixture
def sequences() -> Given:
    """Five users: a repeat, two new, a cold repeat, a cold new target."""
    rows = [[0, 1, 0, 2, 1], [2, 1, 0], [1, 4, 3], [0, 4, 4], [5, 0, 4]]
    return Given(rows, CATALOGUE, cold=2)


@pytest.fixture
def result(sequences: Given, monkeypatch: pytest.MonkeyPatch) -> Evaluation:
    monkeypatch.setattr("abaca.evaluation.evaluate.CHUNK", 2)
    return evaluate(Scored([9, 7, 5, 3], probability=0.5), sequences, cutoffs=(2, 1))


def test_ranks_and_groups_by_hand(result: Evaluation) -> None:
    assert result.items.tolist() == [1, 0, 3, 4, 4]
    assert result.rank.tolist() == [2, 1, 4, 5, 5]
    assert result.repeat.tolist() == [True, False, False, True, False]
    assert result.cold.tolist() == [False, False, False, True, True]
    assert result.gains("ndcg@2") == pytest.approx([0.63092975, 1, 0, 0, 0])
    assert result.mean("hr@2") == 2 / 5
    assert result.mean("hr@2", "repeat") == 1 / 2
    assert result.mean("hr@2", "new") == 1 / 3


def test_shelves_by_hand(result: Evaluation) -> None:
    # 0 > 1 > 2 > 3; histories {0,1,2}, {2,1}, {1}, {0}, {0} without cold items
    assert result.shelf_rank.tolist() == [2, 1, 3, 5, 5]  # 1 after 0; 0; 3 after 0 and 2, not after 1; cold
    assert result.mean("hr@2", "buy again") == 1 / 2
    assert result.mean("mrr@2", "buy again") == 1 / 4
    assert result.mean("hr@2", "discover") == 1 / 3
    assert result.mean("mrr@3", "discover") == pytest.approx((1 + 1 / 3) / 3)
    assert result.mask("buy again").tolist() == result.repeat.tolist()
    shelves = result.summary.shelves
    assert {shelf: found.count for shelf, found in shelves.items()} == {"buy again": 2, "discover": 3}
    assert shelves["buy again"].metrics["mrr@2"].value == 1 / 4
    assert result.to_json()["shelves"]["discover"]["metrics"]["hr@2"]["value"] == pytest.approx(1 / 3)


def test_a_repeat_is_ranked_among_repeats_and_a_new_target_among_new_items() -> None:
    """Two users with the same history; the single list puts all that is new before all that is old."""
    given = Given([[0, 1, 2, 0], [0, 1, 2, 3]], catalogue=9)
    found = evaluate(Scored([2, 3, 1, 4, 5, 6, 7, 8, 9]), given, cutoffs=(10,))
    assert found.rank.tolist() == [8, 6]
    assert found.shelf_rank.tolist() == [2, 6]
    found = evaluate(Scored([9, 8, 7, 4, 5, 5, 4, 3, 2]), given, cutoffs=(10,))
    assert found.rank.tolist() == [1, 7]
    assert found.shelf_rank.tolist() == [1, 4]  # ties count against the target


def test_summary_by_hand(result: Evaluation) -> None:
    summary = result.summary
    assert {group: found.count for group, found in summary.groups.items()} == {"all": 5, "repeat": 2, "new": 3}
    assert list(summary.groups["all"].metrics) == ["ndcg@1", "hr@1", "mrr@1", "ndcg@2", "hr@2", "mrr@2"]
    mrr = summary.groups["repeat"].metrics["mrr@2"]
    assert (mrr.value, mrr.low, mrr.high) == (0.25, 0.0, 0.5)
    assert summary.cold == 2
    assert summary.repeats_happen == 2 / 5
    # everyone is given 0, then 1; histories {0,1,2}, {2,1}, {1,4}, {0,4}, {5,0} hold 0 three times and 1 three times
    assert summary.repeats_recommended == {1: 3 / 5, 2: 6 / 10}
    assert summary.coverage == {1: 1 / 4, 2: 2 / 4}
    assert summary.calibration is not None
    assert summary.calibration.ece == pytest.approx(0.1)
    assert summary.calibration.brier == pytest.approx(0.25)
    assert (summary.calibration.predicted, summary.calibration.observed) == (0.5, 0.4)


def test_summary_depends_on_its_arguments(result: Evaluation) -> None:
    wide, narrow = (result.summarise(level=level).groups["all"].metrics["hr@2"] for level in (0.95, 0.3))
    assert wide.high - wide.low > narrow.high - narrow.low
    assert result.summarise(seed=1, resamples=7) != result.summarise(seed=2, resamples=7)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
def test_chunks_do_not_matter(
    sequences: Given, result: Evaluation, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[int, int]] = []
    monkeypatch.setattr("abaca.evaluation.evaluate.CHUNK", chunk)
    again = evaluate(Scored([9, 7, 5, 3], probability=0.5), sequences, "test", (2, 1), lambda *at: done.append(at))
    assert again.to_json() == result.to_json()
    assert np.array_equal(again.top_repeat, result.top_repeat)
    assert done[-1] == (5, 5)
    assert len(done) == -(-5 // chunk)


def test_prepared_folder_with_cold_items(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "user,item,time\n"
        "u,a,1\nu,b,2\nu,a,3\nu,c,11\nu,c,21\n"  # c comes after training ends: cold, and a repeat at 21
        "v,b,1\nv,a,2\nv,a,4\nv,b,12\nv,a,22\n"
    )
    options = PrepareOptions(min_user=1, split="time", valid_from=10, test_from=20)
    sequences = prepare(read_log(log), tmp_path / "sequences", options=options)
    found = evaluate(Popularity().fit(sequences), sequences, cutoffs=(1,))
    assert [sequences.catalogue.ids[item] for item in found.items] == ["c", "a"]
    assert (found.rank.tolist(), found.repeat.tolist(), found.cold.tolist()) == ([3, 1], [True, True], [True, False])
    assert (found.mean("hr@1"), found.summary.cold) == (0.5, 1)
    assert json.loads(json.dumps(found.to_json()))["catalogue"] == 2


def test_ranker_sees_the_whole_history_without_cold_items_the_short_ones_first(sequences: Given) -> None:
    ranker = Scored([9, 7, 5, 3])
    evaluate(ranker, sequences)
    assert ranker.histories == [[2, 1], [1], [0], [0], [0, 1, 0, 2]]


def test_cold_target_is_a_miss_even_where_the_catalogue_is_smaller_than_the_cutoff(sequences: Given) -> None:
    found = evaluate(Scored([1, 2, 3, 4]), sequences, cutoffs=(100,))
    assert found.rank[3:].tolist() == [CATALOGUE + 1] * 2
    assert found.gains("hr@100").tolist() == [1, 1, 1, 0, 0]
    assert found.top.shape == (5, CATALOGUE)
    assert found.summary.coverage == {100: 1.0}
    assert found.summary.repeats_recommended == {100: pytest.approx((3 + 2 + 1 + 1 + 1) / 20)}


def test_constant_score_earns_nothing() -> None:
    given = Given([[0, 1, 2], [3, 4, 4], [5, 5, 0]], catalogue=12)
    found = evaluate(Scored([1.0] * 12), given)
    assert found.rank.tolist() == [12, 12, 12]
    assert [found.mean(metric) for metric in found.metric_names] == [0, 0, 0]


def test_empty_group_has_no_number() -> None:
    given = Given([[0, 1, 2], [0, 0, 1]], catalogue=3)
    found = evaluate(Scored([3, 2, 1]), given)
    assert found.to_json()["groups"]["repeat"] == {
        "count": 0,
        "metrics": {metric: {"value": None, "low": None, "high": None} for metric in found.metric_names},
    }
    assert found.to_json()["shelves"]["buy again"] == found.to_json()["groups"]["repeat"]
    assert table([found])[0]["hr@10 repeat"] is None
    assert table([found])[0]["hr@10 buy again"] is None
    assert compare(found, found, group="repeat").to_json()["difference"]["value"] is None


def test_history_may_be_empty() -> None:
    given = Given([[2, 2, 1], [0, 1, 2]], catalogue=3)
    given.test = Targets(np.array([0, 1]), np.array([0, 3]))
    found = evaluate(Scored([3, 2, 1]), given)
    assert found.repeat.tolist() == [False, False]
    assert not found.top_repeat.any()


def test_validation_and_chosen_targets(sequences: Given) -> None:
    ranker = Scored([9, 7, 5, 3])
    valid = evaluate(ranker, sequences, "valid")
    assert (valid.split, valid.rank.tolist()) == ("valid", [3, 2, 5, 5, 1])
    chosen = evaluate(ranker, sequences, Targets(np.array([0]), np.array([2])))
    assert (chosen.split, chosen.rank.tolist(), chosen.repeat.tolist()) == ("chosen", [1], [True])


def test_mistakes_are_named(sequences: Given, result: Evaluation) -> None:
    ranker = Scored([9, 7, 5, 3])
    with pytest.raises(SpecError, match="got targets 'train'"):
        evaluate(ranker, sequences, "train")
    with pytest.raises(SpecError, match=r"got cutoffs \(0, 5\)"):
        evaluate(ranker, sequences, cutoffs=(0, 5))
    for given in (10, (2.5,), ("5",), (True,), ()):
        with pytest.raises(SpecError, match="got cutoffs"):
            evaluate(ranker, sequences, cutoffs=given)  # type: ignore[arg-type]
    with pytest.raises(SequencesError, match="no chosen targets"):
        evaluate(ranker, sequences, Targets(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    with pytest.raises(ValueError, match="got group 'old'"):
        result.mean("hr@1", "old")  # type: ignore[arg-type]


def test_wrong_answer_of_a_ranker_is_named(sequences: Given) -> None:
    class Wrong(Scored):
        def ask(self, histories: Histories, question: Question) -> Answer:
            found = super().ask(histories, question)
            wrong = {
                "low": {"rank": found.rank - 1},
                "few": {"items": found.items[:, 1:]},
                "far": {"ahead": found.rank},
            }
            return found._replace(**wrong[self.name])

    with pytest.raises(ValueError, match="low: got ranks 0"):
        evaluate(Wrong([9, 7, 5, 3], name="low"), sequences)
    with pytest.raises(ValueError, match="few: got a list of shape"):
        evaluate(Wrong([9, 7, 5, 3], name="few"), sequences)
    with pytest.raises(ValueError, match="far: got more items of the history ahead"):
        evaluate(Wrong([9, 7, 5, 3], name="far"), sequences)


def test_json_is_json(result: Evaluation, sequences: Given) -> None:
    plain = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert plain == result.to_json()
    assert (plain["name"], plain["split"], plain["targets"], plain["cold"]) == ("scored", "test", 5, 2)
    assert plain["groups"]["new"]["metrics"]["hr@2"]["value"] == pytest.approx(1 / 3)
    assert plain["calibration"]["bins"][0]["count"] == 5
    assert evaluate(Scored([9, 7, 5, 3]), sequences).to_json()["calibration"] is None


def test_compare_finds_a_real_difference_and_no_other() -> None:
    random = np.random.default_rng(0)
    given = Given([random.permutation(50)[:5].tolist() for _ in range(100)], catalogue=50)
    popular = np.bincount(given.items[given.test.positions], minlength=50)
    good = evaluate(Scored(list(popular + np.linspace(0, 0.5, 50)), name="good"), given)
    bad = evaluate(Scored(list(-popular + np.linspace(0, 0.5, 50)), name="bad"), given)
    found = compare(good, bad, "ndcg@10")
    assert found.difference.value == pytest.approx(good.mean("ndcg@10") - bad.mean("ndcg@10"))
    assert found.difference.low > 0
    assert found.p_value < 0.01
    assert (found.a, found.b, found.count) == ("good", "bad", 100)
    same = compare(good, good, "hr@3", "new")
    assert (same.difference.value, same.p_value) == (0.0, 1.0)


def test_compare_in_a_group(sequences: Given, result: Evaluation) -> None:
    other = evaluate(Scored([3, 5, 7, 9], name="reversed"), sequences)
    assert compare(result, other, "mrr@4", "new").difference.value == pytest.approx((1 + 1 / 4 - 1 / 4 - 1) / 3)
    assert compare(result, other, "mrr@4", "repeat").difference.value == pytest.approx((1 / 2 - 1 / 3) / 2)


def test_compare_on_a_shelf(sequences: Given, result: Evaluation) -> None:
    other = evaluate(Scored([3, 5, 7, 9], name="reversed"), sequences)
    assert other.shelf_rank.tolist() == [2, 2, 1, 5, 5]
    found = compare(result, other, "mrr@4", "discover")
    assert found.difference.value == pytest.approx((1 + 1 / 3 - 1 / 2 - 1) / 3)
    assert (found.group, found.count, found.to_json()["group"]) == ("discover", 3, "discover")
    assert compare(result, other, "mrr@4", "buy again").difference.value == 0


def test_the_time_of_a_target_is_told_only_where_it_is_asked_for(sequences: Given) -> None:
    with pytest.raises(SpecError, match="the log has no times"):
        evaluate(Scored([9, 7, 5, 3]), sequences, now=True)
    sequences.times = np.arange(len(sequences.items)) + 100.0
    ranker = Scored([9, 7, 5, 3])
    without = evaluate(ranker, sequences)
    assert ranker.now is None
    assert (without.now_known, without.to_json()["now_known"], without.name) == (False, False, "scored")
    ranker = Scored([9, 7, 5, 3])
    told = evaluate(ranker, sequences, now=True)
    assert ranker.now is not None
    assert sorted(ranker.now) == sequences.times[sequences.test.positions].tolist()
    assert (told.now_known, told.to_json()["now_known"]) == (True, True)
    assert told.name == "scored, time of the query known"
    assert "time of the query known" in repr(told)
    assert "time of the query known" in told._repr_html_()


def test_compare_keeps_the_targets_of_a_user_together() -> None:
    given = Given([[0, *[1] * 20], [0, *[2] * 20]], catalogue=3)
    given.test = Targets(np.repeat([0, 1], 20), np.delete(np.arange(42), [0, 21]))
    a, b = (evaluate(Scored(scores), given, cutoffs=(1,)) for scores in ([1, 3, 2], [3, 1, 2]))
    assert compare(a, b, "hr@1").p_value == 1.0  # only one user differs, and one sign says nothing
    assert a.summary.groups["all"].metrics["hr@1"].high == 1.0  # both draws may be the first user


def test_compare_wants_the_same_targets(sequences: Given, result: Evaluation) -> None:
    with pytest.raises(ValueError, match="expected the same targets"):
        compare(result, evaluate(Scored([9, 7, 5, 3]), sequences, "valid"))


def test_table_has_a_row_per_ranker(sequences: Given, result: Evaluation) -> None:
    other = evaluate(Scored([3, 5, 7, 9], name="reversed"), sequences, cutoffs=(1, 2))
    rows = table([result, other])
    assert [row["ranker"] for row in rows] == ["scored", "reversed"]
    groups = ["all", "repeat", "new", "buy again", "discover"]
    assert list(rows[0])[:6] == ["ranker", *(f"ndcg@1 {group}" for group in groups)]
    assert rows[0]["mrr@2 buy again"] == 1 / 4
    assert rows[0]["hr@2 new"] == pytest.approx(1 / 3)
    assert rows[1]["hr@1 new"] == pytest.approx(1 / 3)


def test_membership_is_that_of_sets() -> None:
    rng = np.random.default_rng(0)
    histories = [rng.integers(0, 50, size) for size in rng.integers(0, 40, 30)]
    asked = rng.integers(-1, 60, (30, 11))
    found = Membership(Histories.of(histories), 50)
    sets = [set(history.tolist()) for history in histories]
    assert found.holds(asked).tolist() == [[item in own for item in row] for own, row in zip(sets, asked, strict=True)]
    width = max(map(len, sets))
    assert found.rectangle().tolist() == [sorted(own) + [50] * (width - len(own)) for own in sets]
    assert Membership(Histories.of([[], []]), 3).holds(np.array([[0], [2]])).tolist() == [[False], [False]]

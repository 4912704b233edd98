"""Each baseline's order on a log that one can check by hand, and its ranks against a plain sort."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abaca.data.catalogue import Catalogue
from abaca.data.sequences import Sequences, Targets
from abaca.evaluation.baselines import (
    BASELINES,
    Baseline,
    MostRecent,
    PersonalFollow,
    PersonalFrequency,
    Popularity,
    RulesWithoutHistory,
    SequentialRules,
    rules,
)
from abaca.evaluation.baselines.blend import Numbers
from abaca.evaluation.evaluate import evaluate, table
from abaca.evaluation.ranker import padded
from abaca.histories import Histories
from abaca.nn.answers import Answer, Question

Rows = Sequence[Sequence[int]]


class Given(Sequences):
    """Sequences written out: training sees all but the last two items of a user."""

    def __init__(self, rows: Rows, catalogue: int) -> None:
        self.path, self.manifest = Path("given"), {"source": {"files": ["given"]}}
        self.items = np.concatenate([np.array(row, dtype=np.int32) for row in rows])
        self.times = None
        self.offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        self.train_end = np.maximum(self.offsets[1:] - 2, self.offsets[:-1])
        users = np.arange(len(rows))
        self.test, self.valid = (Targets(users, self.offsets[1:] - back) for back in (1, 2))
        self.catalogue = Catalogue(list(range(catalogue)), catalogue)


def trained(rows: Rows, catalogue: int) -> Given:
    """Sequences whose training rows are the rows given; two more items follow that training must not see."""
    return Given([[*row, 5, 5] for row in rows], catalogue)


# training counts: 0 ×4, 1 ×3, 2 ×2, 3 ×2, 4 ×1, 5 ×0
LOG = [[0, 1, 0, 2], [0, 1, 3], [2, 0, 3, 1, 4]]


def answer(baseline: Baseline, history: Sequence[int], n: int = 6) -> tuple[list[int], list[int]]:
    """The rank of each item after a history, and the best n."""
    found = asked(baseline, [history] * baseline.catalogue, range(baseline.catalogue), n)
    assert found.mass.isnan().all() != (baseline.name == "counts alone")  # which has probabilities
    assert torch.equal(found.normaliser.isnan(), found.mass.isnan())
    assert (found.items == found.items[0]).all()
    assert torch.equal(found.logits, found.logits.sort(dim=1, descending=True).values)
    return found.rank.tolist(), found.items[0][found.logits[0] > -torch.inf].tolist()


def asked(
    baseline: Baseline, histories: Rows, targets: Sequence[int], n: int, banned: Rows = (), only: Rows | None = None
) -> Answer:
    """Ask about targets after histories, and how many items of the histories are ahead of them."""
    lists = [
        padded([np.unique(np.array(row, dtype=np.int64)) for row in rows], baseline.catalogue)
        for rows in (banned, only or (), histories)
    ]
    nothing = torch.empty(len(histories), 0, dtype=torch.int64)
    question = Question(
        torch.tensor([*targets], dtype=torch.int64),
        n,
        lists[2],
        lists[0] if banned else nothing,
        lists[1] if only else None,
    )
    return baseline.ask(Histories.of(histories), question)


def test_popularity_by_hand() -> None:
    ranks, top = answer(Popularity().fit(trained(LOG, 6)), [4])
    assert ranks == [1, 2, 4, 4, 5, 6]  # 2 and 3 tie: each counts the other
    assert top == [0, 1, 2, 3, 4, 5]


def test_popularity_does_not_rest_on_the_item_order() -> None:
    ranks, top = answer(Popularity().fit(trained([[3, 3, 3, 1]], 6)), [])
    assert ranks == [6, 2, 6, 1, 6, 6]
    assert top == [3, 1, 0, 2, 4, 5]


def test_equal_counts_earn_nothing() -> None:
    found = evaluate(Popularity().fit(trained([[*range(20)]], 20)), Given([[0, 1, 2], [3, 3, 3]], 20))
    assert found.rank.tolist() == [20, 20]
    assert found.mean("hr@10") == 0


def test_most_recent_by_hand() -> None:
    ranks, top = answer(MostRecent().fit(trained(LOG, 6)), [4, 2, 5, 2, 4])
    assert top == [4, 2, 5, 0, 1, 3]
    assert ranks == [4, 5, 2, 6, 1, 3]
    assert answer(MostRecent().fit(trained(LOG, 6)), [])[0] == [1, 2, 4, 4, 5, 6]


def test_personal_frequency_by_hand() -> None:
    ranks, top = answer(PersonalFrequency().fit(trained(LOG, 6)), [4, 4, 2, 5, 2, 3])
    assert top == [2, 4, 3, 5, 0, 1]  # 2 and 4 twice, 2 later; 3 after 5
    assert ranks == [5, 6, 1, 3, 2, 4]


def test_personal_follow_by_hand() -> None:
    follow = PersonalFollow().fit(trained(LOG, 6))
    ranks, top = answer(follow, [4, 2, 4, 3, 1, 4, 2, 1, 3, 4])
    assert top == [2, 3, 4, 1, 0, 5]  # after 4 came 2 twice and 3 once; 4 is there four times, 1 twice
    assert ranks == [5, 4, 1, 2, 3, 6]
    assert answer(follow, [3, 1, 3, 2])[1] == [3, 2, 1, 0, 4, 5]  # nothing came after 2: frequency, then recency
    assert answer(follow, [3, 3, 1, 3])[1][:2] == [3, 1]  # 3 and 1 once each after 3; 3 is more frequent
    assert asked(follow, [[2], [1, 2]], [1, 2], 1).rank.tolist() == [3, 1]  # neighbours of two users are no pair


def test_new_items_tie_after_the_history() -> None:
    ranks, _ = answer(MostRecent().fit(trained(LOG, 6)), [4])
    assert ranks == [2, 3, 5, 5, 1, 6]


def test_first_order_rules_by_hand() -> None:
    rules = SequentialRules().fit(trained(LOG, 6))
    ranks, top = answer(rules, [3, 0])  # after 0: 1 twice, 2 once, 3 once
    assert top == [1, 2, 3, 0, 4, 5]
    assert ranks == [4, 1, 3, 3, 5, 6]  # 2 and 3 tie in count and in popularity
    ranks, top = answer(rules, [1])  # after 1: 0, 3 and 4 once each; ties by popularity
    assert top == [0, 3, 4, 1, 2, 5]
    assert ranks == [1, 4, 5, 2, 3, 6]
    assert answer(rules, [5])[1] == answer(rules, [])[1] == [0, 1, 2, 3, 4, 5]  # no rule: popularity


def test_rules_learn_that_an_item_follows_itself() -> None:
    rules = SequentialRules().fit(trained([[0, 1, 1, 1, 0]], 6))
    assert answer(rules, [1])[1][:2] == [1, 0]


def test_rules_do_not_cross_users_and_see_training_rows_only() -> None:
    found = SequentialRules(decay="quotient").fit(Given([[0, 1, 2, 3], [4, 5, 2, 3]], 6))
    assert found.followers.tolist() == [1, 5]
    assert found.starts.tolist() == [0, 1, 1, 1, 1, 2, 2]
    assert found.strengths.tolist() == [1.0, 1.0]


def strengths(rules: SequentialRules, source: int) -> dict[int, float]:
    """The rules of one item, strongest first."""
    at = slice(rules.starts[source], rules.starts[source + 1])
    return dict(zip(rules.followers[at].tolist(), rules.strengths[at].tolist(), strict=True))


def test_decayed_rules_by_hand() -> None:
    rules = SequentialRules(decay="quotient", window=3).fit(trained([[0, 1, 2, 3], [0, 3, 1]], 6))
    assert strengths(rules, 0) == pytest.approx({1: 1 + 1 / 2, 3: 1 / 3 + 1, 2: 1 / 2})
    assert strengths(rules, 1) == pytest.approx({2: 1, 3: 1 / 2})
    assert strengths(rules, 3) == {1: 1}
    ranks, top = answer(rules, [3, 0, 1])
    # 1 at distance 1: 2 +1, 3 +1/2; 0 at distance 2: 1 +3/4, 3 +2/3, 2 +1/4; 3 at distance 3: 1 +1/3
    assert top[:3] == [2, 3, 1]  # 1.25, 1.17, 1.08
    assert ranks[1:4] == [3, 1, 2]


def test_rules_without_history_by_hand() -> None:
    found = RulesWithoutHistory().fit(trained([[0, 1, 2, 3], [0, 3], [0, 4], [0, 4]], 6))
    # 0 ×4: 1 +1, 2 +1/2, 3 +1/3 + 1, 4 +2, all halved; 1 ×1: 2 +1, 3 +1/2; 2 ×1: 3 +1
    assert strengths(found, 0) == pytest.approx({4: 1, 3: 2 / 3, 1: 1 / 2, 2: 1 / 4})
    assert strengths(found, 1) == pytest.approx({2: 1, 3: 1 / 2})
    ranks, top = answer(found, [1, 0])  # 0: 4 +1, 3 +2/3, 2 +1/4; 1 at distance 2: 2 +1/2, 3 +1/4
    assert top == [4, 3, 2, 5]  # 1, 2/3 + 1/4, 1/4 + 1/2, then popularity; 0 and 1 are never listed
    assert ranks == [7, 7, 3, 2, 1, 4]
    assert answer(found, [])[1] == [0, 3, 4, 1, 2, 5]
    assert answer(found, [5, 3])[0] == [1, 4, 4, 7, 2, 7]  # no rule: popularity, where 1 and 2 tie


def test_equal_sums_tie_in_whichever_order_they_were_added() -> None:
    rules = SequentialRules(decay="quotient", window=3).fit(trained([[0, 1, 2, 3, 4]], 6))
    rules.starts = np.array([0, 2, 4, 6, 6, 6, 6])
    rules.followers = np.array([3, 4] * 3, dtype=np.int32)
    rules.strengths = np.array([0.1, 0.2, 0.1, 0.1, 0.9, 0.6])
    first, second = np.add.reduceat([0.1, 1 / 2 * 0.1, 1 / 3 * 0.9, 0.2, 1 / 2 * 0.1, 1 / 3 * 0.6], [0, 3])
    assert first != second  # 0.45 twice, but for the last bit
    assert answer(rules, [2, 1, 0])[0][3:5] == [2, 2]


def test_linear_decay_by_hand() -> None:
    rules = SequentialRules(decay="linear", window=4).fit(trained([[0, 1, 2, 3, 4, 5]], 6))
    assert strengths(rules, 0) == {1: 1.0, 2: 0.75, 3: 0.5, 4: 0.25}


def test_strongest_rules_are_kept() -> None:
    rules = SequentialRules(rules=2).fit(trained([[0, 1, 0, 2, 0, 2, 0, 3, 0, 4, 4]], 6))
    assert strengths(rules, 0) == {2: 2, 4: 1}  # 1, 3 and 4 once; 4 is the most popular of them


def test_rules_counted_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    log = trained([random.integers(30, size=size).tolist() for size in random.integers(1, 40, size=50)], 30)
    whole = SequentialRules(decay="quotient").fit(log)
    monkeypatch.setattr(rules, "_PAIRS", 700)
    blocks = SequentialRules(decay="quotient").fit(log)
    assert len(list(rules._pair_blocks(log.training(), blocks.popularity.counts, blocks.weights))) > 5
    assert np.array_equal(whole.starts, blocks.starts)
    assert np.array_equal(whole.followers, blocks.followers)
    assert np.array_equal(whole.strengths, blocks.strengths)


@pytest.mark.parametrize("name", BASELINES)
def test_histories_answered_in_blocks_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    baseline = BASELINES[name]().fit(trained(LOG, 6))
    histories = [random.integers(6, size=size) for size in random.integers(0, 8, size=20)]
    targets = random.integers(6, size=20)
    whole = asked(baseline, histories, targets, 3)
    monkeypatch.setattr("abaca.evaluation.baselines.baseline._ROWS", 7)
    blocks = asked(baseline, histories, targets, 3)
    assert torch.equal(whole.rank, blocks.rank)
    assert torch.equal(whole.ahead, blocks.ahead)
    assert torch.equal(whole.items, blocks.items)
    assert asked(baseline, [], [], 3).items.shape == (0, 3)


@pytest.mark.parametrize("name", BASELINES)
def test_edges_of_every_baseline(name: str) -> None:
    baseline = BASELINES[name]().fit(trained(LOG, 6))
    assert baseline.name == name
    found = asked(baseline, [[1, 2], []], [-1, -1], 8)
    assert found.rank.tolist() == [7, 7]  # no target
    assert found.ahead.tolist() == [0, 0]
    kept = [0, 3, 4, 5] if baseline.excludes_history else [*range(6)]
    assert sorted(found.items[0][found.logits[0] > -torch.inf].tolist()) == kept
    assert sorted(found.items[1].tolist()) == [*range(6)]
    untrained = BASELINES[name]().fit(Given([[0, 1], [2, 3]], 6))  # no training row at all
    assert answer(untrained, [])[0] == [6] * 6


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="got decay 'log'"):
        SequentialRules(decay="log")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got window 0"):
        SequentialRules(window=0)


def plain_rules(rows: Rows, history: Sequence[int], window: int, power: float) -> list[float]:
    """The rules of the last items: weight / distance / count(source) ** power, summed in loops."""
    scores = [0.0] * 6
    counts = [sum(list(row).count(x) for row in rows) for x in range(6)]
    for distance, source in enumerate(reversed(history[-window:]), start=1):
        for row in rows:
            for i, before in enumerate(row):
                for j in range(i + 1, min(i + window, len(row) - 1) + 1):
                    if before == source:
                        scores[row[j]] += 1 / distance / (j - i) / counts[source] ** power
    return scores


def plain_blend(rows: Rows, history: Sequence[int]) -> list[float]:
    """λ · softmax(a ln count − b ln since + d ln(1 + follow)) + (1 − λ) · rules / Σ rules, with the default numbers."""
    share, a, b, d = Numbers()
    weights, counted = [0.0] * 6, plain_rules(rows, history, 10, 0.5)
    for x in set(history):
        since = [*reversed(history)].index(x) + 1
        weights[x] = list(history).count(x) ** a * since**-b * (1 + plain_follow(history, x)) ** d
    parts = ((share, weights), (1 - share, counted))
    return [sum(part * each[x] / sum(each) for part, each in parts if sum(each)) for x in range(6)]


def plain_follow(history: Sequence[int], x: int) -> int:
    return sum(before == history[-1] and after == x for before, after in itertools.pairwise(history))


def plain_scores(name: str, rows: Rows, history: Sequence[int], catalogue: int) -> list[tuple[float, ...] | None]:
    """Each item's score, tie-breaks after it, in loops that read like the definitions; None where it is excluded."""
    popular = [sum(row.count(x) for row in map(list, rows)) for x in range(catalogue)]
    latest = {x: place for place, x in enumerate(history, start=1)}
    if name in ("popularity", "counts alone"):  # which is fitted on a few targets more than these logs have
        return [(count,) for count in popular]
    if name == "most recent":
        return [(latest.get(x, 0), popular[x]) for x in range(catalogue)]
    if name == "personal frequency":
        return [(list(history).count(x), latest.get(x, 0), popular[x]) for x in range(catalogue)]
    if name == "personal follow":
        own = [plain_follow(history, x) for x in range(catalogue)]
        return [(own[x], list(history).count(x), latest.get(x, 0), popular[x]) for x in range(catalogue)]
    if name == "blend":
        return [(round(score, 9), popular[x]) for x, score in enumerate(plain_blend(rows, history))]
    excluded = set(history) if name == "rules without history" else set()
    window, power = 1 if name == "sequential rules" else 10, 0.5 if name == "rules without history" else 0.0
    scores = plain_rules(rows, history, window, power)
    return [None if x in excluded else (round(scores[x], 9), popular[x]) for x in range(catalogue)]


item = st.integers(0, 5)


@given(
    rows=st.lists(st.lists(item, max_size=12), min_size=1, max_size=6),
    history=st.lists(item, max_size=14),
    n=st.integers(1, 8),
)
@pytest.mark.parametrize("name", BASELINES)
def test_rank_and_top_equal_a_plain_sort(name: str, rows: Rows, history: Sequence[int], n: int) -> None:
    baseline = BASELINES[name]().fit(trained(rows, 6))
    ranks, top = answer(baseline, history, n)
    scores = dict(enumerate(plain_scores(name, rows, history, 6)))
    listed = {x: score for x, score in scores.items() if score is not None}
    above = {x: [y for y, other in listed.items() if other >= score and y != x] for x, score in listed.items()}
    assert ranks == [1 + len(above[x]) if x in above else 7 for x in range(6)]
    best = sorted(listed, key=lambda x: ([-part for part in listed[x]], x))
    assert top == best[:n]
    found = asked(baseline, [history] * 6, range(6), n).ahead
    assert found.tolist() == [len(set(above.get(x, ())) & set(history)) for x in range(6)]


@given(
    history=st.lists(item, max_size=9),
    n=st.integers(1, 6),
    banned=st.lists(item, unique=True, max_size=5),
    only=st.none() | st.lists(item, unique=True, min_size=1, max_size=6),
)
@pytest.mark.parametrize("name", BASELINES)
def test_lists_leave_the_order_of_what_is_allowed(
    name: str, history: Sequence[int], n: int, banned: Sequence[int], only: Sequence[int] | None
) -> None:
    baseline = BASELINES[name]().fit(trained(LOG, 6))
    order = answer(baseline, history)[1]
    found = asked(baseline, [history], [0], n, [banned], None if only is None else [only])
    allowed = [x for x in order if x not in banned and (only is None or x in only)][:n]
    assert found.items[0, : len(allowed)].tolist() == allowed
    assert found.logits[0].isfinite().tolist() == [place < len(allowed) for place in range(n)]


def test_shelves_of_baselines() -> None:
    """Four users repeat, four do not; on its shelf a target competes with its like only."""
    log = Given([[0, 1, 0, 1, 0, 1]] * 4 + [[2, 3, 2, 3, 2, 4]] * 4, 6)
    recent = evaluate(MostRecent().fit(log), log, cutoffs=(1,))
    assert recent.rank.tolist() == [2] * 4 + [6] * 4
    assert recent.shelf_rank.tolist() == [2] * 4 + [4] * 4  # 4 comes after 0, 1 and 5, which ties, not after 2 and 3
    excluding = evaluate(RulesWithoutHistory().fit(log), log, cutoffs=(1,))
    assert excluding.rank.tolist() == excluding.shelf_rank.tolist() == [7] * 4 + [4] * 4
    assert not excluding.top_repeat.any()
    follow = evaluate(PersonalFollow().fit(log), log, cutoffs=(1,))
    assert follow.mean("hr@1", "buy again") == 1


def test_baselines_know_what_they_should_in_one_table() -> None:
    repeaters = Given([[x, y, x, y, x, y, x] for x in range(12) for y in range(12) if x != y], 12)
    rows = {
        row["ranker"]: row
        for row in table([evaluate(make().fit(repeaters), repeaters, cutoffs=(2,)) for make in BASELINES.values()])
    }
    assert list(rows) == list(BASELINES)
    assert rows["personal frequency"]["hr@2 all"] == rows["most recent"]["hr@2 all"] == 1.0
    assert rows["popularity"]["hr@2 all"] == 0.0

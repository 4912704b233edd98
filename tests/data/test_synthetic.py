"""Synthetic logs follow their rule, and the oracle knows it."""

import math
from collections import Counter

import numpy as np
import pytest

from abaca.data.synthetic import CLUSTER, Rule, synthetic_log
from oracles import best_possible, oracle

RULES: list[Rule] = ["copy-after-repeat", "never-copy", "copy-twice"]
ITEMS = 1000


def sequences(rule: Rule, users: int, items: int, length: int, seed: int = 0) -> np.ndarray:
    return synthetic_log(rule, users, items, length, seed)["item"].to_numpy().reshape(users, length)


@pytest.mark.parametrize("rule", [*RULES, "mixed"])
def test_a_seed_gives_the_same_log_and_another_another(rule: Rule) -> None:
    assert synthetic_log(rule, 20, ITEMS, 18, 3).equals(synthetic_log(rule, 20, ITEMS, 18, 3))
    assert not synthetic_log(rule, 20, ITEMS, 18, 3).equals(synthetic_log(rule, 20, ITEMS, 18, 4))


@pytest.mark.parametrize("rule", RULES)
def test_what_happens_is_what_the_oracle_allows(rule: Rule) -> None:
    for row in sequences(rule, 30, 100, 24).tolist():
        for place in range(24):
            following = oracle(rule, row[:place], 100)
            assert sum(following.values()) == pytest.approx(1)
            assert following[row[place]] > 0


@pytest.mark.parametrize(
    ("rule", "place"), [("copy-after-repeat", 6), ("never-copy", 7), ("copy-twice", 3), ("copy-twice", 7)]
)
def test_the_oracle_is_calibrated(rule: Rule, place: int) -> None:
    """Of many users, the share of repeats is what the oracle expects."""
    rows = sequences(rule, 4000, 100, place + 1).tolist()
    happened = np.mean([row[place] in row[:place] for row in rows])
    expected = np.mean(
        [sum(p for item, p in oracle(rule, row[:place], 100).items() if item in row[:place]) for row in rows]
    )
    assert happened == pytest.approx(expected, abs=0.03)


def test_copy_after_repeat() -> None:
    assert oracle("copy-after-repeat", [5, 7, 9, 5], ITEMS) == {5: 1 / 3, 7: 1 / 3, 9: 1 / 3}
    assert oracle("copy-after-repeat", [1, 2, 3], 5) == {0: 0.5, 4: 0.5}
    best = best_possible("copy-after-repeat", [[5, 7, 9, 5]], ITEMS)
    assert best["hr"] == pytest.approx(1)
    assert best["ndcg"] == pytest.approx((1 + 1 / np.log2(3) + 0.5) / 3)


def test_never_copy() -> None:
    rows = sequences("never-copy", 50, ITEMS, 16)
    assert all(len(set(row)) == 16 and len(set(row // CLUSTER)) == 1 for row in rows)
    assert oracle("never-copy", list(range(40, 55)), ITEMS) == dict.fromkeys(range(55, 60), 1 / 5)


def test_copy_twice() -> None:
    for row in sequences("copy-twice", 50, ITEMS, 18).tolist():
        opening = Counter(row[:9])
        assert sorted(opening.values()) == [1, 1, 1, 2, 2, 2]
        assert {opening[item] for item in row[9:]} == {2}
    assert oracle("copy-twice", [1, 2, 1, 3, 4, 3, 5, 6, 5], ITEMS) == {1: 1 / 3, 3: 1 / 3, 5: 1 / 3}
    assert oracle("copy-twice", [1, 2, 1, 3, 3, 4, 4, 5], 100).keys() == set(range(100)) - {1, 2, 3, 4, 5}
    expected = (1 + 1 / math.log2(3) + 1 / 2) / 3
    found = best_possible("copy-twice", [[1, 2, 1, 3, 4, 3, 5, 6, 5, 1]], ITEMS)
    assert found == {"hr": pytest.approx(1.0), "ndcg": pytest.approx(expected)}


def test_mixed_is_like_a_shop() -> None:
    log = synthetic_log("mixed", 2000, 500, 25, 0)
    users, items, times = (log[name].to_numpy() for name in ("user", "item", "time"))
    lengths = np.bincount(users)
    assert lengths.min() >= 5
    assert lengths.mean() == pytest.approx(25, rel=0.1)
    assert all(np.all(np.diff(times[users == user]) > 0) for user in range(50))
    pairs = len(set(zip(users.tolist(), items.tolist(), strict=True)))
    assert 0.1 < 1 - pairs / len(users) < 0.6
    popularity = np.sort(np.bincount(items, minlength=500))[::-1]
    assert popularity[:50].sum() > 0.4 * len(items)


def test_rules_that_are_not_known() -> None:
    with pytest.raises(ValueError, match="has no exact answer"):
        oracle("mixed", [1], ITEMS)
    with pytest.raises(ValueError, match="the rule is one of"):
        synthetic_log("chaos", 1, 10, 5, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="different items are needed"):
        synthetic_log("copy-twice", 1, 5, 60, 0)

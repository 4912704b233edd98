"""The numbers of the blend: chosen on validation targets alone, by the gains that a plain loop finds."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from abaca.data.sequences import Targets
from abaca.evaluation.baselines import blend
from abaca.evaluation.baselines.blend import GRID, Blend, Numbers, choose, held_out
from abaca.evaluation.evaluate import evaluate

from .test_baselines import Given, plain_follow, plain_rules

DEFAULTS = Numbers()


def log_of(users: int = 120, repeats: float = 0.5, seed: int = 0) -> Given:
    """Users who take an earlier item again with a probability, else one of six at random."""
    random = np.random.default_rng(seed)
    rows = []
    for length in random.integers(4, 15, size=users).tolist():
        row = [int(random.integers(6))]
        for _ in range(length):
            row.append(int(random.choice(row)) if random.random() < repeats else int(random.integers(6)))
        rows.append(row)
    return Given(rows, 6)


def plain_gain(rows: Sequence[Sequence[int]], history: Sequence[int], target: int, numbers: Numbers) -> float:
    """NDCG@10 of one target, in loops that read like the formula; ties count against it."""
    share, a, b, d = numbers
    logits = {}
    for x in set(history):
        since = [*reversed(history)].index(x) + 1
        logits[x] = a * math.log(history.count(x)) - b * math.log(since) + d * math.log(1 + plain_follow(history, x))
    whole, counted = sum(map(math.exp, logits.values())), plain_rules(rows, history, 10, 0.5)
    scores = [(1 - share) * x / (sum(counted) or 1) for x in counted]
    for x, logit in logits.items():
        scores[x] += share * math.exp(logit) / whole
    own = round(scores[target], 9)
    rank = sum(round(score, 9) >= own for score in scores)
    return 1 / math.log2(rank + 1) if own > 0 else 0.0


@pytest.mark.parametrize(
    "numbers", [DEFAULTS, Numbers(0.0, 1, 1, 1), Numbers(1.0, 0.5, 2, 0), Numbers(0.9, 0, 0, 3), Numbers(0.2, 2, 1, 1)]
)
def test_gains_are_those_of_a_plain_loop(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blend, "_ROWS", 50)  # three blocks
    log = log_of()
    held = held_out(log, Blend().fit(log)._rules)
    assert held is not None
    rows = [log.history(user, end).tolist() for user, end in enumerate(log.train_end)]
    gains = [
        plain_gain(rows, log.history(user, position).tolist(), int(log.items[position]), numbers)
        for user, position in zip(*log.valid, strict=True)
    ]
    assert held.mean(numbers) == pytest.approx(np.mean(gains), abs=1e-12)


def test_only_the_best_outside_the_history_are_kept() -> None:
    """Fifty followers, of which the target is the thirtieth or the third."""
    rows = [[0] * 3 + [1 + x] * 2 + [99, 99] for x in range(50) for _ in range(50 - x)]
    log = Given(rows, 100)
    chosen = np.arange(110)
    log.items[log.offsets[chosen] + 5] = np.where(chosen % 2, 3, 30)
    log.valid = Targets(chosen, log.offsets[chosen] + 5)
    scored = Blend().fit(log)
    held = held_out(log, scored._rules)
    assert held is not None
    assert held.outside.shape == (110, 11)
    scored.numbers = np.array([0.0, 1, 1, 1])
    found = evaluate(scored, log, "valid")
    assert held.mean(Numbers(0.0, 1, 1, 1)) == pytest.approx(found.mean("ndcg@10"))
    assert 0 < found.mean("hr@10") < 1


def test_no_other_value_of_any_number_is_better() -> None:
    log = log_of()
    rules = Blend().fit(log)._rules
    held = held_out(log, rules)
    assert held is not None
    found = choose(log, rules)
    assert held.mean(found) > held.mean(DEFAULTS)
    for name, values in GRID.items():
        assert all(held.mean(found) >= held.mean(found._replace(**{name: value})) for value in values)
    assert choose(log, rules) == found


def test_the_share_of_the_history_follows_the_log() -> None:
    found = [Numbers(*Blend().fit(log_of(300, repeats)).numbers).history for repeats in (0.95, 0.3)]
    assert found[0] > found[1]
    distinct = Given([[(x + step) % 40 for step in range(8)] for x in range(40) for _ in range(3)], 40)
    assert Blend().fit(distinct).numbers.tolist() == [0.0, *DEFAULTS[1:]], "nothing repeats"


def test_test_targets_change_nothing() -> None:
    log, other = log_of(), log_of()
    other.items[other.test.positions] = (other.items[other.test.positions] + 1) % 6
    for name, array in Blend().fit(log).state().items():
        assert array.equal(Blend().fit(other).state()[name]), name
    other.items[other.valid.positions] = 5
    assert Blend().fit(log).numbers.tolist() != Blend().fit(other).numbers.tolist()


def test_without_validation_targets_the_defaults_hold() -> None:
    log = log_of()
    log.valid = Targets(log.valid.users[:99], log.valid.positions[:99])
    assert Blend().fit(log).numbers.tolist() == list(DEFAULTS)
    log.valid = Targets(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert Blend().fit(log).numbers.tolist() == list(DEFAULTS)
    assert Blend().fit(log, everything=True).numbers.tolist() == list(DEFAULTS)


def test_everything_changes_the_rules_and_not_the_numbers() -> None:
    log = log_of()
    held_out_apart, whole = Blend().fit(log), Blend().fit(log, everything=True)
    assert whole.numbers.tolist() == held_out_apart.numbers.tolist() != list(DEFAULTS)
    assert whole.strengths.sum() > held_out_apart.strengths.sum()


def test_targets_that_cannot_be_ranked_are_left_out_and_the_rest_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(130)
    log.items[log.valid.positions[:10]] = 6  # cold
    log.items[log.offsets[15] : log.valid.positions[15]] = 6  # nothing known before
    rules = Blend().fit(Given([[0, 1, 2, 0, 0]], 6))._rules
    held = held_out(log, rules)
    assert held is not None
    assert len(held.target) == 119
    monkeypatch.setattr(blend, "SAMPLE", 30)
    few = held_out(log, rules)
    assert few is not None
    assert len(few.target) == 30
    assert few.habits.rows.max() == 29


def test_numbers_are_saved() -> None:
    made = Blend().fit(log_of())
    again = Blend().restore(made.state())
    assert again.numbers.tolist() == made.numbers.tolist() != list(DEFAULTS)
    assert np.array_equal(*(evaluate(each, log_of()).rank for each in (made, again)))
    again.numbers = np.array([1.0, 0.0, 0.0, 0.0])
    assert not np.array_equal(*(evaluate(each, log_of()).rank for each in (made, again)))

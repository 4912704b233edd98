"""Every number checked by hand on a few ranks."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abaca.evaluation import metrics
from abaca.evaluation.metrics import Estimate

RANKS = np.array([1, 2, 3, 10, 11])


def test_gains_by_hand() -> None:
    assert metrics.gains(RANKS, "ndcg@10") == pytest.approx([1, 0.63092975, 0.5, 0.28906483, 0])
    assert metrics.gains(RANKS, "hr@10").tolist() == [1, 1, 1, 1, 0]
    assert metrics.gains(RANKS, "mrr@10") == pytest.approx([1, 1 / 2, 1 / 3, 1 / 10, 0])


@pytest.mark.parametrize(("k", "hits"), [(1, 1), (2, 2), (3, 3), (9, 3), (11, 5)])
def test_cutoff_is_included(k: int, hits: int) -> None:
    for name in metrics.GAINS:
        assert np.count_nonzero(metrics.gains(RANKS, f"{name}@{k}")) == hits


@pytest.mark.parametrize("metric", ["ndgc@10", "ndcg", "ndcg@", "ndcg@0", "hr@-1", "mrr@ten", "@10"])
def test_unknown_metric_is_refused(metric: str) -> None:
    with pytest.raises(ValueError, match="expected one of ndcg, hr, mrr"):
        metrics.gains(RANKS, metric)


def test_rank_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="got rank 0"):
        metrics.gains([3, 0], "hr@10")


def test_totals_by_user_by_hand() -> None:
    totals = metrics.totals_by_user([7, 3, 7], [[1, 10, 2], [1, 1, 1]])
    assert totals.tolist() == [[10, 1], [3, 2]]


def test_resampled_sums_draw_as_many_rows_as_there_are() -> None:
    sums = metrics.resampled_sums(np.array([[1.0, 0.0], [1.0, 5.0], [1.0, 0.0]]), resamples=300, seed=0)
    assert sums.shape == (300, 2)
    assert (sums[:, 0] == 3).all()
    assert set(sums[:, 1]) == {0, 5, 10, 15}
    assert sums[:, 1].mean() == pytest.approx(5, abs=0.8)


def test_resampling_in_pieces_equals_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = np.random.default_rng(0).normal(size=(50, 3))
    whole = metrics.resampled_sums(totals, 40, seed=3)
    monkeypatch.setattr(metrics, "_CELLS", 50 * 7)
    assert metrics.resampled_sums(totals, 40, seed=3) == pytest.approx(whole)
    with pytest.raises(ValueError, match="got 0 resamples"):
        metrics.resampled_sums(totals, 0, seed=3)


def test_mean_estimate_has_the_width_of_theory() -> None:
    values = np.random.default_rng(1).normal(5.0, 2.0, size=400)
    estimate = metrics.mean_estimate(values, resamples=4000)
    half = 1.96 * values.std() / np.sqrt(400)
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.02)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.02)
    assert metrics.mean_estimate(values, level=0.5).low > estimate.low


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    inside = 0
    for trial in range(200):
        estimate = metrics.mean_estimate(random.random(100) < 0.3, resamples=300, seed=trial)
        inside += estimate.low <= 0.3 <= estimate.high
    assert 0.88 <= inside / 200 <= 0.99


def test_users_are_resampled_whole() -> None:
    once = np.random.default_rng(3).normal(size=100)
    users = np.repeat(np.arange(100), 9)
    single, copied = metrics.mean_estimate(once), metrics.mean_estimate(np.repeat(once, 9), users)
    assert copied.high - copied.low == pytest.approx(single.high - single.low)
    alone = metrics.mean_estimate(np.repeat(once, 9))
    assert alone.high - alone.low < 0.5 * (single.high - single.low)


def test_seed_decides_the_interval() -> None:
    values = np.random.default_rng(4).normal(size=30)
    assert metrics.mean_estimate(values, seed=1) == metrics.mean_estimate(values, seed=1)
    assert metrics.mean_estimate(values, seed=1) != metrics.mean_estimate(values, seed=2)


def test_mean_estimates_by_mask() -> None:
    columns, masks = [[1.0, 0, 1, 0], [4.0, 4, 4, 4]], [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]]
    everyone, some, none = metrics.mean_estimates(columns, masks, users=[0, 1, 2, 3])
    assert everyone[0].value == 0.5
    assert everyone[0].low < 0.5 < everyone[0].high
    assert everyone[1] == Estimate(4.0, 4.0, 4.0)
    assert some == [Estimate(1.0, 1.0, 1.0), Estimate(4.0, 4.0, 4.0)]
    assert np.isnan([(e.value, e.low, e.high) for e in none]).all()


def test_mean_of_nothing_is_not_a_number() -> None:
    assert np.isnan(metrics.mean_estimate([]).value)


def test_paired_test_finds_a_small_steady_difference() -> None:
    random = np.random.default_rng(5)
    b = random.random(500)
    a = b + 0.02 + random.normal(0, 0.05, size=500)  # far smaller than the spread of a and b themselves
    test = metrics.paired_test(a, b)
    assert test.difference.value == pytest.approx((a - b).mean())
    assert 0 < test.difference.low < test.difference.value < test.difference.high
    assert test.p_value == pytest.approx(1 / (1 + metrics.FLIPS))
    assert metrics.paired_test(b, a).difference.value == pytest.approx(-test.difference.value)


def test_paired_test_of_equal_models() -> None:
    a = np.random.default_rng(6).random(50)
    test = metrics.paired_test(a, a)
    assert test.difference == Estimate(0.0, 0.0, 0.0)
    assert test.p_value == 1.0


def test_paired_test_is_rarely_wrong_about_equal_models() -> None:
    random = np.random.default_rng(7)
    pairs = random.random((200, 2, 60))
    p_values = [metrics.paired_test(a, b, resamples=200, seed=trial).p_value for trial, (a, b) in enumerate(pairs)]
    assert 0.005 <= np.mean(np.array(p_values) <= 0.05) <= 0.1
    assert 0.4 <= np.mean(p_values) <= 0.6


def test_paired_test_flips_users_not_targets() -> None:
    b = np.zeros(40)
    a = np.repeat([0.5, 0.4, 0.3, -0.2], 10)  # four users, ten targets each
    by_target = metrics.paired_test(a, b)
    by_user = metrics.paired_test(a, b, users=np.repeat(np.arange(4), 10))
    assert by_target.p_value < 0.001
    assert by_target.difference.low > 0 > by_user.difference.low
    assert by_user.p_value == pytest.approx(4 / 16, abs=0.03)  # of 16 sign patterns, ±(+++−) and ±(++++) reach 10


def test_sign_flips_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.random.default_rng(8).random((2, 30))
    whole = metrics.paired_test(a, b, resamples=500)
    monkeypatch.setattr(metrics, "_CELLS", 30 * 7)
    assert metrics.paired_test(a, b, resamples=500).p_value == pytest.approx(whole.p_value, abs=0.1)


def test_paired_test_wants_the_same_targets() -> None:
    with pytest.raises(ValueError, match="expected the same targets"):
        metrics.paired_test([1.0, 2.0], [1.0])


def test_calibration_by_hand() -> None:
    found = metrics.calibration([0.1, 0.2, 0.9, 1.0, np.nan], [0, 1, 1, 1, 1], bins=2)
    assert found is not None
    assert (found.count, found.observed) == (4, 0.75)
    assert found.predicted == pytest.approx(0.55)
    assert [astuple(b) for b in found.bins] == [
        pytest.approx((0, 0.5, 2, 0.15, 0.5)),
        pytest.approx((0.5, 1, 2, 0.95, 1)),
    ]
    assert found.ece == pytest.approx((0.35 + 0.05) / 2)
    assert found.brier == pytest.approx((0.01 + 0.64 + 0.01 + 0) / 4)


def test_bins_hold_their_lower_edge_and_empty_ones_are_left_out() -> None:
    bins = metrics.reliability_bins([0.0, 0.5, 1.0], [0, 0, 1], bins=4)
    assert [(b.low, b.high, b.count) for b in bins] == [(0.0, 0.25, 1), (0.5, 0.75, 1), (0.75, 1.0, 1)]


def test_calibration_of_a_true_probability_is_near_zero() -> None:
    random = np.random.default_rng(9)
    p = random.random(20_000)
    happened = random.random(20_000) < p
    honest, inverted = metrics.calibration(p, happened), metrics.calibration(1 - p, happened)
    assert honest is not None
    assert inverted is not None
    assert honest.ece < 0.02
    assert inverted.ece > 0.4


def test_calibration_edges() -> None:
    assert metrics.calibration([np.nan, np.nan], [0, 1]) is None
    assert metrics.calibration([], []) is None
    rounded = metrics.calibration([1 + 1e-7], [1])
    assert rounded is not None
    assert rounded.predicted == 1.0
    with pytest.raises(ValueError, match="expected 0 to 1"):
        metrics.calibration([1.2], [1])


def test_coverage_and_repeat_share_leave_padding_out() -> None:
    top = np.array([[0, 1, 2], [1, 2, -1], [2, -1, -1]])
    repeats = np.array([[1, 0, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
    assert metrics.coverage(top, 4) == 3 / 4
    assert metrics.repeat_share(top, repeats) == 3 / 6
    assert np.isnan(metrics.repeat_share(top[:, :0], repeats[:, :0]))


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_geometric_mean_is_the_root_of_the_product(values: list[float]) -> None:
    assert metrics.geometric_mean(values) == pytest.approx(np.prod(values) ** (1 / len(values)))


def test_geometric_mean_edges() -> None:
    assert metrics.geometric_mean([4, 9]) == pytest.approx(6)
    assert metrics.geometric_mean([4, 0]) == 0
    for bad in ([], [1, -1], [np.nan]):
        with pytest.raises(ValueError, match="at least 0"):
            metrics.geometric_mean(bad)

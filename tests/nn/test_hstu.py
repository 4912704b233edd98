"""HSTU: what times and the moment of the query change, and what becomes of a model that is not told them."""

import pytest
import torch
from torch import Tensor

from abaca.histories import Windows
from abaca.nn.build import make_model
from abaca.nn.ops.buckets import UNKNOWN, bucket

from .cases import final_logits, model_of

ITEMS = torch.tensor([[3, 5, 3, 8], [1, 2, 9, -1]])
LAST = torch.tensor([[3], [2]])
TIMES = torch.tensor([[0.0, 60, 4000, 90_000], [10, 10, 700, 0]], dtype=torch.float64)
NOW = torch.tensor([[90_500.0], [10_000.0]], dtype=torch.float64)


def logits(times: Tensor | None = None, now: Tensor | None = None) -> Tensor:
    return final_logits(model_of("hstu", "softmax").scores(Windows(ITEMS, LAST, times, now)))


def test_buckets_double() -> None:
    gaps = torch.tensor([-5, 0, 1, 2, 3, 6, 7, 2.0**39, 2.0**60, torch.nan], dtype=torch.float64)
    assert bucket(gaps).tolist() == [0, 0, 1, 1, 2, 2, 3, 39, UNKNOWN - 1, UNKNOWN]


def test_times_and_the_moment_are_read() -> None:
    without, timed, asked = logits(), logits(TIMES), logits(TIMES, NOW)
    assert not torch.allclose(without, timed)
    assert not torch.allclose(timed, asked)
    assert not torch.allclose(asked, logits(TIMES, NOW + 1e6))
    torch.testing.assert_close(timed, logits(TIMES + 5e8))  # only differences count
    torch.testing.assert_close(asked, logits(TIMES + 5e8, NOW + 5e8))


def test_a_history_without_times_is_answered_as_if_alone() -> None:
    """NaN stands for what is not known of a history, where it is known of others."""
    unknown = torch.tensor([[True], [False]])
    mixed = logits(TIMES.masked_fill(unknown, torch.nan), NOW.masked_fill(unknown, torch.nan))
    torch.testing.assert_close(mixed[0], logits()[0])
    torch.testing.assert_close(mixed[1], logits(TIMES, NOW)[1])
    without_moment = logits(TIMES, NOW.masked_fill(unknown, torch.nan))
    torch.testing.assert_close(without_moment[0], logits(TIMES)[0])
    torch.testing.assert_close(without_moment[1], logits(TIMES, NOW)[1])


def test_all_positions_equal_one_by_one_with_times() -> None:
    """The moment of a prediction is the time of the item that followed."""
    model, targets = model_of("hstu", "softmax+CP"), torch.tensor([[5, 3, 8, 11]])
    moments = torch.cat([TIMES[:1, 1:], NOW[:1]], dim=1)
    together = model.loss(Windows(ITEMS[:1], torch.arange(4)[None], TIMES[:1], moments), targets)
    alone = [
        model.loss(
            Windows(ITEMS[:1, : at + 1], torch.tensor([[at]]), TIMES[:1, : at + 1], moments[:, at : at + 1]),
            targets[:, at : at + 1],
        )
        for at in range(4)
    ]
    torch.testing.assert_close(together, torch.stack(alone).sum(), rtol=1e-11, atol=0)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_some_windows_are_not_told_the_moment_in_training(share: float) -> None:
    torch.manual_seed(0)
    model = make_model("hstu", "softmax", 14, dim=6, unknown=share, dropout=0.0)
    rows = 4000
    windows = Windows(*(part[:1].expand(rows, -1) for part in (ITEMS, LAST, TIMES, NOW)))
    times, moments = model.train().encoder._known(windows)
    assert abs(moments.isnan().all(1).float().mean().item() - share) < 0.05
    assert abs(times.isnan().all(1).float().mean().item() - share / 5) < 0.05
    times, moments = model.eval().encoder._known(windows)
    assert not moments.isnan().any()
    assert not times.isnan().any()


def test_eight_blocks_begin_as_one_does() -> None:
    """The size of the first states does not grow with depth, so that deep encoders need no other learning rate."""
    sizes = []
    for blocks in (1, 8):
        torch.manual_seed(0)
        model = make_model("hstu", "softmax", 14, blocks=blocks).eval()
        with torch.no_grad():
            model.items.weight.normal_(std=0.1)
        before = []
        model.encoder.norm.register_forward_hook(lambda _, given, __, kept=before: kept.append(given[0].std().item()))
        model.scores(Windows(ITEMS, LAST))
        sizes.append(before[0])
    assert sizes[1] == pytest.approx(sizes[0], rel=0.2)

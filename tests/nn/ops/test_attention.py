"""The native attention against torch's own in float64: same values, same gradients, and what dropout leaves."""

import pytest
import torch
from torch import Tensor

from abaca.nn.ops.attention import Biases, attend
from abaca.nn.ops.buckets import KINDS, UNKNOWN, bucket, buckets_between
from abaca.nn.ops.library import native_supports

TOLERANCE = 1e-5


def solve(packed: Tensor, heads: int, share: float, weights: Tensor) -> tuple[Tensor, Tensor]:
    leaf = packed.clone().requires_grad_()
    mixed = attend(leaf, heads, share)
    (mixed * weights.to(mixed.dtype)).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return mixed.detach(), leaf.grad


@pytest.mark.parametrize(
    ("batch", "length", "heads", "dim"), [(1, 1, 1, 3), (5, 7, 3, 5), (4, 50, 2, 32), (3, 20, 1, 72)]
)
@pytest.mark.parametrize("size", [0.1, 5.0])  # the last one looks at few positions only
@pytest.mark.parametrize("threads", [1, 3])
def test_equals_torch(batch: int, length: int, heads: int, dim: int, size: float, threads: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(length)
    packed, weights = size * torch.randn(batch, length, 3 * heads * dim), torch.randn(batch, length, heads * dim)
    assert native_supports(packed)  # else both sides were torch's
    got, expected = solve(packed, heads, 0.0, weights), solve(packed.double(), heads, 0.0, weights)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=TOLERANCE * max(float(b.abs().max()), 1e-3))


def weights_of(query: Tensor, key: Tensor) -> Tensor:
    """Causal weights (L, L) of one head."""
    scores = query @ key.T / query.shape[1] ** 0.5
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf).softmax(dim=1)


def test_drops_weights() -> None:
    """With the unit vectors as values, the output shows what became of each weight."""
    torch.manual_seed(0)
    length, share = 40, 0.25
    query, key = torch.randn(2, length, length)
    packed = torch.cat([query, key, torch.eye(length)], dim=1).unsqueeze(0).requires_grad_()
    weights, kept = weights_of(query, key), attend(packed, 1, share)[0]
    dropped = (kept == 0) & (weights > 0)
    seen = length * (length + 1) // 2
    assert abs(int(dropped.sum()) / seen - share) < 5 * (share * (1 - share) / seen) ** 0.5
    torch.testing.assert_close(kept[~dropped], weights[~dropped] / (1 - share))
    given = torch.randn(length, length)
    (kept * given).sum().backward()  # type: ignore[no-untyped-call]
    leaf = packed.detach().clone().requires_grad_()
    again = weights_of(*leaf[0].tensor_split(3, dim=1)[:2]) * ~dropped / (1 - share) @ leaf[0][:, 2 * length :]
    (again * given).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(packed.grad, leaf.grad, rtol=1e-4, atol=1e-5)


def test_the_same_seed_drops_the_same() -> None:
    packed = torch.randn(2, 9, 24, requires_grad=True)
    mixed = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        mixed.append(attend(packed, 2, 0.5))
    assert torch.equal(mixed[0], mixed[1])
    assert not torch.equal(mixed[0], mixed[2])


def times_of(batch: int, length: int) -> Tensor:
    """Times of which every other is that of the one before; of some windows they are not known, of some in part."""
    times = (10 ** (6 * torch.rand(batch, length))).round().double().cumsum(1)
    times[:, 1::2] = times[:, ::2][:, : length // 2]
    times[1::3] = torch.nan
    times[2::3, : length // 3] = torch.nan
    return times


def solve_with_biases(given: tuple[Tensor, ...], buckets: Tensor, weights: Tensor) -> list[Tensor]:
    """What attention gives, and the gradients of query, key and value and of both tables."""
    packed, places, times = (part.clone().requires_grad_() for part in given)
    heads = places.shape[1]
    behind_a_gate = torch.cat([packed[..., :heads], packed], dim=2)[..., heads:]  # not contiguous
    mixed = attend(behind_a_gate, heads, 0.0, Biases.of(places, times, buckets))
    (mixed * weights.to(mixed.dtype)).sum().backward()  # type: ignore[no-untyped-call]
    assert packed.grad is not None
    assert places.grad is not None
    assert times.grad is not None
    return [mixed.detach(), packed.grad, places.grad, times.grad]


@pytest.mark.parametrize(
    ("batch", "length", "heads", "dim", "reach"),
    [(1, 1, 1, 3, 1), (5, 7, 3, 5, 4), (4, 50, 2, 32, 64), (3, 200, 2, 8, 16), (2, 33, 1, 72, 33)],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_biases_equal_torch(batch: int, length: int, heads: int, dim: int, reach: int, threads: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(length)
    given = torch.randn(batch, length, 3 * heads * dim), torch.randn(reach, heads), torch.randn(KINDS, heads)
    weights, times = torch.randn(batch, length, heads * dim), times_of(batch, length)
    assert native_supports(*given)
    got = solve_with_biases(given, buckets_between(times), weights)
    plain = bucket(times.unsqueeze(2) - times.unsqueeze(1))
    expected = solve_with_biases(tuple(part.double() for part in given), plain, weights)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=TOLERANCE * max(float(b.abs().max()), 1e-3))
    with torch.no_grad():
        biases = Biases.of(given[1], given[2], buckets_between(times))
        torch.testing.assert_close(attend(given[0], heads, 0.0, biases), got[0], rtol=0, atol=0)


def test_the_plain_bias_is_that_of_the_formula() -> None:
    torch.manual_seed(0)
    batch, length, heads, reach = 3, 9, 2, 4
    places, table, times = torch.randn(reach, heads), torch.randn(KINDS, heads), times_of(batch, length)
    total = Biases.of(places, table, bucket(times.unsqueeze(2) - times.unsqueeze(1))).total
    for window in range(batch):
        for i in range(length):
            assert total[window, :, i, i + 1 :].eq(-torch.inf).all()
            for j in range(i + 1):
                kind = bucket(times[window, i] - times[window, j])
                torch.testing.assert_close(total[window, :, i, j], places[min(i - j, reach - 1)] + table[kind])


def test_native_buckets_equal_torch() -> None:
    """Also of times that are not in order, not whole, or infinitely far."""
    torch.manual_seed(0)
    times = torch.cat([times_of(6, 40), 1e4 * torch.randn(2, 40).double(), torch.arange(80.0).view(2, 40).double()])
    times[-1, 7], times[-1, 20] = -torch.inf, torch.nan
    got, expected = buckets_between(times), bucket(times.unsqueeze(2) - times.unsqueeze(1))
    assert got.dtype == torch.uint8
    assert torch.equal(got.long().tril(), expected.tril())
    assert {0, 1, UNKNOWN - 1, UNKNOWN} <= set(got.unique().tolist())


@pytest.mark.parametrize("biased", [False, True])
def test_no_weights_are_kept_for_the_backward_pass(biased: bool) -> None:
    """What is kept grows with the length; only the bytes of the buckets, which all blocks share, with its square."""
    batch, length, heads, dim = 2, 200, 2, 8
    packed = torch.randn(batch, length, 3 * heads * dim, requires_grad=True)
    tables = torch.randn(256, heads, requires_grad=True), torch.randn(KINDS, heads, requires_grad=True)
    biases = Biases.of(*tables, buckets_between(times_of(batch, length))) if biased else None
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda part: kept.append(part) or part, lambda part: part):
        attend(packed, heads, 0.0 if biased else 0.1, biases)
    floats = [part.numel() for part in kept if part.is_floating_point()]
    assert max(floats) == packed.numel()
    others = [part for part in kept if not part.is_floating_point()]
    assert [part.data_ptr() for part in others] == ([biases.buckets.data_ptr()] if biases else [])
    assert all(part.dtype == torch.uint8 for part in others)

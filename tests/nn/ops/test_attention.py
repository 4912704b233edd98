"""The native attention against torch's own in float64: same values, same gradients, and what dropout leaves."""

import pytest
import torch
from torch import Tensor

from abaca.nn.ops.attention import attend
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

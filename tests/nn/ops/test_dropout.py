"""The native dropout: its share, its independence, and that the backward pass drops the same."""

import pytest
import torch

from abaca.nn import ops
from abaca.nn.ops.dropout import Dropout

SIZE = 200_000


@pytest.mark.parametrize("share", [0.1, 0.5, 0.93])
def test_drops_its_share_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    kept = Dropout(share)(torch.ones(SIZE))
    dropped = float((kept == 0).double().mean())
    assert abs(dropped - share) < 5 * (share * (1 - share) / SIZE) ** 0.5
    assert torch.equal(kept.unique(), torch.tensor([0.0, 1 / (1 - share)]))


def test_neighbours_and_seeds_do_not_tell_of_each_other() -> None:
    torch.manual_seed(1)
    layer = Dropout(0.5)
    first, second = ((layer(torch.ones(SIZE)) == 0).double() - 0.5 for _ in range(2))
    limit = 5 * 0.25 / SIZE**0.5
    assert abs(float((first * second).mean())) < limit
    for apart in (1, 2, 8, 50, 64, 1024):
        assert abs(float((first[apart:] * first[:-apart]).mean())) < limit, apart
        assert abs(float((first[apart:] * second[:-apart]).mean())) < limit, apart


def test_the_backward_pass_drops_the_same() -> None:
    values = torch.randn(7, 1001).transpose(0, 1).requires_grad_()
    kept = Dropout(0.3)(values)
    kept.sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    torch.testing.assert_close(values.grad * values.detach(), kept.detach())
    assert 0 < int((values.grad == 0).sum()) < values.numel()


def test_both_sets_of_primitives_drop_the_same() -> None:
    values = torch.randn(1003)
    kept = []
    for form in ("native", "portable"):
        torch.manual_seed(3)
        with ops.form(form):
            kept.append(Dropout(0.2)(values))
    assert torch.equal(*kept)


def test_drops_nothing_when_it_should_not() -> None:
    values, state = torch.randn(5), torch.get_rng_state()
    assert Dropout(0.0)(values) is values
    assert Dropout(0.5).eval()(values) is values
    assert torch.equal(torch.get_rng_state(), state)


def test_torch_does_what_the_library_cannot() -> None:
    kept = Dropout(0.5)(torch.ones(1000, dtype=torch.float64))
    assert set(kept.tolist()) == {0.0, 2.0}

"""The native steps of the GRU against torch's own in float64: same states, same gradients."""

import pytest
import torch
from torch import Tensor, nn

from abaca.nn import gru, native

TOLERANCE = 2e-6


def states_and_gradients(module: nn.GRU, inputs: Tensor, weights: Tensor) -> list[Tensor]:
    module.zero_grad()
    leaf = inputs.clone().to(module.weight_ih_l0.dtype).requires_grad_()
    states = gru.run(module, leaf)
    (states * weights.to(states.dtype)).sum().backward()  # type: ignore[no-untyped-call]
    return [states.detach(), *(x.grad.clone() for x in (leaf, *module.parameters()) if x.grad is not None)]


@pytest.mark.parametrize(("batch", "length", "dim", "hidden"), [(1, 1, 1, 8), (5, 7, 3, 16), (40, 50, 64, 24)])
@pytest.mark.parametrize("size", [0.1, 3.0, 60.0])  # the last one saturates every gate
def test_equals_torch(batch: int, length: int, dim: int, hidden: int, size: float) -> None:
    torch.manual_seed(batch)
    module = nn.GRU(dim, hidden, bias=False, batch_first=True)
    inputs, weights = size * torch.randn(batch, length, dim), torch.randn(batch, length, hidden)
    assert gru.takes(module, inputs)
    got = states_and_gradients(module, inputs, weights)
    expected = states_and_gradients(module.double(), inputs, weights)
    assert len(got) == len(expected) == 4
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=TOLERANCE * max(float(b.abs().max()), 1e-3) * length)


def test_torch_does_what_the_native_steps_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.randn(2, 3, 4)
    assert not gru.takes(nn.GRU(4, 12, bias=False), inputs)
    assert not gru.takes(nn.GRU(4, 8, bias=False), inputs.double())
    monkeypatch.setenv(native.SWITCH, "0")
    assert not gru.takes(nn.GRU(4, 8, bias=False), inputs)
    assert gru.run(nn.GRU(4, 8, bias=False, batch_first=True), inputs).shape == (2, 3, 8)


def test_goes_back_only_once() -> None:
    states = gru.run(nn.GRU(4, 8, bias=False, batch_first=True), torch.randn(2, 3, 4)).sum()
    states.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="only once"):
        states.backward()  # type: ignore[no-untyped-call]

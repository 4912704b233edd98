"""Native GELU and Mi against torch's own in float64: same values, same gradients."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.nn import native
from abaca.nn.gelu import gelu
from abaca.nn.outputs.mix import Mi


@pytest.mark.parametrize("count", [1, 7, 8, 1003])
@pytest.mark.parametrize("size", [0.01, 1.0, 12.0])
def test_gelu_equals_torch(count: int, size: float) -> None:
    torch.manual_seed(count)
    values, weights = size * torch.randn(count), torch.randn(count)
    made = []
    for function, leaf in ((gelu, values.clone()), (F.gelu, values.double())):
        leaf.requires_grad_()
        result = function(leaf)
        (result * weights.to(result.dtype)).sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        made.append((result.detach().double(), leaf.grad.double()))
    for got, expected in zip(*made, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=5e-7 * max(size, 1))


def test_gelu_far_out() -> None:
    values = torch.tensor([-1e30, -200.0, -0.0, 0.0, 200.0, 1e30], requires_grad=True)
    made = gelu(values)
    made.sum().backward()  # type: ignore[no-untyped-call]
    assert made.tolist() == [0.0, 0.0, 0.0, 0.0, 200.0, values[-1].item()]
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]


def queries_and_gradients(mix: Mi, states: Tensor, weights: Tensor) -> list[Tensor]:
    mix.zero_grad()
    leaf = states.clone().to(mix.linear.weight.dtype).requires_grad_()
    queries = mix(leaf)
    (queries * weights.to(queries.dtype)).sum().backward()
    grads = [part.grad for part in (leaf, *mix.parameters())]
    return [queries.detach().double(), *(grad.double() for grad in grads if grad is not None)]


@pytest.mark.parametrize(
    ("windows", "length", "layers", "dim"), [(1, 1, 1, 3), (3, 2, 2, 8), (5, 9, 2, 20), (40, 50, 1, 64)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_mix_equals_torch(windows: int, length: int, layers: int, dim: int, threads: int) -> None:
    torch.manual_seed(windows)
    torch.set_num_threads(threads)
    mix, states = Mi(layers, dim), torch.randn(windows, length, layers, dim)
    nn.init.normal_(mix.linear.bias)
    weights = torch.randn(windows, length, 2 * dim)
    got = queries_and_gradients(mix, states, weights)
    expected = queries_and_gradients(copy.deepcopy(mix).double(), states, weights)
    assert len(got) == len(expected) == 4
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-6 * max(float(b.abs().max()), 1))
    with torch.no_grad():
        torch.testing.assert_close(mix(states).double(), got[0], rtol=0, atol=0)


def test_torch_does_what_the_library_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    states, values = torch.randn(2, 5, 1, 4), torch.randn(9)
    mix = Mi(1, 4)
    native_forms = mix(states), gelu(values)
    monkeypatch.setenv(native.SWITCH, "0")
    for plain, ours in zip((mix(states), gelu(values)), native_forms, strict=True):
        torch.testing.assert_close(plain, ours, rtol=0, atol=1e-6)

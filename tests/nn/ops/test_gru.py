"""The native steps of the GRU against torch's own in float64: same states, same gradients."""

import pytest
import torch
from torch import Tensor, nn

from abaca.histories import Windows
from abaca.nn import ops
from abaca.nn.build import make_model
from abaca.nn.ops import gru

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
    assert gru.fits(module, inputs)
    got = states_and_gradients(module, inputs, weights)
    expected = states_and_gradients(module.double(), inputs, weights)
    assert len(got) == len(expected) == 4
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=TOLERANCE * max(float(b.abs().max()), 1e-3) * length)


def test_torch_does_what_the_native_steps_cannot() -> None:
    inputs = torch.randn(2, 3, 4)
    assert not gru.fits(nn.GRU(4, 12, bias=False), inputs)
    assert not gru.fits(nn.GRU(4, 8, bias=False), inputs.double())
    with ops.form("plain"):
        assert not gru.fits(nn.GRU(4, 8, bias=False), inputs)
        assert gru.run(nn.GRU(4, 8, bias=False, batch_first=True), inputs).shape == (2, 3, 8)


def test_the_backward_pass_runs_only_once() -> None:
    states = gru.run(nn.GRU(4, 8, bias=False, batch_first=True), torch.randn(2, 3, 4)).sum()
    states.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="only once"):
        states.backward()  # type: ignore[no-untyped-call]


def test_without_gradients_the_states_are_the_same() -> None:
    torch.manual_seed(0)
    module, table, items = nn.GRU(6, 16, bias=False, batch_first=True), torch.randn(9, 6), torch.randint(9, (5, 7))
    inputs = table[items]
    expected = gru.run(module.double(), inputs.double())
    module.float()
    with torch.no_grad():
        for states in (gru.run(module, inputs), gru.run_rows(module, table, items)):
            torch.testing.assert_close(states.double(), expected, rtol=0, atol=1e-6)


def test_a_model_reads_rows_of_a_table_that_is_shorter_than_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = make_model("gru4rec", "softmax", 9, dim=6, hidden=16, dropout=0.5).eval()
    items, last = torch.randint(9, (5, 7)), torch.full((5, 1), 6)
    asked: list[tuple[int, ...]] = []
    run_rows = gru.run_rows
    monkeypatch.setattr(gru, "run_rows", lambda *inputs: asked.append(inputs[2].shape) or run_rows(*inputs))
    expected = model.encode(Windows(items, last)).states  # a gradient may be needed
    with torch.no_grad():
        model.train().encode(Windows(items, last))  # something may be dropped
        model.eval()
        one_by_one = torch.cat([model.encode(Windows(items[i : i + 1], last[:1])).states for i in range(5)])
        assert asked == []
        torch.testing.assert_close(model.encode(Windows(items, last)).states, one_by_one)
    assert asked == [(5, 7)]
    torch.testing.assert_close(one_by_one, expected)

"""A GRU without biases: r, z = σ(W x + U h), c = tanh(W x + r ⊙ U h), h ← c + z ⊙ (h − c).

The plain form is `torch.nn.GRU`, some dozen small operations a step. The native form multiplies the inputs of all steps
at once; a step is then one small product and one call. The gradients of both weights are one product each. Without
gradients, inputs that are rows of a short table are multiplied once per row of the table.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn.ops.library import function, is_portable, native_supports

LANES = 8
"""The size of a state must be a multiple of this for the native form."""


def run(gru: nn.Module, inputs: Tensor) -> Tensor:
    """Inputs (B, L, D) → states (B, L, H)."""
    if not fits(gru, inputs):
        return gru(inputs)[0]  # type: ignore[no-any-return]
    inputs, (weight_in, weight_state) = inputs.transpose(0, 1), gru.parameters()
    if torch.is_grad_enabled():
        states: Tensor = _Steps.apply(inputs, weight_in, weight_state)  # type: ignore[no-untyped-call]
    else:
        states = _steps(_products(inputs, weight_in), weight_state, keep=False)[0][1:]
    return states.transpose(0, 1)


def run_rows(gru: nn.Module, table: Tensor, items: Tensor) -> Tensor:
    """The same for rows (B, L) of a table (V, D), without gradients."""
    weight_in, weight_state = gru.parameters()
    gates = F.embedding(items.T, torch.mm(table, weight_in.T))  # (L, B, 3H)
    return _steps(gates, weight_state, keep=False)[0][1:].transpose(0, 1)


def rows_are_cheaper(gru: nn.Module, table: Tensor, items: Tensor) -> bool:
    """Whether `run_rows` supports the table and multiplies less than `run`."""
    return not torch.is_grad_enabled() and fits(gru, table) and items.numel() > len(table)


def fits(gru: nn.Module, inputs: Tensor) -> bool:
    """Whether the native form supports this GRU and these inputs."""
    return native_supports(inputs) and inputs.numel() > 0 and isinstance(gru, nn.GRU) and gru.hidden_size % LANES == 0


def _products(inputs: Tensor, weight: Tensor) -> Tensor:
    """Products of the inputs (L, B, D) with the gates' weights (L, B, 3H)."""
    return torch.mm(inputs.reshape(-1, inputs.shape[2]), weight.T).view(*inputs.shape[:2], -1)


def _steps(gates: Tensor, weight_state: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """From the inputs' products (L, B, 3H), which become the gates, to the states (L + 1, B, H), the first all zeros.

    Also the products of the states, of every step if they are kept for the backward pass, else of the last.
    """
    length, batch, _ = gates.shape
    hidden = weight_state.shape[1]
    products = torch.empty_like(gates if keep else gates[:1])
    states = torch.empty(length + 1, batch, hidden)
    states[0] = 0
    step, portable, transposed = function("abaca_gru_step"), is_portable(), weight_state.T
    rows = states.unbind()
    steps = zip(gates.unbind(), products.expand_as(gates).unbind(), rows[:-1], rows[1:], strict=True)
    for gate, product, state, following in steps:
        torch.mm(state, transposed, out=product)
        pointers = gate.data_ptr(), product.data_ptr(), state.data_ptr(), following.data_ptr()
        step(batch, hidden, *pointers, portable)
    return states, products


class _Steps(torch.autograd.Function):
    """All steps of the GRU, times first: inputs (L, B, D), weights (3H, D) and (3H, H) → states (L, B, H)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight_in: Tensor, weight_state: Tensor) -> Tensor:
        inputs = inputs.contiguous()
        gates = _products(inputs, weight_in)
        states, products = _steps(gates, weight_state, keep=True)
        ctx.save_for_backward(inputs, weight_in, weight_state, states)
        ctx.kept = gates, products
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        if ctx.kept is None:
            raise RuntimeError("a GRU's backward pass runs only once: its gates become gradients in place")
        inputs, weight_in, weight_state, states = ctx.saved_tensors
        (gates, products), ctx.kept = ctx.kept, None
        _, batch, hidden = grad_states.shape
        grad_states = grad_states.contiguous()
        grad = torch.zeros(batch, hidden)
        backward, portable = function("abaca_gru_backward"), is_portable()
        steps = zip(gates.unbind(), products.unbind(), states[:-1].unbind(), grad_states.unbind(), strict=True)
        for gate, product, state, upstream in reversed(list(steps)):
            pointers = gate.data_ptr(), product.data_ptr(), state.data_ptr(), upstream.data_ptr()
            backward(batch, hidden, *pointers, grad.data_ptr(), portable)
            grad.addmm_(product, weight_state)
        gates, products = gates.view(-1, 3 * hidden), products.view(-1, 3 * hidden)
        grad_inputs = torch.mm(gates, weight_in).view_as(inputs) if ctx.needs_input_grad[0] else None
        grad_in = torch.mm(gates.T, inputs.view(-1, inputs.shape[2]))
        grad_state = torch.mm(products.T, states[:-1].reshape(-1, hidden))
        return grad_inputs, grad_in, grad_state

"""A GRU without biases over windows: torch's own, or the native one where it can run.

The native one multiplies the inputs of all steps at once and keeps what the gates say; a step is then one small
product and one call. Backwards, the gradients of both weights are one product each. Equations and weights are those of
`torch.nn.GRU`, which does the same in some dozen small operations a step. Where nobody learns, inputs that are rows of
a short table are multiplied once a row of the table, not once a place.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn import native
from abaca.nn.frame import can_read

LANES = 8
"""The native steps take so many values of a state at a time."""


def run(gru: nn.Module, inputs: Tensor) -> Tensor:
    """Inputs (B, L, D) → states (B, L, H)."""
    if not isinstance(gru, nn.GRU) or not takes(gru, inputs):
        return gru(inputs)[0]  # type: ignore[no-any-return]
    inputs, (weight_in, weight_state) = inputs.transpose(0, 1), gru.parameters()
    if torch.is_grad_enabled():
        states: Tensor = _Steps.apply(inputs, weight_in, weight_state)  # type: ignore[no-untyped-call]
    else:
        states = _walk(_heard(inputs, weight_in), weight_state, keep=False)[0][1:]
    return states.transpose(0, 1)


def run_rows(gru: nn.GRU, table: Tensor, items: Tensor) -> Tensor:
    """The same for rows (B, L) of a table (V, D)."""
    weight_in, weight_state = gru.parameters()
    gates = F.embedding(items.T, torch.mm(table, weight_in.T))  # (L, B, 3H)
    return _walk(gates, weight_state, keep=False)[0][1:].transpose(0, 1)


def takes(gru: nn.GRU, inputs: Tensor) -> bool:
    """Whether the native steps can do it: float32, on the CPU, states of whole lanes, and a library to call."""
    return can_read(inputs) and inputs.numel() > 0 and gru.hidden_size % LANES == 0


def _heard(inputs: Tensor, weight: Tensor) -> Tensor:
    """What the gates hear of the inputs (L, B, D) → (L, B, 3H)."""
    return torch.mm(inputs.reshape(-1, inputs.shape[2]), weight.T).view(*inputs.shape[:2], -1)


def _walk(gates: Tensor, weight_state: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """From what the gates hear of the inputs (L, B, 3H) to the states (L + 1, B, H), the first all zeros.

    The gates' answers take their place. Also what the gates hear of the states, of every step to keep it for the way
    back, or only of the last.
    """
    length, batch, _ = gates.shape
    hidden = weight_state.shape[1]
    heard = torch.empty_like(gates if keep else gates[:1])
    states = torch.empty(length + 1, batch, hidden)
    states[0] = 0
    step, portable, turned = native.function("abaca_gru_step"), native.mode() == "portable", weight_state.T
    for t in range(length):
        kept = t if keep else 0
        torch.mm(states[t], turned, out=heard[kept])
        step(batch, hidden, _at(gates, t), _at(heard, kept), _at(states, t), _at(states, t + 1), portable)
    return states, heard


class _Steps(torch.autograd.Function):
    """All steps of the GRU, times first: inputs (L, B, D), weights (3H, D) and (3H, H) → states (L, B, H)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight_in: Tensor, weight_state: Tensor) -> Tensor:
        inputs = inputs.contiguous()
        gates = _heard(inputs, weight_in)
        states, heard = _walk(gates, weight_state, keep=True)
        ctx.save_for_backward(inputs, weight_in, weight_state, states)
        ctx.kept = gates, heard
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        if ctx.kept is None:
            raise RuntimeError("the steps of a GRU can be gone back only once: they become gradients in place")
        inputs, weight_in, weight_state, states = ctx.saved_tensors
        (gates, heard), ctx.kept = ctx.kept, None
        length, batch, hidden = grad_states.shape
        grad_states = grad_states.contiguous()
        grad = torch.zeros(batch, hidden)
        back, portable = native.function("abaca_gru_back"), native.mode() == "portable"
        for t in range(length - 1, -1, -1):
            pointers = (_at(gates, t), _at(heard, t), _at(states, t), _at(grad_states, t))
            back(batch, hidden, *pointers, grad.data_ptr(), portable)
            grad.addmm_(heard[t], weight_state)
        gates, heard = gates.view(-1, 3 * hidden), heard.view(-1, 3 * hidden)
        grad_inputs = torch.mm(gates, weight_in).view_as(inputs) if ctx.needs_input_grad[0] else None
        grad_in = torch.mm(gates.T, inputs.view(-1, inputs.shape[2]))
        grad_state = torch.mm(heard.T, states[:-1].reshape(-1, hidden))
        return grad_inputs, grad_in, grad_state


def _at(tensor: Tensor, t: int) -> int:
    """Where step t of a contiguous tensor begins."""
    return tensor.data_ptr() + t * tensor.stride(0) * tensor.element_size()

"""A GRU without biases over windows: torch's own, or the native one where it can run.

The native one multiplies the inputs of all steps at once and keeps what the gates say; a step is then one small
product and one call. Backwards, the gradients of both weights are one product each. Equations and weights are those of
`torch.nn.GRU`, which does the same in some dozen small operations a step.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from abaca.nn import native
from abaca.nn.frame import can_read

LANES = 8
"""The native steps take so many values of a state at a time."""


def run(gru: nn.Module, inputs: Tensor) -> Tensor:
    """Inputs (B, L, D) → states (B, L, H)."""
    if isinstance(gru, nn.GRU) and takes(gru, inputs):
        states: Tensor = _Steps.apply(inputs.transpose(0, 1), gru.weight_ih_l0, gru.weight_hh_l0)  # type: ignore[no-untyped-call]
        return states.transpose(0, 1)
    return gru(inputs)[0]  # type: ignore[no-any-return]


def takes(gru: nn.GRU, inputs: Tensor) -> bool:
    """Whether the native steps can do it: float32, on the CPU, states of whole lanes, and a library to call."""
    return can_read(inputs) and inputs.numel() > 0 and gru.hidden_size % LANES == 0


class _Steps(torch.autograd.Function):
    """All steps of the GRU, times first: inputs (L, B, D), weights (3H, D) and (3H, H) → states (L, B, H)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight_in: Tensor, weight_state: Tensor) -> Tensor:
        length, batch, dim = inputs.shape
        hidden = weight_state.shape[1]
        inputs = inputs.contiguous()
        gates = torch.mm(inputs.view(-1, dim), weight_in.T).view(length, batch, 3 * hidden)
        heard = torch.empty_like(gates)
        states = torch.empty(length + 1, batch, hidden)
        states[0] = 0
        step, portable, turned = native.function("abaca_gru_step"), native.mode() == "portable", weight_state.T
        for t in range(length):
            torch.mm(states[t], turned, out=heard[t])
            step(batch, hidden, _at(gates, t), _at(heard, t), _at(states, t), _at(states, t + 1), portable)
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

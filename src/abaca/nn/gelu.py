"""GELU: torch's own, or a native one that keeps its slope for the way back."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn import native
from abaca.nn.frame import can_read, shared_out, window_at


def gelu(values: Tensor) -> Tensor:
    """x Φ(x) of each value."""
    if not can_read(values):
        return F.gelu(values)
    return _Gelu.apply(values)  # type: ignore[no-untyped-call, no-any-return]


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        values = values.contiguous()
        made, slope = torch.empty_like(values), torch.empty_like(values) if ctx.needs_input_grad[0] else None
        flat = [None if part is None else part.view(-1) for part in (values, made, slope)]

        def work(first: int, count: int, _: Tensor) -> None:
            native.function("abaca_gelu")(*window_at(first, *flat), count, native.mode() == "portable")

        shared_out(values.numel(), 0, work)
        ctx.slope = slope
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.mul(ctx.slope)

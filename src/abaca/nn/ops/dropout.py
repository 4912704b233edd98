"""Dropout: y_i = x_i m_i / (1 − share), m_i = 0 with probability `share` and 1 otherwise.

The native form keeps a seed instead of a mask. The seed comes from torch's generator, so a resumed run drops the same.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn.ops.library import DropoutStruct, function, is_portable, native_supports

STEPS = 1 << 32
"""A share is rounded to a multiple of 1 / STEPS."""


class Dropout(nn.Module):
    """While training, drops a share of the values and scales the others up."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or not self.share:
            return values
        if not native_supports(values):
            return F.dropout(values, self.share)
        return _Drop.apply(values, draw(self.share))  # type: ignore[no-untyped-call, no-any-return]


def draw(share: float) -> DropoutStruct:
    """A seed from torch's generator, with the share that is dropped and the scale of the rest."""
    dropped = min(round(share * STEPS), STEPS - 1)
    seed = int(torch.randint(1 << 62, ())) if dropped else 0
    return DropoutStruct(seed, dropped, STEPS / (STEPS - dropped))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, drawn: DropoutStruct) -> Tensor:
        ctx.drawn = drawn
        return _dropped(values, drawn)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _dropped(grad, ctx.drawn), None


def _dropped(values: Tensor, drawn: DropoutStruct) -> Tensor:
    values = values.contiguous()
    kept = torch.empty_like(values)
    function("abaca_dropout")(values.data_ptr(), kept.data_ptr(), values.numel(), drawn, is_portable())
    return kept

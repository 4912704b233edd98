"""Causal attention with dropout of its weights: torch's own, or a native one for training on CPUs.

Torch's own turns heads into batches, multiplies some hundred small matrices and draws a mask number by number. The
native one does a head of a window at a time, all of it in the nearest cache.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn import dropout, native
from abaca.nn.frame import can_read, shared_out


def attend(packed: Tensor, heads: int, share: float) -> Tensor:
    """Query, key and value side by side (B, L, 3·D) → what each position makes of those up to it (B, L, D)."""
    if torch.is_grad_enabled() and can_read(packed):
        return _Attend.apply(packed, heads, dropout.draw(share))  # type: ignore[no-untyped-call, no-any-return]
    apart = packed.view(*packed.shape[:2], 3, heads, -1).transpose(1, 3)  # (B, heads, 3, L, D/heads)
    query, key, value = apart.unbind(dim=2)
    mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=share, is_causal=True)
    return mixed.transpose(1, 2).flatten(2)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, heads: int, drawn: native.DropoutStruct) -> Tensor:
        packed = packed.contiguous()
        batch, length, size = packed.shape
        weights = torch.empty(batch, heads, length, length)
        mixed = torch.empty(batch, length, size // 3)
        ctx.save_for_backward(packed, weights)
        ctx.drawn = drawn
        struct = _struct(packed, weights, drawn)

        def work(first: int, count: int, memory: Tensor) -> None:
            native.function("abaca_attend")(struct, first, count, mixed.data_ptr(), memory.data_ptr())

        shared_out(batch, native.function("abaca_attention_floats")(struct), work)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        packed, weights = ctx.saved_tensors
        grad, grad_packed = grad.contiguous(), torch.empty_like(packed)
        struct = _struct(packed, weights, ctx.drawn)

        def work(first: int, count: int, memory: Tensor) -> None:
            pointers = grad.data_ptr(), grad_packed.data_ptr(), memory.data_ptr()
            native.function("abaca_attend_back")(struct, first, count, *pointers)

        shared_out(len(packed), native.function("abaca_attention_floats")(struct), work)
        return grad_packed, None, None


def _struct(packed: Tensor, weights: Tensor, drawn: native.DropoutStruct) -> native.AttentionStruct:
    """Windows as the library reads them."""
    heads, length = weights.shape[1:3]
    sizes = length, heads, packed.shape[2] // (3 * heads)
    return native.AttentionStruct(*sizes, packed.data_ptr(), weights.data_ptr(), drawn, native.mode() == "portable")

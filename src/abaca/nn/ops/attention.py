"""Causal attention with dropout of its weights, per head: softmax(Q K^T / √D, positions up to the own one) V.

The native form, for training on CPUs, computes a head of a window at a time within the cache. Torch multiplies some
hundred small matrices instead and draws the mask number by number.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn.ops import dropout
from abaca.nn.ops.library import AttentionStruct, DropoutStruct, function, is_portable, native_supports
from abaca.nn.ops.threads import parallel_over_windows


def attend(packed: Tensor, heads: int, share: float) -> Tensor:
    """Query, key and value side by side (B, L, 3·D) → weighted values of each position (B, L, D)."""
    if torch.is_grad_enabled() and native_supports(packed):
        return _Attend.apply(packed, heads, dropout.draw(share))  # type: ignore[no-untyped-call, no-any-return]
    return plain(packed, heads, share)


def plain(packed: Tensor, heads: int, share: float) -> Tensor:
    """The same in torch."""
    apart = packed.view(*packed.shape[:2], 3, heads, -1).transpose(1, 3)  # (B, heads, 3, L, D/heads)
    query, key, value = apart.unbind(dim=2)
    mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=share, is_causal=True)
    return mixed.transpose(1, 2).flatten(2)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, heads: int, drawn: DropoutStruct) -> Tensor:
        packed = packed.contiguous()
        batch, length, size = packed.shape
        weights = torch.empty(batch, heads, length, length)
        mixed = torch.empty(batch, length, size // 3)
        ctx.save_for_backward(packed, weights)
        ctx.drawn = drawn
        struct = _struct(packed, weights, drawn)

        def work(first: int, count: int, memory: Tensor) -> None:
            function("abaca_attend")(struct, first, count, mixed.data_ptr(), memory.data_ptr())

        parallel_over_windows(batch, function("abaca_attention_floats")(struct), work)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        packed, weights = ctx.saved_tensors
        grad, grad_packed = grad.contiguous(), torch.empty_like(packed)
        struct = _struct(packed, weights, ctx.drawn)

        def work(first: int, count: int, memory: Tensor) -> None:
            pointers = grad.data_ptr(), grad_packed.data_ptr(), memory.data_ptr()
            function("abaca_attend_backward")(struct, first, count, *pointers)

        parallel_over_windows(len(packed), function("abaca_attention_floats")(struct), work)
        return grad_packed, None, None


def _struct(packed: Tensor, weights: Tensor, drawn: DropoutStruct) -> AttentionStruct:
    """Windows as the library reads them."""
    heads, length = weights.shape[1:3]
    sizes = length, heads, packed.shape[2] // (3 * heads)
    return AttentionStruct(*sizes, packed.data_ptr(), weights.data_ptr(), drawn, is_portable())

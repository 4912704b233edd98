"""Causal attention with dropout of its weights, per head: softmax(Q K^T / √D + bias, positions up to the own one) V.

The bias, where there is one, is b[places between] + c[bucket of the time between]. The native form, for CPUs, computes
a head of a window within the cache, some rows at a time. It keeps a number per row for the backward pass, which
computes the weights again. Torch multiplies some hundred small matrices instead, and keeps all weights.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn.ops import dropout
from abaca.nn.ops.library import (
    AttentionGradientsStruct,
    AttentionStruct,
    DropoutStruct,
    function,
    is_portable,
    native_supports,
)
from abaca.nn.ops.threads import parallel_over_windows


@dataclass(frozen=True)
class Biases:
    """What is added to the logits of a batch, by what is between two positions; made once for all blocks."""

    places: Tensor  # (heads, L) by the places between, most places first
    times: Tensor  # (heads, T) by the bucket of the time between
    buckets: Tensor  # (B, L, L) integers below T; those of positions after the own one mean nothing

    @classmethod
    def of(cls, places: Tensor, times: Tensor, buckets: Tensor) -> "Biases":
        """From tables (reach, heads) and (T, heads); distances beyond the reach are alike."""
        length = buckets.shape[1]
        distance = torch.arange(length - 1, -1, -1, device=places.device).clamp_max(len(places) - 1)
        return cls(places[distance].T.contiguous(), times.T.contiguous(), buckets)

    @cached_property
    def total(self) -> Tensor:
        """The whole bias (B, heads, L, L), −∞ for positions after the own one."""
        place = torch.arange(self.places.shape[1], device=self.places.device)
        later = place - place.unsqueeze(1)  # (L, L)
        places = self.places[:, later.clamp_max(0) - 1].masked_fill(later > 0, -torch.inf)
        return places + self.times[:, self.buckets.long()].transpose(0, 1)


def attend(packed: Tensor, heads: int, share: float, biases: Biases | None = None) -> Tensor:
    """Query, key and value side by side (B, L, 3·D) → weighted values of each position (B, L, D)."""
    if not native_supports(packed) or not (torch.is_grad_enabled() or biases):
        return plain(packed, heads, share, biases)
    given = (None, None, None) if biases is None else (biases.places, biases.times, biases.buckets)
    return _Attend.apply(packed, heads, dropout.draw(share), *given)  # type: ignore[no-untyped-call, no-any-return]


def plain(packed: Tensor, heads: int, share: float, biases: Biases | None = None) -> Tensor:
    """The same in torch."""
    apart = packed.view(*packed.shape[:2], 3, heads, -1).transpose(1, 3)  # (B, heads, 3, L, D/heads)
    query, key, value = apart.unbind(dim=2)
    if biases is None:
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=share, is_causal=True)
    else:
        weights = (query * query.shape[3] ** -0.5 @ key.transpose(2, 3) + biases.total).softmax(3)
        mixed = F.dropout(weights, share) @ value
    return mixed.transpose(1, 2).flatten(2)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        packed: Tensor,
        heads: int,
        drawn: DropoutStruct,
        places: Tensor | None,
        times: Tensor | None,
        buckets: Tensor | None,
    ) -> Tensor:
        batch, length, size = packed.shape
        if packed.stride(2) != 1 or packed.stride(0) != length * packed.stride(1):
            packed = packed.contiguous()
        normaliser, mixed = torch.empty(batch, heads, length), torch.empty(batch, length, size // 3)
        read = packed, normaliser, places, times, buckets
        ctx.save_for_backward(mixed, *read)
        ctx.drawn = drawn
        struct = _struct(drawn, *read)

        def work(first: int, count: int, memory: Tensor) -> None:
            function("abaca_attend")(struct, first, count, mixed.data_ptr(), memory.data_ptr())

        parallel_over_windows(batch, function("abaca_attention_floats")(struct), work)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        mixed, *read = ctx.saved_tensors
        packed, _, places, times, _ = read
        grad, grad_packed = grad.contiguous(), torch.empty(packed.shape)
        grad_places, grad_times = (
            None if table is None else torch.empty(len(packed), *table.shape) for table in (places, times)
        )
        struct = _struct(ctx.drawn, *read)
        gradients = AttentionGradientsStruct(*map(_pointer, (mixed, grad, grad_packed, grad_places, grad_times)))

        def work(first: int, count: int, memory: Tensor) -> None:
            function("abaca_attend_backward")(struct, first, count, gradients, memory.data_ptr())

        parallel_over_windows(len(packed), function("abaca_attention_floats")(struct), work)
        sums = (None if table is None else table.sum(0) for table in (grad_places, grad_times))
        return grad_packed, None, None, *sums, None


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _struct(
    drawn: DropoutStruct,
    packed: Tensor,
    normaliser: Tensor,
    places: Tensor | None,
    times: Tensor | None,
    buckets: Tensor | None,
) -> AttentionStruct:
    """Windows as the library reads them."""
    _, heads, length = normaliser.shape
    sizes = length, heads, packed.shape[2] // (3 * heads), packed.stride(1), 0 if times is None else times.shape[1]
    pointers = map(_pointer, (packed, places, times, buckets, normaliser))
    return AttentionStruct(*sizes, *pointers, drawn, is_portable())

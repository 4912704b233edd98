"""Logits of the history's items: f_C · p_x, with a pointer plus its mean over the places where x stands.

The plain form is torch's batched products; the native one walks a window's places, all of them in the cache, and makes
neither a mask nor a table of which places hold the same item. Slots that a row does not see hold no meaning.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from abaca.nn import native
from abaca.nn.frame import can_read, shared_out
from abaca.nn.outputs.history import Slots


class Pointer(NamedTuple):
    """f_P · f_L(q_j) as pointing · read_j + offset: projected where it is asked, not at every position it reads."""

    read: Tensor  # (B, L, Q)
    pointing: Tensor  # (B, T, Q)
    offset: Tensor  # (B, T)


class Windows(NamedTuple):
    """What stands in the windows and what each prediction copies with."""

    items: Tensor  # (B, L), oldest first, negative where there is no item
    positions: Tensor  # (B, T) the last place a prediction sees; negative for none
    embedded: Tensor  # (B, L, D)
    copying: Tensor  # (B, T, D)
    pointer: Pointer | None


def history_logits(windows: Windows, empty: int) -> tuple[Tensor, Tensor]:
    """Items in their slots (B, L), `empty` elsewhere, and their logits (B, T, L)."""
    if not can_read(windows.embedded, windows.copying, *(windows.pointer or ())):
        slots = Slots.of(windows.items, empty)
        return slots.ids, plain(windows, slots)
    read, pointing, offset = windows.pointer or (None, None, None)
    inputs = windows.embedded, windows.copying, read, pointing, offset
    return _Copies.apply(empty, windows.items.long(), windows.positions.long(), *inputs)  # type: ignore[no-untyped-call, no-any-return]


def plain(windows: Windows, slots: Slots) -> Tensor:
    """The logits in plain torch."""
    values = windows.copying @ windows.embedded.transpose(1, 2)  # (B, T, L)
    if windows.pointer is None:
        return values
    read, pointing, offset = windows.pointer
    total, count = slots.gather(pointing @ read.transpose(1, 2), windows.positions)
    return values + total / count + offset.unsqueeze(2)


class _Copies(torch.autograd.Function):
    """The native form; the gradients follow the same places."""

    @staticmethod
    def forward(ctx: Any, empty: int, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        whole = [None if tensor is None else tensor.contiguous() for tensor in inputs]
        items, positions = whole[0], whole[1]
        assert items is not None
        assert positions is not None
        ids, home = torch.empty_like(items), torch.empty(items.shape, dtype=torch.int32)
        values = torch.empty(*positions.shape, items.shape[1])
        struct = _struct([*whole, home])

        def work(first: int, count: int, scratch: Tensor) -> None:
            pointers = ids.data_ptr(), values.data_ptr(), scratch.data_ptr()
            native.function("abaca_copies")(struct, first, count, empty, *pointers)

        shared_out(len(items), native.function("abaca_copies_floats")(struct), work)
        ctx.save_for_backward(*whole, home)
        ctx.mark_non_differentiable(ids)
        return ids, values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Any, grad_values: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        struct = _struct(inputs)
        grad_values = grad_values.contiguous()
        grads = [None if tensor is None else torch.empty_like(tensor) for tensor in inputs[2:7]]
        grad_struct = native.CopiesGradientsStruct(grad_values.data_ptr(), *(_address(grad) for grad in grads))

        def work(first: int, count: int, scratch: Tensor) -> None:
            native.function("abaca_copies_back")(struct, grad_struct, first, count, scratch.data_ptr())

        shared_out(len(inputs[0]), native.function("abaca_copies_floats")(struct), work)
        return None, None, None, *grads


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _struct(tensors: Sequence[Any]) -> native.CopiesStruct:
    """Windows as the library reads them."""
    items, positions, embedded, _, read = tensors[:5]
    sizes = items.shape[1], positions.shape[1], embedded.shape[2], 0 if read is None else read.shape[2]
    return native.CopiesStruct(*sizes, *map(_address, tensors), native.mode() == "portable")

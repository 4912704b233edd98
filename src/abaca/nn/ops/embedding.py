"""Rows of the item table, read by the encoder while the loss reads all of it.

    rows = table[items];  d table = d table (of the loss) + Σ_places d rows

The fast form adds both gradients in one tensor: a second table-sized gradient would double the memory.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from abaca.nn.ops.library import current_form


def read(table: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (B, L, D) of the table (V, D) for items (B, L), and the table for further use."""
    if current_form() == "plain" or not torch.is_grad_enabled():
        return F.embedding(items, table), table
    return _Read.apply(table, items)  # type: ignore[no-untyped-call, no-any-return]


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(items)
        return F.embedding(items, table), table.view_as(table)

    @staticmethod
    def backward(ctx: Any, grad_rows: Tensor, grad_table: Tensor) -> tuple[Tensor, None]:
        (items,) = ctx.saved_tensors
        return grad_table.index_add_(0, items.flatten(), grad_rows.flatten(0, 1)), None

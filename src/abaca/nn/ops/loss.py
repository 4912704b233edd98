"""Cross entropy of `Logits`: Σ_n w_n (log Σ_x exp z_nx − z_n,target), z the final logits.

The plain form computes a tile of rows in torch. The native form lets torch multiply and does the rest of a tile in one
call, which turns logits into their gradient in place:

    Z = f_V E^T;  row pass: Z → gradient of Z;  df_V = Z E;  dE += Z^T f_V

Where a row has several base queries, Z is the highest of their products, and the gradient belongs to that query.
Threads share the tiles. The order of sums depends on shapes and the number of threads only: runs repeat to the bit.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from abaca.nn.logits import Logits
from abaca.nn.ops import itemtiles, triton_loss
from abaca.nn.ops.library import current_form, function
from abaca.nn.ops.packed import BaseTiles, PackedLogits, PackedLoss, deal, fits
from abaca.nn.ops.threads import in_parallel


def cross_entropy(logits: Logits, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Σ weights · −log P(target) over the rows (N,), with gradients for queries, table and overrides."""
    if weights is None:
        weights = torch.ones_like(targets, dtype=logits.queries.dtype)
    if logits.additions is not None:  # fitted after training
        return plain(logits, targets, weights)
    if current_form() == "triton" and triton_loss.fits(logits):
        return triton_loss.cross_entropy(logits, targets, weights)
    return (native if fits(logits) else plain)(logits, targets, weights)


def plain(logits: Logits, targets: Tensor, weights: Tensor) -> Tensor:
    """The loss in torch. Where there are several tiles, the backward pass computes each again instead of keeping it."""
    tiles = logits.slices()
    if len(tiles) == 1 or not torch.is_grad_enabled():
        return torch.stack([_tile_loss(logits, targets, weights, rows) for rows in tiles]).sum()
    again: Any = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.stack([checkpoint(_tile_loss, logits, targets, weights, rows, **again) for rows in tiles]).sum()


def _tile_loss(logits: Logits, targets: Tensor, weights: Tensor, rows: slice) -> Tensor:
    final = logits.tile(rows).logits
    hit = final.gather(1, targets[rows, None].long()).squeeze(1)
    return ((final.logsumexp(dim=1) - hit) * weights[rows]).sum()


def native(logits: Logits, targets: Tensor, weights: Tensor) -> Tensor:
    """The same by the native library."""
    inputs = logits.inputs
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Native.apply(logits, targets, weights, *inputs)  # type: ignore[no-untyped-call, no-any-return]
    return _solve(logits, targets, weights, False)[0]


class _Native(torch.autograd.Function):
    """The forward pass computes the gradients; the backward pass scales them in place, so no second table is held."""

    @staticmethod
    def forward(ctx: Any, logits: Logits, targets: Tensor, weights: Tensor, *inputs: Tensor) -> Tensor:
        loss, ctx.gradients = _solve(logits, targets, weights, True)
        ctx.save_for_backward(*inputs)
        ctx.given = logits, targets, weights
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # torch checks that they have not changed
        logits, targets, weights = ctx.given
        gradients = ctx.gradients or _solve(logits, targets, weights, True)[1]  # again in a second backward pass
        ctx.gradients = None
        return (None, None, None, *(gradient.mul_(upstream) for gradient in gradients))


def _solve(logits: Logits, targets: Tensor, weights: Tensor, with_gradients: bool) -> tuple[Tensor, list[Tensor]]:
    """The summed loss, and the gradients of queries (N, H, D), table, values and levels."""
    packed, workers = PackedLogits(logits), torch.get_num_threads()
    loss = PackedLoss(packed, targets, weights, with_gradients)
    by_items = len(packed.bases) == 1 and itemtiles.is_cheaper(packed, workers)
    queries, table = (itemtiles.solve if by_items else _whole_rows)(packed, loss, workers)
    gradients = [queries, table, loss.values, *loss.levels] if with_gradients else []
    return loss.losses.sum().to(torch.float32), gradients


def _whole_rows(packed: PackedLogits, loss: PackedLoss, workers: int) -> tuple[Tensor, Tensor]:
    """Losses by tiles of whole rows; returns gradients of queries and table, empty if they are not needed."""
    spare = itemtiles.COPIES_BYTES // (4 * packed.table.numel() or 1)  # each further worker has a table of its own
    shares = deal(packed, min(workers, 1 + spare), loss.with_gradients)
    rows, table = (packed.rows, packed.table) if loss.with_gradients else (0, packed.table[:0])
    grad_queries = table.new_empty(rows, len(packed.bases), packed.table.shape[1])
    grad_tables = [torch.zeros_like(table) for _ in shares]
    in_parallel(len(shares), lambda i: _work(packed, loss, shares[i], grad_queries, grad_tables[i]))
    return grad_queries, itemtiles.total(grad_tables)


def _work(
    packed: PackedLogits, loss: PackedLoss, tiles: Sequence[slice], grad_queries: Tensor, grad_table: Tensor
) -> None:
    """One worker's tiles, in order."""
    if not tiles:
        return
    base = BaseTiles(packed, tiles, loss.with_gradients)
    scratch = torch.empty(function("abaca_loss_words")(packed.struct, len(base.first)), dtype=torch.int64)
    for rows in tiles:
        tile = base.logits(rows)
        where = rows.start, len(tile), tile.data_ptr(), tile.stride(0), scratch.data_ptr()
        function("abaca_loss_rows")(packed.struct, loss.struct, *where, grad_table.data_ptr() or None)
        if loss.with_gradients:
            scale = loss.scale[rows].unsqueeze(1)
            for i, part in base.divided(tile):
                grad_queries[rows, i] = torch.mm(part, packed.table).mul_(scale)
                grad_table.addmm_(part.T, packed.bases[i][rows] * scale)

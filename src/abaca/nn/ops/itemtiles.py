"""The native loss of large catalogues by tiles of rows × items: one row and one gradient of the table at a time.

    for each tile:  Z = f_V E^T;  read: running maximum, sum and best items of each row
    settle each row: levels, history, loss
    for each tile:  Z = f_V E^T;  share: Z → gradient of Z;  df_V += Z E;  dE += Z^T f_V

Four products instead of three, but a tile stays in the cache. Threads share the rows in the first pass and the items in
the second, so each row of dE belongs to one thread.
"""

import torch
from torch import Tensor

from abaca.nn.ops import packed as packing
from abaca.nn.ops.library import RunningStruct, function
from abaca.nn.ops.packed import PackedLogits, PackedLoss, pointers
from abaca.nn.ops.threads import in_parallel

COPIES_BYTES = 256 << 20
"""Memory for gradients of the table that further workers accumulate; beyond it they share one."""

TILE_ROWS = 128
TILE_ITEMS = 1024
"""A tile of half a megabyte: with its part of the table it stays in the cache of a core."""


def is_cheaper(packed: PackedLogits, workers: int) -> bool:
    """Whether this form is cheaper than whole rows, or memory demands it."""
    copies = 4 * packed.table.numel() * (min(workers, packed.rows) - 1)
    return packed.catalogue > packing.LONGEST_ROW or copies > COPIES_BYTES


class Running:
    """The state of each row between tiles, as the library reads it."""

    def __init__(self, packed: PackedLogits) -> None:
        rows, catalogue = packed.rows, packed.catalogue
        room = min(2 * sum(packed.sizes), catalogue)
        by_item = packed.ids.sort(dim=1)
        self.tensors = [
            by_item.values.int(),
            by_item.indices,
            torch.full((rows,), -torch.inf),
            torch.zeros(rows, dtype=torch.float64),
            torch.empty(rows),
            torch.full((rows,), -torch.inf),
            torch.zeros(rows, dtype=torch.int64),
            torch.empty(rows, room, dtype=torch.int32),
            torch.empty(rows, room),
            torch.empty(rows, room, dtype=torch.int8),
            torch.full((rows,), -1),
        ]
        self.struct = RunningStruct(room, *(tensor.data_ptr() for tensor in self.tensors))

    def scratch(self, packed: PackedLogits) -> Tensor:
        """Memory of one worker."""
        return torch.empty(function("abaca_items_bytes")(packed.struct, self.struct, TILE_ITEMS), dtype=torch.uint8)


def solve(packed: PackedLogits, loss: PackedLoss, workers: int) -> tuple[Tensor, Tensor]:
    """Losses by tiles of items; returns gradients of queries and table, empty if they are not needed."""
    running = Running(packed)
    shares = cut(slice(0, packed.rows), -(-packed.rows // workers)) or [slice(0, 0)]
    in_parallel(len(shares), lambda i: _read(packed, loss, running, shares[i]))
    if not loss.with_gradients:
        return packed.queries[:0].unsqueeze(1), packed.table[:0]
    tiles = -(-packed.catalogue // TILE_ITEMS)
    owned = cut(slice(0, packed.catalogue), TILE_ITEMS * -(-tiles // workers))
    grad_table = torch.empty_like(packed.table)
    grad_queries = [torch.zeros_like(packed.queries) for _ in owned]
    grad_levels = [[torch.zeros_like(level) for level in packed.levels] for _ in owned]
    scaled = packed.queries * loss.scale.unsqueeze(1)

    def share(i: int) -> None:
        _share(packed, loss, running, owned[i], scaled, grad_queries[i], grad_levels[i], grad_table)

    in_parallel(len(owned), share)
    no_number = 0 * loss.scale.unsqueeze(1)  # 0, but NaN in rows of NaN
    for level, parts in zip(loss.levels, zip(*grad_levels, strict=True), strict=True):
        torch.add(total(list(parts)), no_number, out=level)
    return total(grad_queries).mul_(loss.scale.unsqueeze(1)).unsqueeze(1), grad_table


def cut(whole: slice, size: int) -> list[slice]:
    """Consecutive pieces of at most this size."""
    starts = range(whole.start, whole.stop, max(size, 1))
    return [slice(start, min(start + size, whole.stop)) for start in starts]


def total(parts: list[Tensor]) -> Tensor:
    """The sum of tensors, accumulated in the first."""
    first, *others = parts
    for other in others:
        first += other
    return first


def _read(packed: PackedLogits, loss: PackedLoss, running: Running, owned: slice) -> None:
    """The first pass over one worker's rows, and their losses."""
    logits, memory = torch.empty(TILE_ROWS * TILE_ITEMS), running.scratch(packed)
    structs = packed.struct, loss.struct, running.struct
    for items in cut(slice(0, packed.catalogue), TILE_ITEMS):
        for rows in cut(owned, TILE_ROWS):
            tile = _logits(packed, rows, items, logits)
            function("abaca_items_read")(*structs, *_place(tile, rows, items), memory.data_ptr())
    function("abaca_items_settle")(*structs, owned.start, owned.stop - owned.start, TILE_ITEMS, memory.data_ptr())


def _share(
    packed: PackedLogits,
    loss: PackedLoss,
    running: Running,
    owned: slice,
    scaled: Tensor,
    grad_queries: Tensor,
    grad_levels: list[Tensor],
    grad_table: Tensor,
) -> None:
    """The second pass, over one worker's items."""
    logits, memory = torch.empty(TILE_ROWS * TILE_ITEMS), running.scratch(packed)
    structs, grads = (packed.struct, loss.struct, running.struct), (pointers(grad_levels), grad_table.data_ptr())
    for items in cut(owned, TILE_ITEMS):
        table, grad = packed.table[items], grad_table[items].zero_()
        for rows in cut(slice(0, packed.rows), TILE_ROWS):
            tile = _logits(packed, rows, items, logits)
            function("abaca_items_share")(*structs, *_place(tile, rows, items), *grads, memory.data_ptr())
            grad_queries[rows].addmm_(tile, table)
            grad.addmm_(tile.T, scaled[rows])


def _place(tile: Tensor, rows: slice, items: slice) -> tuple[int, ...]:
    """First row, rows, first item, items, address and stride of a tile."""
    return rows.start, len(tile), items.start, tile.shape[1], tile.data_ptr(), tile.shape[1]


def _logits(packed: PackedLogits, rows: slice, items: slice, memory: Tensor) -> Tensor:
    """Base logits of a tile (rows, items), in the memory given."""
    shape = rows.stop - rows.start, items.stop - items.start
    return torch.mm(packed.queries[rows], packed.table[items].T, out=memory[: shape[0] * shape[1]].view(shape))

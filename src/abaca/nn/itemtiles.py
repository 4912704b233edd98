"""The native loss for large catalogues: tiles of rows × items, so that neither rows nor table gradients are held twice.

    for each tile:  Z = f_V E^T;  read: running maximum, sum and best items of each row
    settle each row: levels, history, loss
    for each tile:  Z = f_V E^T;  share: Z → gradient of Z;  df_V += Z E;  dE += Z^T f_V

Four products instead of three, but a tile stays in the cache. Workers own rows on the first way, items on the second:
every row of dE has one owner, and the order of sums depends on shapes and the number of threads only.
"""

import torch
from torch import Tensor

from abaca.nn import native
from abaca.nn.frame import Frame, Loss, in_parallel, library, pointers

LONGEST_ROW = 1 << 19
"""Rows of more items than this are cheaper in pieces."""

COPIES_BYTES = 256 << 20
"""Tables of gradients for further workers may take so much; beyond it they share one."""

TILE_ROWS = 128
TILE_ITEMS = 1024
"""Half a megabyte of logits: with its part of the table it stays in the cache of a core."""


def pays(frame: Frame, workers: int) -> bool:
    """Whether this form is cheaper than whole rows, or memory demands it."""
    copies = 4 * frame.table.numel() * (min(workers, frame.rows) - 1)
    return frame.catalogue > LONGEST_ROW or copies > COPIES_BYTES


class Running:
    """What is known of each row between tiles, as the library reads it."""

    def __init__(self, frame: Frame) -> None:
        rows, catalogue = frame.rows, frame.catalogue
        room = min(2 * sum(frame.sizes), catalogue)
        by_item = frame.ids.sort(dim=1)
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
        self.struct = native.RunningStruct(room, *(tensor.data_ptr() for tensor in self.tensors))

    def desk(self, frame: Frame) -> Tensor:
        """Memory of one worker."""
        return torch.empty(library().abaca_items_bytes(frame.struct, self.struct, TILE_ITEMS), dtype=torch.uint8)


def solve(frame: Frame, loss: Loss, workers: int) -> tuple[Tensor, Tensor]:
    """Fill in the losses; returns gradients of queries and table, empty if they are not wanted."""
    running = Running(frame)
    shares = cut(slice(0, frame.rows), -(-frame.rows // workers)) or [slice(0, 0)]
    in_parallel(len(shares), lambda i: _read(frame, loss, running, shares[i]))
    if not loss.wanted:
        return frame.queries[:0].unsqueeze(1), frame.table[:0]
    tiles = -(-frame.catalogue // TILE_ITEMS)
    owned = cut(slice(0, frame.catalogue), TILE_ITEMS * -(-tiles // workers))
    grad_table = torch.empty_like(frame.table)
    grad_queries = [torch.zeros_like(frame.queries) for _ in owned]
    grad_levels = [[torch.zeros_like(level) for level in frame.levels] for _ in owned]
    scaled = frame.queries * loss.scale.unsqueeze(1)

    def share(i: int) -> None:
        _share(frame, loss, running, owned[i], scaled, grad_queries[i], grad_levels[i], grad_table)

    in_parallel(len(owned), share)
    no_number = 0 * loss.scale.unsqueeze(1)  # but NaN where a row is
    for level, parts in zip(loss.levels, zip(*grad_levels, strict=True), strict=True):
        torch.add(_sum(list(parts)), no_number, out=level)
    return _sum(grad_queries).mul_(loss.scale.unsqueeze(1)).unsqueeze(1), grad_table


def cut(whole: slice, size: int) -> list[slice]:
    """Consecutive pieces of at most this size."""
    starts = range(whole.start, whole.stop, max(size, 1))
    return [slice(start, min(start + size, whole.stop)) for start in starts]


def _sum(parts: list[Tensor]) -> Tensor:
    first, *others = parts
    for other in others:
        first += other
    return first


def _read(frame: Frame, loss: Loss, running: Running, owned: slice) -> None:
    """The first way of one worker's rows, and their losses."""
    memory, desk = torch.empty(TILE_ROWS * TILE_ITEMS), running.desk(frame)
    for items in cut(slice(0, frame.catalogue), TILE_ITEMS):
        for rows in cut(owned, TILE_ROWS):
            tile = _logits(frame, rows, items, memory)
            library().abaca_items_read(
                frame.struct,
                loss.struct,
                running.struct,
                rows.start,
                len(tile),
                items.start,
                tile.shape[1],
                tile.data_ptr(),
                tile.shape[1],
                desk.data_ptr(),
            )
    count = owned.stop - owned.start
    library().abaca_items_settle(
        frame.struct, loss.struct, running.struct, owned.start, count, TILE_ITEMS, desk.data_ptr()
    )


def _share(
    frame: Frame,
    loss: Loss,
    running: Running,
    owned: slice,
    scaled: Tensor,
    grad_queries: Tensor,
    grad_levels: list[Tensor],
    grad_table: Tensor,
) -> None:
    """The second way of one worker's items."""
    memory, desk = torch.empty(TILE_ROWS * TILE_ITEMS), running.desk(frame)
    for items in cut(owned, TILE_ITEMS):
        table, grad = frame.table[items], grad_table[items].zero_()
        for rows in cut(slice(0, frame.rows), TILE_ROWS):
            tile = _logits(frame, rows, items, memory)
            library().abaca_items_share(
                frame.struct,
                loss.struct,
                running.struct,
                rows.start,
                len(tile),
                items.start,
                tile.shape[1],
                tile.data_ptr(),
                tile.shape[1],
                pointers(grad_levels),
                grad_table.data_ptr(),
                desk.data_ptr(),
            )
            grad_queries[rows].addmm_(tile, table)
            grad.addmm_(tile.T, scaled[rows])


def _logits(frame: Frame, rows: slice, items: slice, memory: Tensor) -> Tensor:
    """Base logits of a tile (rows, items), in the memory given."""
    shape = rows.stop - rows.start, items.stop - items.start
    return torch.mm(frame.queries[rows], frame.table[items].T, out=memory[: shape[0] * shape[1]].view(shape))

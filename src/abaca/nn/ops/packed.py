"""Logits and their loss as the native library reads them, and the tiles of base logits that it is called with."""

import ctypes
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from abaca.nn.logits import Logits
from abaca.nn.ops.library import LogitsStruct, LossStruct, is_portable, native_supports

LONGEST_ROW = 1 << 19
"""Rows of more items than this are cheaper in tiles of items."""

TILE_ROWS = 128
"""Rows of a tile at most: matrix products need some to be fast."""

FEWEST_ROWS = 32

TILE_BYTES = 64 << 20
"""Memory of a worker's tiles at most, but for `FEWEST_ROWS` rows in all."""

CACHE_LINE = 16
"""Floats of a cache line. A product is faster if the rows that it writes lie whole lines apart."""


def fits(logits: Logits) -> bool:
    """Whether native code supports these logits; several base queries need whole rows."""
    longest = 1 << 31 if logits.queries.shape[1] == 1 else LONGEST_ROW
    return native_supports(*logits.inputs) and logits.catalogue < longest


class PackedLogits:
    """Logits in contiguous arrays, and the structure that points to them."""

    def __init__(self, logits: Logits) -> None:
        ids, history_of_row, visible, values = logits.overrides
        self.catalogue = logits.catalogue
        self.bases = [query.contiguous() for query in logits.queries.detach().unbind(1)]  # each (N, D)
        self.table = logits.table.detach().contiguous()  # (V, D)
        self.values = values.detach().contiguous()  # (N, K)
        self.levels = [level.query.detach().contiguous() for level in logits.levels]  # each (N, D)
        self.ids = check_range(ids, self.catalogue, "ids").long().contiguous()  # (B, K)
        self.history_of_row = check_range(history_of_row, len(ids) - 1, "history_of_row").long().contiguous()  # (N,)
        self.visible = visible.long().contiguous()  # (N,)
        self.sizes = [min(level.k, self.catalogue) for level in logits.levels]
        self.added = self._pack_additions(logits)
        self.struct = LogitsStruct(
            self.catalogue,
            self.table.shape[1],
            ids.shape[1],
            len(self.levels),
            self.table.data_ptr(),
            *(index.data_ptr() for index in (self.ids, self.history_of_row, self.visible)),
            self.values.data_ptr(),
            (ctypes.c_int64 * len(self.sizes))(*self.sizes),
            pointers(self.levels),
            is_portable(),
            self.added[0].shape[1] if self.added else 0,
            *([part.data_ptr() for part in self.added] or [0] * 3),
        )

    def _pack_additions(self, logits: Logits) -> list[Tensor]:
        """Ids, factors and bonuses (N, K) of the additions, where there are any."""
        if logits.additions is None:
            return []
        ids, factor, bonus = logits.additions
        rest = [part.detach().to(torch.float32).contiguous() for part in (factor, bonus)]
        return [check_range(ids, self.catalogue, "ids").long().contiguous(), *rest]

    @property
    def queries(self) -> Tensor:
        """The base queries where each row has one (N, D)."""
        (only,) = self.bases
        return only

    @property
    def rows(self) -> int:
        return self.bases[0].shape[0]


class PackedLoss:
    """Targets, weights and losses of the rows, and the gradients where they are needed."""

    def __init__(self, packed: PackedLogits, targets: Tensor, weights: Tensor, with_gradients: bool) -> None:
        if len(targets) != packed.rows or len(weights) != packed.rows:
            raise ValueError(f"got {len(targets)} targets and {len(weights)} weights, expected {packed.rows}")
        self.targets = check_range(targets, packed.catalogue - 1, "targets").long().contiguous()
        self.weights = weights.detach().to(torch.float32).contiguous()
        self.losses = torch.empty(packed.rows, dtype=torch.float64)
        self.with_gradients = with_gradients
        self.struct = LossStruct(self.targets.data_ptr(), self.weights.data_ptr(), self.losses.data_ptr())
        if with_gradients:
            self.scale = torch.empty(packed.rows)
            self.values = torch.empty_like(packed.values)
            self.levels = [torch.empty_like(level) for level in packed.levels]
            self.struct.scale = self.scale.data_ptr()
            self.struct.grad_values = self.values.data_ptr()
            self.struct.grad_queries = pointers(self.levels)


class BaseTiles:
    """The base logits of one tile after another, in the same memory; of several products the highest counts."""

    def __init__(self, packed: PackedLogits, tiles: Sequence[slice], with_gradients: bool) -> None:
        self.packed, height = packed, tiles[0].stop - tiles[0].start
        count = tiles_held(packed, with_gradients)
        self.first, *memory = (_tile(height, packed.catalogue) for _ in range(count))
        self.other, self.higher = memory[:1], memory[1:]
        """The product of another query; to divide a gradient, 1 where a query's product is above all before it."""

    def logits(self, rows: slice) -> Tensor:
        """Base logits of these rows (n, V)."""
        first, *others = (queries[rows] for queries in self.packed.bases)
        tile = torch.mm(first, self.packed.table.T, out=self.first[: len(first)])
        for i, queries in enumerate(others):
            product = torch.mm(queries, self.packed.table.T, out=self.other[0][: len(tile)])
            if self.higher:
                torch.gt(product, tile, out=self.higher[i][: len(tile)])
            torch.maximum(tile, product, out=tile)
        return tile

    def divided(self, gradient: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The part of each base query, one at a time, of the gradient of the last logits, which it overwrites."""
        for i in reversed(range(len(self.higher))):
            part = torch.mul(gradient, self.higher[i][: len(gradient)], out=self.other[0][: len(gradient)])
            gradient.sub_(part)
            yield i + 1, part
        yield 0, gradient


def _tile(rows: int, columns: int) -> Tensor:
    """Memory for a tile (rows, columns) whose rows are whole cache lines apart."""
    return torch.empty(rows, -(-columns // CACHE_LINE) * CACHE_LINE)[:, :columns]


def tiles_held(packed: PackedLogits, with_gradients: bool) -> int:
    """How many tiles `BaseTiles` holds in memory."""
    queries = len(packed.bases)
    return queries + 1 if with_gradients and queries > 1 else min(queries, 2)


def deal(packed: PackedLogits, workers: int, with_gradients: bool = False) -> list[list[slice]]:
    """The tiles of each worker; one worker without tiles where there are no rows."""
    held = tiles_held(packed, with_gradients)
    fewest = max(1, FEWEST_ROWS // held)
    height = max(fewest, min(TILE_ROWS, TILE_BYTES // (4 * packed.catalogue * held), -(-packed.rows // workers)))
    tiles = [slice(start, min(start + height, packed.rows)) for start in range(0, packed.rows, height)]
    return [tiles[worker::workers] for worker in range(min(workers, len(tiles)))] or [[]]


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def check_range(index: Tensor, highest: int, name: str) -> Tensor:
    """Refuse an index with which the library would read outside of an array."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) > highest):
        raise ValueError(f"got {name} from {int(index.min())} to {int(index.max())}, expected 0 to {highest}")
    return index

"""Tiles of base logits: which rows a thread computes at a time, and their products with the item table."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from abaca.nn.ops.packed import PackedLogits

TILE_ROWS = 128
"""Rows of a tile at most: matrix products need some to be fast."""

FEWEST_ROWS = 32

TILE_BYTES = 64 << 20
"""Memory of a worker's tiles at most, but for `FEWEST_ROWS` rows in all."""


class BaseTiles:
    """The base logits of one tile after another, in the same memory; of several products the highest counts."""

    def __init__(self, packed: PackedLogits, tiles: Sequence[slice], with_gradients: bool) -> None:
        self.packed, height = packed, tiles[0].stop - tiles[0].start
        count = tiles_held(packed, with_gradients)
        self.first, *memory = (torch.empty(height, packed.catalogue) for _ in range(count))
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

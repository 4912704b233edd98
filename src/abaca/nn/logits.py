"""Base plus overrides plus additions: the one structure of scores.

The logit of an item is the highest product of the row's base queries with the item table, unless something overrides
it: first the rerank levels in their order, largest k first, then the items of the history. Evidence, fitted after
training, then changes a few items of each row: logit ← factor · logit + bonus. Loss, rank, top-n and normaliser read
the same tiles of final logits. A tile holds a few rows: positions × V is never in memory.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

TILE_ELEMENTS = 1 << 22
"""How many logits a tile holds at most: 16 MB of float32."""


class Level(NamedTuple):
    """One rerank level: the k items that score highest so far are scored again by `query`."""

    k: int
    query: Tensor  # (N, D)


class Overrides(NamedTuple):
    """Items of the histories and their new logits; an item that occurs twice in a history has −∞ in both places."""

    ids: Tensor  # (B, K) items; V where a slot is empty
    history_of_row: Tensor  # (N,) the history that row n reads
    visible: Tensor  # (N,) row n is overridden by the first visible[n] slots only
    values: Tensor  # (N, K) the new logits

    def of(self, rows: slice, empty: int) -> tuple[Tensor, Tensor]:
        """Ids (n, K), `empty` where nothing is overridden, and values (n, K) of some rows."""
        ids = self.ids[self.history_of_row[rows]]
        steps = torch.arange(ids.shape[1], device=ids.device)
        return torch.where(steps < self.visible[rows, None], ids, empty), self.values[rows]


class Additions(NamedTuple):
    """Items of each row whose final logit becomes factor · logit + bonus; an item is in a row once at most."""

    ids: Tensor  # (N, K) items; V where a slot is empty
    factor: Tensor  # (N, K) above 0
    bonus: Tensor  # (N, K)

    def apply(self, logits: Tensor, ids: Tensor, rows: slice) -> None:
        """Change final logits (n, V + 1) in place, at the columns `ids` (n, K) of the items."""
        changed = self.factor[rows] * logits.gather(1, ids) + self.bonus[rows]
        logits.scatter_(1, ids, changed)
        logits[:, -1] = -torch.inf

    @property
    def lowered(self) -> int:
        """How many items of a row may score lower than before, at most; empty slots have factor 1 and bonus 0."""
        below = (self.factor != 1) | (self.bonus < 0)
        return int(below.sum(1).max()) if below.numel() else 0


class Tile(NamedTuple):
    """Final logits of some rows. The last column is a spare one, always −∞: ids that are V refer to it."""

    rows: slice
    logits: Tensor  # (n, V + 1)
    chosen: list[Tensor]  # per level: the items it rescored (n, k)
    ids: Tensor  # (n, K) items overridden by the history


class Scores(Protocol):
    """Final logits, tile by tile."""

    @property
    def rows(self) -> int: ...
    @property
    def catalogue(self) -> int: ...
    def tiles(self) -> Iterator[Tile]: ...


class Logits(NamedTuple):
    """N rows of logits over V items, not yet computed."""

    queries: Tensor  # (N, H, D) base queries; the highest of the H products counts
    table: Tensor  # (V, D)
    levels: tuple[Level, ...]
    overrides: Overrides
    additions: Additions | None = None

    @property
    def rows(self) -> int:
        return self.queries.shape[0]

    @property
    def catalogue(self) -> int:
        return self.table.shape[0]

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors that have gradients."""
        return [self.queries, self.table, self.overrides.values, *(level.query for level in self.levels)]

    def take(self, rows: Tensor) -> "Logits":
        """Only these rows."""
        ids, history_of_row, visible, values = self.overrides
        levels = tuple(Level(level.k, level.query[rows]) for level in self.levels)
        overrides = Overrides(ids, history_of_row[rows], visible[rows], values[rows])
        added = None if self.additions is None else Additions(*(part[rows] for part in self.additions))
        return Logits(self.queries[rows], self.table, levels, overrides, added)

    def adjusted(self, scale: Tensor, additions: Additions) -> "Logits":
        """All logits times a scale of each row (N,), above 0, and then the additions."""
        across = scale.unsqueeze(1)
        return Logits(
            self.queries * across.unsqueeze(2),
            self.table,
            tuple(Level(level.k, level.query * across) for level in self.levels),
            self.overrides._replace(values=self.overrides.values * across),
            additions,
        )

    def slices(self) -> list[slice]:
        """The rows of each tile; one tile without rows where there are none."""
        return row_slices(self.rows, self.catalogue * self.queries.shape[1])

    def tiles(self) -> Iterator[Tile]:
        """Final logits without gradients, a few rows at a time."""
        for rows in self.slices():
            with torch.no_grad():
                tile = self.tile(rows)
            yield tile

    def tile(self, rows: slice = slice(None)) -> Tile:
        """Final logits of some rows, or of all, by operations that autograd and a tracer can follow."""
        queries = self.queries[rows]
        one = queries.shape[1] == 1
        base = queries[:, 0] @ self.table.T if one else (queries @ self.table.T).amax(dim=1)
        logits, chosen = F.pad(base.type_as(self.table), (0, 1)), []  # under autocast products have fewer bits
        items = logits[:, :-1]
        for level in self.levels:
            top = items.detach().topk(min(level.k, self.catalogue), dim=1, sorted=False).indices  # (n, k)
            chosen.append(top)
            rescored = F.embedding(top, self.table)  # (n, k, D); the gradient of an index would vary from run to run
            items.scatter_(1, top, torch.einsum("nkd,nd->nk", rescored, level.query[rows]).type_as(items))
        ids, values = self.overrides.of(rows, self.catalogue)
        logits.scatter_(1, ids, values.type_as(logits))
        logits[:, -1] = -torch.inf
        if self.additions is not None:
            self.additions.apply(logits, self.additions.ids[rows], rows)
        return Tile(rows, logits, chosen, ids)


class Adjusted(NamedTuple):
    """Scores that are no `Logits`, all times a scale of each row, and then the additions."""

    scores: Scores
    scale: Tensor  # (N,) above 0
    additions: Additions

    @property
    def rows(self) -> int:
        return self.scores.rows

    @property
    def catalogue(self) -> int:
        return self.scores.catalogue

    def tiles(self) -> Iterator[Tile]:
        """Final logits, a few rows at a time."""
        for tile in self.scores.tiles():
            logits = tile.logits * self.scale[tile.rows, None]
            self.additions.apply(logits, self.additions.ids[tile.rows], tile.rows)
            yield tile._replace(logits=logits)


def adjust(scores: Scores, scale: Tensor, additions: Additions) -> Scores:
    """Scores times a scale of each row, and then the additions."""
    return scores.adjusted(scale, additions) if isinstance(scores, Logits) else Adjusted(scores, scale, additions)


def row_slices(rows: int, width: int) -> list[slice]:
    """Consecutive slices of rows with `width` numbers each, as many as a tile holds; one at least."""
    height = max(1, TILE_ELEMENTS // width)
    return [slice(start, min(start + height, rows)) for start in range(0, max(rows, 1), height)]

"""Base plus overrides: the one structure that every output layer makes, and what can be asked of it.

The logit of an item is the highest product of the row's base queries with the item table, unless something overrides
it: first the rerank levels, from the largest k to the smallest, then the items of the history. Loss, rank, top-n and
normaliser read the same tiles of final logits, so they cannot disagree. A tile holds a few rows: positions × V is
never in memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from abaca.nn import fast, gpu

COPY = -1
"""Partition of an item that the history overrides. 0 is the base, i ≥ 1 the i-th level from the smallest k."""

RULE = -2
"""Partition of an item that a baseline ranked."""

TILE_ELEMENTS = 1 << 22
"""How many logits a tile holds at most: 16 MB of float32."""


class Level(NamedTuple):
    """One rerank level: the k items that score highest so far are scored again by `query`."""

    k: int
    query: Tensor  # (N, D)


class Overrides(NamedTuple):
    """Items of the histories and their new logits; no item stands twice in one history but to say −∞ again."""

    ids: Tensor  # (B, K) items; V where a slot is empty
    owner: Tensor  # (N,) whose history row n reads
    reach: Tensor  # (N,) row n is overridden by the first reach[n] slots only
    values: Tensor  # (N, K) the new logits

    def of(self, rows: slice, empty: int) -> tuple[Tensor, Tensor]:
        """Ids (n, K), `empty` where nothing is overridden, and values (n, K) of some rows."""
        ids = self.ids[self.owner[rows]]
        steps = torch.arange(ids.shape[1], device=ids.device)
        return torch.where(steps < self.reach[rows, None], ids, empty), self.values[rows]


class Tile(NamedTuple):
    """Final logits of some rows. The last column is a spare one, always −∞: what has no place is written there."""

    rows: slice
    logits: Tensor  # (n, V + 1)
    base: Tensor | None  # (n, V) which base query scored an item; None where there is one only
    chosen: list[Tensor]  # per level, largest k first: the items it rescored (n, k)
    ids: Tensor  # (n, K) items overridden by the history


class Scores(Protocol):
    """What can be asked for final logits, tile by tile."""

    @property
    def rows(self) -> int: ...
    @property
    def catalogue(self) -> int: ...
    def tiles(self) -> Iterator[Tile]: ...


class Logits(NamedTuple):
    """N rows of logits over V items, not yet computed."""

    queries: Tensor  # (N, H, D) base queries; the highest of the H products counts
    table: Tensor  # (V, D)
    levels: tuple[Level, ...]  # largest k first
    overrides: Overrides

    @property
    def rows(self) -> int:
        return self.queries.shape[0]

    @property
    def catalogue(self) -> int:
        return self.table.shape[0]

    def take(self, rows: Tensor) -> "Logits":
        """Only these rows."""
        ids, owner, reach, values = self.overrides
        levels = tuple(Level(level.k, level.query[rows]) for level in self.levels)
        return Logits(self.queries[rows], self.table, levels, Overrides(ids, owner[rows], reach[rows], values[rows]))

    def tiles(self) -> Iterator[Tile]:
        """Final logits, a few rows at a time; each tile reuses the memory of the one before."""
        height = max(1, TILE_ELEMENTS // (self.catalogue * self.queries.shape[1]))
        memory = self.queries.new_empty(min(height, self.rows), self.catalogue + 1)
        for start in range(0, max(self.rows, 1), height):
            rows = slice(start, min(start + height, self.rows))
            yield self._tile(rows, memory[: rows.stop - rows.start])

    @torch.no_grad()
    def _tile(self, rows: slice, logits: Tensor) -> Tile:
        items = logits[:, :-1]
        base = None
        if self.queries.shape[1] == 1:
            torch.mm(self.queries[rows, 0], self.table.T, out=items)
        else:
            best, base = (self.queries[rows] @ self.table.T).max(dim=1)
            items.copy_(best)
        return self._override(rows, logits, base)

    @torch.no_grad()
    def whole(self) -> Tile:
        """All rows as one tile, by operations that a tracer can follow."""
        best = (self.queries @ self.table.T).amax(dim=1)
        return self._override(slice(None), torch.nn.functional.pad(best, (0, 1)), None)

    def _override(self, rows: slice, logits: Tensor, base: Tensor | None) -> Tile:
        """Base logits become final ones: the levels rescore, then the history."""
        items = logits[:, :-1]
        chosen = []
        for level in self.levels:
            top = items.topk(min(level.k, self.catalogue), dim=1, sorted=False).indices  # (n, k)
            chosen.append(top)
            items.scatter_(1, top, torch.einsum("nkd,nd->nk", self.table[top], level.query[rows]))
        ids, values = self.overrides.of(rows, self.catalogue)
        logits.scatter_(1, ids, values)
        logits[:, -1] = -torch.inf
        return Tile(rows, logits, base, chosen, ids)


class _CrossEntropy(torch.autograd.Function):
    """Σ weight · −log P(target), its gradients made on the way forward; backward only scales them."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        logits: Logits,
        targets: Tensor,
        weights: Tensor,
        *inputs: Tensor,
    ) -> Tensor:
        losses = logits.queries.new_empty(logits.rows)
        gradients = [torch.zeros_like(tensor) for tensor in inputs]
        for tile in logits.tiles():
            target = targets[tile.rows, None]
            weight = weights[tile.rows, None]
            hit = tile.logits.gather(1, target)
            normaliser = tile.logits.logsumexp(dim=1, keepdim=True)
            losses[tile.rows] = (normaliser - hit).squeeze(1)
            share = tile.logits.sub_(normaliser).exp_().mul_(weight)
            share.scatter_add_(1, target, -weight)
            _gradients(logits, tile, share, gradients)
        ctx.save_for_backward(*gradients)
        return (losses * weights).sum()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, None, *(upstream * gradient for gradient in ctx.saved_tensors))  # type: ignore[attr-defined]


def _gradients(logits: Logits, tile: Tile, share: Tensor, gradients: list[Tensor]) -> None:
    """Hand each logit's gradient to whoever wrote it last: the history, then the levels, then the base."""
    for_queries, for_table, for_values, *for_levels = gradients
    for_values[tile.rows] = share.gather(1, tile.ids)
    share.scatter_(1, tile.ids, 0)
    share = share[:, :-1]
    for level, chosen, for_level in reversed(list(zip(logits.levels, tile.chosen, for_levels, strict=True))):
        taken = share.gather(1, chosen)  # (n, k)
        share.scatter_(1, chosen, 0)
        query = level.query[tile.rows]
        for_level[tile.rows] = torch.einsum("nk,nkd->nd", taken, logits.table[chosen])
        for_table.index_add_(0, chosen.flatten(), (taken.unsqueeze(2) * query.unsqueeze(1)).flatten(0, 1))
    queries = logits.queries[tile.rows]
    for i in range(queries.shape[1]):
        part = share if tile.base is None else share * (tile.base == i)
        for_queries[tile.rows, i] = part @ logits.table
        for_table.addmm_(part.T, queries[:, i])


def cross_entropy(logits: Logits, targets: Tensor, weights: Tensor) -> Tensor:
    """Σ weights · −log P(target) over the rows (N,), with gradients for queries, table and overrides."""
    if gpu.takes(logits):
        return gpu.cross_entropy(logits, targets, weights)
    if fast.takes(logits):
        return fast.cross_entropy(logits, targets, weights)
    inputs = [logits.queries, logits.table, logits.overrides.values, *(level.query for level in logits.levels)]
    loss: Tensor = _CrossEntropy.apply(logits, targets, weights, *inputs)  # type: ignore[no-untyped-call]
    return loss


class Answer(NamedTuple):
    """What a ranking needs to know of each row."""

    rank: Tensor  # (N,) one plus the other items that score higher or equal; V + 1 without a target
    items: Tensor  # (N, n) the best items
    logits: Tensor  # (N, n) and their logits
    partitions: Tensor  # (N, n) who scored them: COPY, 0 for the base, i ≥ 1 for level i
    normaliser: Tensor  # (N,) log-sum-exp of all logits
    mass: Tensor  # (N,) probability of the items asked for


class Question(NamedTuple):
    """What to ask of each row; ids are padded with V."""

    targets: Tensor  # (N,) items to rank; negative for none
    n: int  # how many of the best items
    mass_of: Tensor  # (N, X) items whose probability to add up, each once
    banned: Tensor  # (N, Y) items that may not be among the best
    only: Tensor | None = None  # (N, Z) the only items that may be; None for all

    def to(self, device: torch.device) -> "Question":
        """The same question on another device."""
        return self._map(lambda part: part.to(device))

    def take(self, rows: Tensor) -> "Question":
        """The question about some rows only."""
        return self._map(lambda part: part[rows])

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Question":
        targets, mass_of, banned = (change(part) for part in (self.targets, self.mass_of, self.banned))
        return Question(targets, self.n, mass_of, banned, None if self.only is None else change(self.only))


@torch.no_grad()
def answer(scores: Scores, question: Question) -> Answer:
    """Rank of the targets, top-n, normaliser and probability of given items, in one pass over the tiles."""
    if isinstance(scores, Logits) and fast.takes(scores):
        return Answer(*fast.answer(scores, question))
    parts = [answer_tile(tile, question) for tile in scores.tiles()]
    return Answer(*(torch.cat(column) for column in zip(*parts, strict=True)))


class TargetRanks(NamedTuple):
    """Where the target of each row stands, if it is among the first."""

    rank: Tensor  # (N,) one plus the other items that score higher or equal; V + 1 beyond what was asked for
    logit: Tensor  # (N,) the target's; −∞ beyond


@torch.no_grad()
def rank_targets(scores: Scores, targets: Tensor, most: int) -> TargetRanks:
    """Ranks of the targets (N,) as far as `most`: what a metric at a cutoff reads, and nothing else."""
    if isinstance(scores, Logits) and fast.takes(scores):
        return TargetRanks(*fast.rank_targets(scores, targets, most))
    ranks, logits = [], []
    for tile in scores.tiles():
        found, hit = _rank(tile, targets[tile.rows])
        ranks.append(found.where(found <= most, scores.catalogue + 1))
        logits.append(hit.where(found <= most, -torch.inf))
    return TargetRanks(torch.cat(ranks), torch.cat(logits))


def _rank(tile: Tile, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Rank and logit of each row's target; no target (negative) has a rank without meaning."""
    items = tile.logits[:, :-1]
    hit = items.gather(1, targets[:, None].clamp_min(0))
    # not (<) rather than (>=): what is no number counts against the target
    return (~(items < hit)).sum(1), hit.squeeze(1)


def answer_tile(tile: Tile, question: Question) -> Answer:
    """The answer for the rows of one tile."""
    logits, rows = tile.logits, tile.rows
    items = logits[:, :-1]
    targets = question.targets[rows]
    rank = torch.where(targets >= 0, _rank(tile, targets)[0], items.shape[1] + 1)
    normaliser = logits.logsumexp(dim=1)
    mass = (logits.gather(1, question.mass_of[rows]) - normaliser[:, None]).exp().sum(1)
    allowed = logits.clone() if question.banned.shape[1] or question.only is not None else logits
    if question.only is not None:
        only = question.only[rows]
        allowed = torch.full_like(logits, -torch.inf).scatter_(1, only, logits.gather(1, only))
    allowed.scatter_(1, question.banned[rows], -torch.inf)
    best = allowed[:, :-1].topk(min(question.n, items.shape[1]), dim=1)
    return Answer(rank, best.indices, best.values, _partitions(tile).gather(1, best.indices), normaliser, mass)


def _partitions(tile: Tile) -> Tensor:
    """Who scored each item (n, V + 1)."""
    codes = torch.zeros(tile.logits.shape, dtype=torch.int8, device=tile.logits.device)
    for i, chosen in enumerate(tile.chosen):
        codes.scatter_(1, chosen, len(tile.chosen) - i)
    return codes.scatter_(1, tile.ids, COPY)

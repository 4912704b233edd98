"""Cross entropy on a GPU: torch finds the overridden items, Triton sums the rest of the catalogue.

Each row has a short list of claimed items: its history, the best Σk base logits, from which every level chooses, and
its target. Their logits are ordinary tensors (N, C). The kernels of `triton_kernels.py` sum all other items:

    loss = log(exp(sum over unclaimed items) + Σ exp(claimed logits)) − logit of the target

It is opt-in, by `ABACA_TRITON=1` or `ops.form("triton")`: it has not been run on a GPU.
"""

import functools
import logging
import os
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from abaca.nn.logits import Logits
from abaca.nn.ops.library import current_form

log = logging.getLogger(__name__)

WIDEST = 256
"""Vectors of more dimensions do not fit into a program's registers: they take the plain form."""

BLOCKS = ((64, 64), (128, 32), (WIDEST, 16))
"""For at most this many dimensions: the rows and items of a block."""

PROGRAMS = 512
"""About how many programs a kernel has at least, so that a GPU has enough to do."""

TILE_ELEMENTS = 1 << 25
"""How many numbers torch holds at a time while it looks for claimed items: 128 MB of float32."""


def fits(logits: Logits) -> bool:
    """Whether Triton is selected and supports these logits: one base query, float32, a GPU where it works."""
    if current_form() != "triton" or logits.queries.shape[1] != 1 or logits.table.shape[1] > WIDEST:
        return False
    if logits.catalogue >= 1 << 30 or any(tensor.dtype != torch.float32 for tensor in logits.inputs):
        return False
    return (logits.table.is_cuda or _interpreted()) and _works(logits.table.device)


def _interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU, as tests do."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _works(device: torch.device) -> bool:
    """Whether a kernel runs on this device; if not, the plain form is used."""
    one = torch.ones(1, 1, device=device)
    try:
        UnclaimedSum.apply(one, one, torch.ones(1, 1, dtype=torch.int32, device=device))  # type: ignore[no-untyped-call]
    except Exception as error:
        log.warning("Triton does not work on %s (%s); the plain torch form of the loss is used", device, error)
        return False
    return True


def cross_entropy(logits: Logits, targets: Tensor, weights: Tensor) -> Tensor:
    """Σ weights · −log P(target) over the rows (N,), with gradients for queries, table and overrides."""
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < logits.catalogue:
        raise ValueError(f"got targets from {targets.min()} to {targets.max()}, expected 0 to {logits.catalogue - 1}")
    items, scores = claims(logits, targets)
    ordered, order = items.sort(dim=1, stable=True)  # of equal items the first is the one that counts
    first = F.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True) & (ordered < logits.catalogue)
    counts = torch.empty_like(first).scatter_(1, order, first)
    claimed = scores.masked_fill(~counts, -torch.inf)
    rest: Tensor = UnclaimedSum.apply(logits.queries[:, 0], logits.table, ordered.int())  # type: ignore[no-untyped-call]
    normaliser = torch.cat([claimed, rest.unsqueeze(1)], dim=1).logsumexp(dim=1)
    hit = torch.where(counts & (items == targets.unsqueeze(1)), claimed, 0).sum(dim=1)
    return ((normaliser - hit) * weights).sum()


def claims(logits: Logits, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Items (N, C) that are scored apart, and their logits: the history's, the levels' candidates, the target."""
    history, values = logits.overrides.of(slice(None), logits.catalogue)
    with torch.no_grad():
        found = candidates(logits)
        of_target = products(logits.queries[:, 0], logits.table, targets.unsqueeze(1))
        found = Candidates(
            torch.cat([found.items, targets.unsqueeze(1)], dim=1),
            torch.cat([found.scores, of_target], dim=1),
            F.pad(found.scorer, (0, 1)),
        )
    queries = torch.cat([logits.queries, *(level.query.unsqueeze(1) for level in logits.levels)], dim=1)
    scores: Tensor = Scored.apply(queries, logits.table, *found)  # type: ignore[no-untyped-call]
    return torch.cat([history, found.items], dim=1), torch.cat([values, scores], dim=1)


class Candidates(NamedTuple):
    """Items that a level may choose."""

    items: Tensor  # (N, C)
    scores: Tensor  # (N, C) after all levels
    scorer: Tensor  # (N, C) which query gave the score: 0 the base, i ≥ 1 the i-th level of `Logits`


def candidates(logits: Logits) -> Candidates:
    """The Σk items with the highest base logits, scored by all levels.

    No level needs another item: however many of these the levels before it rewrote, k of the others are left.
    """
    count = min(sum(level.k for level in logits.levels), logits.catalogue)
    scores = logits.queries.new_empty(logits.rows, count)
    items = torch.empty_like(scores, dtype=torch.long)
    for rows in _tiles(logits.rows, logits.catalogue) if count else ():
        scores[rows], items[rows] = (logits.queries[rows, 0] @ logits.table.T).topk(count, dim=1, sorted=False)
    scorer = torch.zeros_like(items)
    for number, level in enumerate(logits.levels, start=1):
        chosen = scores.topk(min(level.k, logits.catalogue), dim=1, sorted=False).indices  # (N, k)
        scores.scatter_(1, chosen, products(level.query, logits.table, items.gather(1, chosen)))
        scorer.scatter_(1, chosen, number)
    return Candidates(items, scores, scorer)


def products(queries: Tensor, table: Tensor, items: Tensor) -> Tensor:
    """Queries (N, D) times some items (N, C) → (N, C)."""
    found = queries.new_empty(items.shape)
    for rows in _tiles(len(items), items.shape[1] * table.shape[1]):
        found[rows] = torch.einsum("nd,ncd->nc", queries[rows], table[items[rows]])
    return found


def _tiles(rows: int, width: int) -> Iterator[slice]:
    """The largest number of rows of this width that fits into torch's memory limit."""
    height = max(1, TILE_ELEMENTS // width)
    return (slice(start, start + height) for start in range(0, rows, height))


class Scored(torch.autograd.Function):
    """The candidates' scores, which are known already; only their gradients are left to make."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, queries: Tensor, table: Tensor, items: Tensor, scores: Tensor, scorer: Tensor
    ) -> Tensor:
        ctx.save_for_backward(queries, table, items, scorer)
        return scores

    @staticmethod
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, table, items, scorer = ctx.saved_tensors  # type: ignore[attr-defined]
        for_queries, for_table = torch.empty_like(queries), torch.zeros_like(table)
        numbers = torch.arange(queries.shape[1], device=queries.device)[:, None]
        for rows in _tiles(len(items), items.shape[1] * table.shape[1]):
            by_query = torch.where(scorer[rows, None] == numbers, upstream[rows, None], 0)  # (n, H, C)
            for_queries[rows] = by_query @ table[items[rows]]
            spread = by_query.transpose(1, 2) @ queries[rows]  # (n, C, D)
            for_table.index_put_((items[rows].flatten(),), spread.flatten(0, 1), accumulate=True)
        return for_queries, for_table, None, None, None


class UnclaimedSum(torch.autograd.Function):
    """Log-sum-exp (N,) of queries (N, D) times the table over all items but the row's claimed ones (N, C), sorted."""

    @staticmethod
    def forward(ctx: FunctionCtx, queries: Tensor, table: Tensor, claimed: Tensor) -> Tensor:
        queries, table = queries.contiguous(), table.contiguous()
        launch = Launch.over(len(queries), len(table), table.shape[1])
        sums = queries.new_empty(len(queries), launch.shares)
        launch("sum_forward", queries, table, claimed, sums)
        total = sums.logsumexp(dim=1)
        ctx.save_for_backward(queries, table, claimed, total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, table, claimed, total = ctx.saved_tensors  # type: ignore[attr-defined]
        inputs = (queries, table, claimed, total, upstream.contiguous())
        by_rows = Launch.over(len(queries), len(table), table.shape[1])
        for_queries = queries.new_empty(by_rows.shares, *queries.shape)
        by_rows("sum_backward_queries", *inputs, for_queries)
        by_items = Launch.over(len(table), len(queries), table.shape[1])
        for_table = table.new_empty(by_items.shares, *table.shape)
        by_items("sum_backward_table", *inputs, for_table)
        return for_queries.sum(dim=0), for_table.sum(dim=0), None


class Launch(NamedTuple):
    """How a kernel's work is divided: blocks of what its programs own, shares of what they walk."""

    blocks: int
    shares: int
    share: int
    block: int

    @classmethod
    def over(cls, owned: int, walked: int, dim: int) -> "Launch":
        """A function of shapes alone, so that sums are always made in one order."""
        block = next(size for widest, size in BLOCKS if dim <= widest)
        blocks, steps = -(-owned // block), -(-walked // block)
        share = max(1, steps * blocks // PROGRAMS) * block
        return cls(blocks, -(-walked // share), share, block)

    def __call__(self, kernel: str, queries: Tensor, table: Tensor, claimed: Tensor, *others: Tensor) -> None:
        from abaca.nn.ops import triton_kernels

        if not self.blocks * self.shares:
            return
        (rows, dim), catalogue, width = queries.shape, len(table), claimed.shape[1]
        with torch.cuda.device_of(queries):  # type: ignore[no-untyped-call]
            getattr(triton_kernels, kernel)[self.blocks, self.shares](
                queries, table, claimed, *others, rows, catalogue, width, self.share,
                DIM=dim, WIDTH=max(16, 1 << (dim - 1).bit_length()), BLOCK=self.block,
            )  # fmt: skip

"""Loss and ranking with the native row pass: torch multiplies matrices, one call per tile does everything in between.

The plain form is in `logits.py`; both give the same numbers up to rounding. A tile of logits is made by one product,
becomes the gradient of the base logits in place, and two more products carry that to queries and item table:

    Z = f_V E^T;  row pass: Z → gradient of Z;  df_V = Z E;  dE += Z^T f_V

Where a row has several base queries, Z is the highest of their products, and its gradient goes to whoever was highest.

Tiles are dealt out to as many threads as torch has. Which thread gets which tile, and in which order sums are made,
depends on shapes and the number of threads only: the same run gives the same bits.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from abaca.nn import itemtiles, native
from abaca.nn.frame import Frame, Loss, can_read, in_parallel, library, within
from abaca.nn.product import MOST_BYTES, PANEL, Product, room

if TYPE_CHECKING:
    from abaca.nn.logits import Logits, Question

TILE_ROWS = 128
"""Rows of a tile: the products need some to be fast."""

RANKED_ROWS = 48
"""The same where nothing is learned: the tile of a small catalogue stays near until it is read."""

TILE_BYTES = 64 << 20
"""What the tiles of a worker hold at most, unless that were fewer rows than `FEWEST_ROWS` in all."""

FEWEST_ROWS = 32

FIRST_ITEMS = 20
MOST_FIRST = 2048
"""One in so many items of the catalogue, and no more than that, are looked at first where only ranks are asked for."""

SLACK = 1e-4
"""Bounds leave so much of a logit as room for rounding: near ties are for the full computation to decide."""


def takes(logits: "Logits") -> bool:
    """Whether the native form can do these logits: float32, on the CPU, a library to call, and not too many at once."""
    tensors = (logits.queries, logits.table, logits.overrides.values, *(level.query for level in logits.levels))
    most = 1 << 31 if logits.queries.shape[1] == 1 else itemtiles.LONGEST_ROW
    return can_read(*tensors) and logits.catalogue < most


def cross_entropy(logits: "Logits", targets: Tensor, weights: Tensor) -> Tensor:
    """Σ weights · −log P(target) over the rows (N,), with gradients for queries, table and overrides."""
    inputs = (logits.queries, logits.table, logits.overrides.values, *(level.query for level in logits.levels))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        loss: Tensor = _CrossEntropy.apply(logits, targets, weights, *inputs)  # type: ignore[no-untyped-call]
        return loss
    return _solve(logits, targets, weights, False)[0]


class _CrossEntropy(torch.autograd.Function):
    """The gradients are made on the way forward. Backward scales them in place and gives them away: no second table."""

    @staticmethod
    def forward(ctx: Any, logits: "Logits", targets: Tensor, weights: Tensor, *inputs: Tensor) -> Tensor:
        loss, ctx.gradients = _solve(logits, targets, weights, True)
        ctx.save_for_backward(*inputs)
        ctx.asked = logits, targets, weights
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # torch checks that nobody changed them
        logits, targets, weights = ctx.asked
        gradients = ctx.gradients or _solve(logits, targets, weights, True)[1]  # made again if it is called again
        ctx.gradients = None
        return (None, None, None, *(gradient.mul_(upstream) for gradient in gradients))


def _solve(logits: "Logits", targets: Tensor, weights: Tensor, wanted: bool) -> tuple[Tensor, list[Tensor]]:
    """The summed loss; where wanted, gradients of queries (N, H, D), table, values and levels."""
    frame = Frame(logits)
    loss, workers = Loss(frame, targets, weights, wanted), torch.get_num_threads()
    by_items = len(frame.bases) == 1 and itemtiles.pays(frame, workers)
    queries, table = (itemtiles.solve if by_items else _rows_form)(frame, loss, workers)
    gradients = [queries, table, loss.values, *loss.levels] if wanted else []
    return loss.losses.sum().to(torch.float32), gradients


def _rows_form(frame: Frame, loss: Loss, workers: int) -> tuple[Tensor, Tensor]:
    """Losses by tiles of whole rows; returns gradients of queries and table, empty if they are not wanted."""
    spare = itemtiles.COPIES_BYTES // (4 * frame.table.numel() or 1)  # a further worker has a table of its own
    shares = deal(frame.rows, frame.catalogue, min(workers, 1 + spare), _Base.tiles(frame, loss.wanted))
    grad_queries = frame.table.new_empty(frame.rows if loss.wanted else 0, len(frame.bases), frame.table.shape[1])
    grad_tables = [torch.zeros_like(frame.table if loss.wanted else frame.table[:0]) for _ in shares]
    in_parallel(len(shares), lambda i: _work(frame, loss, shares[i], grad_queries, grad_tables[i]))
    table, *others = grad_tables
    for other in others:
        table += other
    return grad_queries, table


def _work(frame: Frame, loss: Loss, tiles: Sequence[slice], grad_queries: Tensor, grad_table: Tensor) -> None:
    """One worker's tiles, in order."""
    if not tiles:
        return
    base = _Base(frame, tiles, Product(frame.table, 0), loss.wanted)
    scratch = torch.empty(library().abaca_loss_words(frame.struct, len(base.first)), dtype=torch.int64)
    for rows in tiles:
        tile = base.logits(rows)
        library().abaca_loss_rows(
            frame.struct,
            loss.struct,
            rows.start,
            len(tile),
            tile.data_ptr(),
            tile.stride(0),
            scratch.data_ptr(),
            grad_table.data_ptr() if loss.wanted else None,
        )
        if loss.wanted:
            scale = loss.scale[rows].unsqueeze(1)
            for i, part in base.divided(tile):
                grad_queries[rows, i] = torch.mm(part, frame.table).mul_(scale)
                grad_table.addmm_(part.T, frame.bases[i][rows] * scale)


class _Base:
    """The base logits of one tile after another, in the same memory: of several products the highest counts."""

    def __init__(
        self, frame: Frame, tiles: Sequence[slice], product: Product, divides: bool = False, columns: int | None = None
    ) -> None:
        """For these tiles, all columns or the first; `divides` says whether gradients will be asked for."""
        self.frame, self.product, height = frame, product, tiles[0].stop - tiles[0].start
        width = frame.catalogue if columns is None else columns
        self.first, *memory = (room(height, width) for _ in range(self.tiles(frame, divides)))
        self.other, self.higher = memory[:1], memory[1:]
        """What another query makes; and, to divide a gradient, 1 where a query's product is above all before it."""

    @staticmethod
    def tiles(frame: Frame, divides: bool) -> int:
        """How many tiles it holds."""
        queries = len(frame.bases)
        return queries + 1 if divides and queries > 1 else min(queries, 2)

    def logits(self, rows: slice) -> Tensor:
        """Base logits of these rows (n, V)."""
        first, *others = (queries[rows] for queries in self.frame.bases)
        tile = self.product(first, self.first[: len(first)])
        for i, queries in enumerate(others):
            product = self.product(queries, self.other[0][: len(tile)])
            if self.higher:
                torch.gt(product, tile, out=self.higher[i][: len(tile)])
            torch.maximum(tile, product, out=tile)
        return tile

    def divided(self, gradient: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Each base query's part, one at a time, of the gradient of what `logits` gave last; its memory is used up."""
        for i in reversed(range(len(self.higher))):
            part = torch.mul(gradient, self.higher[i][: len(gradient)], out=self.other[0][: len(gradient)])
            gradient.sub_(part)
            yield i + 1, part
        yield 0, gradient


def answer(logits: "Logits", question: "Question") -> tuple[Tensor, ...]:
    """Rank, best items, their logits and partitions, normaliser and mass of each row: the fields of `Answer`."""
    frame, n = Frame(logits), min(question.n, logits.catalogue)
    only = question.targets[:, None][:, :0] if question.only is None else question.only
    within(question.targets.clamp_min(0), frame.catalogue - 1, "targets")
    lists = [
        within(ids, frame.catalogue, "ids").long().contiguous() for ids in (question.mass_of, question.banned, only)
    ]
    targets = question.targets.long().contiguous()
    found = (
        torch.empty(frame.rows, dtype=torch.int64),
        torch.empty(frame.rows, n, dtype=torch.int64),
        torch.empty(frame.rows, n),
        torch.empty(frame.rows, n, dtype=torch.int8),
        torch.empty(frame.rows),
        torch.empty(frame.rows),
    )
    struct = native.QuestionStruct(
        n,
        *(ids.shape[1] for ids in lists[:2]),
        -1 if question.only is None else only.shape[1],
        targets.data_ptr(),
        *(ids.data_ptr() for ids in (*lists, *found)),
    )
    shares, product = _deal_ranking(frame), Product(frame.table, frame.rows)
    in_parallel(len(shares), lambda worker: _rank(frame, struct, shares[worker], product))
    return found


def _rank(frame: Frame, struct: native.QuestionStruct, tiles: Sequence[slice], product: Product) -> None:
    """One worker's tiles of a ranking."""
    if not tiles:
        return
    base = _Base(frame, tiles, product)
    desk = torch.zeros(library().abaca_answer_bytes(frame.struct, struct), dtype=torch.uint8)
    for rows in tiles:
        tile = base.logits(rows)
        library().abaca_answer_rows(
            frame.struct, struct, rows.start, len(tile), tile.data_ptr(), tile.stride(0), desk.data_ptr()
        )


def rank_targets(logits: "Logits", targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Rank and logit of each row's target: the fields of `TargetRanks`."""
    frame = Frame(logits)
    targets = within(targets, frame.catalogue - 1, "targets").long().contiguous()
    rank, hit = torch.full_like(targets, frame.catalogue + 1), torch.full((frame.rows,), -torch.inf)
    product = Product(frame.table, frame.rows)
    beaten = _beaten(frame, targets, most, product)
    if bool(beaten.any()):
        left = (~beaten).nonzero().squeeze(1)
        rank[left], hit[left] = _rank_targets(Frame(logits.take(left)), targets[left], most, product)
        return rank, hit
    return _rank_targets(frame, targets, most, product)


def _rank_targets(frame: Frame, targets: Tensor, most: int, product: Product) -> tuple[Tensor, Tensor]:
    rank, hit = torch.empty(frame.rows, dtype=torch.int64), torch.empty(frame.rows)

    def work(tiles: Sequence[slice]) -> None:
        if not tiles:
            return
        base = _Base(frame, tiles, product)
        desk = torch.empty(library().abaca_rank_bytes(frame.struct), dtype=torch.uint8)
        places = desk.data_ptr(), rank.data_ptr(), hit.data_ptr()
        for rows in tiles:
            tile = base.logits(rows)
            asked = targets.data_ptr(), most, rows.start, len(tile)
            library().abaca_rank_rows(frame.struct, *asked, tile.data_ptr(), tile.stride(0), *places)

    shares = _deal_ranking(frame)
    in_parallel(len(shares), lambda worker: work(shares[worker]))
    return rank, hit


def _beaten(frame: Frame, targets: Tensor, most: int, product: Product) -> Tensor:
    """Which targets `most` of the catalogue's first items, the most frequent ones, are sure to beat (N,).

    Sure: whether or not a level rescores an item, the lowest that can come of it is above the highest that can come of
    the target. So they fall behind before most of the catalogue is looked at.
    """
    beaten = torch.zeros(frame.rows, dtype=torch.bool)
    columns = min(MOST_FIRST, frame.catalogue // FIRST_ITEMS // PANEL * PANEL)
    if columns <= most or not frame.rows:
        return beaten
    hoped = frame.table[targets]
    queries = torch.stack([*frame.bases, *frame.levels], dim=1)  # (N, H + R, D)
    bound = (queries @ hoped.unsqueeze(2)).amax(dim=(1, 2))  # (N,)
    bound += SLACK * (1 + bound.abs())

    def work(tiles: Sequence[slice]) -> None:
        base, other = _Base(frame, tiles, product, columns=columns), room(TILE_ROWS, columns)
        for rows in tiles:
            tile = base.logits(rows)
            for level in frame.levels:
                torch.minimum(tile, product(level[rows], other[: len(tile)]), out=tile)
            asked = targets.data_ptr(), bound.data_ptr(), most, rows.start, len(tile), columns
            library().abaca_beaten_rows(frame.struct, *asked, tile.data_ptr(), tile.stride(0), beaten.data_ptr())

    shares = deal(frame.rows, columns, torch.get_num_threads())
    in_parallel(len(shares), lambda worker: work(shares[worker]))
    return beaten


def _deal_ranking(frame: Frame) -> list[list[slice]]:
    """The tiles of a ranking: where torch multiplies, as tall as those of the loss."""
    tallest = RANKED_ROWS if 4 * frame.table.numel() <= MOST_BYTES else TILE_ROWS
    return deal(frame.rows, frame.catalogue, torch.get_num_threads(), _Base.tiles(frame, False), tallest)


def deal(rows: int, catalogue: int, workers: int, held: int = 1, tallest: int = TILE_ROWS) -> list[list[slice]]:
    """Which tiles each worker does, at most so many workers, each of which holds so many tiles at a time.

    Where there are no rows, one worker without tiles.
    """
    fewest = max(1, FEWEST_ROWS // held)
    height = max(fewest, min(tallest, TILE_BYTES // (4 * catalogue * held), -(-rows // workers)))
    tiles = [slice(start, min(start + height, rows)) for start in range(0, rows, height)]
    return [tiles[worker::workers] for worker in range(min(workers, len(tiles)))] or [[]]

"""Loss and ranking with the native row pass: torch multiplies matrices, one call per tile does everything in between.

The plain form is in `logits.py`; both give the same numbers up to rounding. A tile of logits is made by one product,
becomes the gradient of the base logits in place, and two more products carry that to queries and item table:

    Z = f_V E^T;  row pass: Z → gradient of Z;  df_V = Z E;  dE += Z^T f_V

Tiles are dealt out to as many threads as torch has. Which thread gets which tile, and in which order sums are made,
depends on shapes and the number of threads only: the same run gives the same bits.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from abaca.nn import native

if TYPE_CHECKING:
    from abaca.nn.logits import Logits, Question

TILE_ROWS = 128
"""Rows of a tile: the products need some to be fast."""

TILE_BYTES = 64 << 20
"""What a tile holds at most, unless that were fewer rows than `FEWEST_ROWS`."""

FEWEST_ROWS = 32

ALIGNED = 16
"""Rows of a tile begin at multiples of so many floats: a cache line."""


def takes(logits: "Logits") -> bool:
    """Whether the native form can do these logits: one base query, float32, on the CPU, and a library to call."""
    tensors = (logits.queries, logits.table, logits.overrides.values, *(level.query for level in logits.levels))
    fits = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return fits and logits.queries.shape[1] == 1 and logits.catalogue < 1 << 31 and native.mode() is not None


class Frame:
    """Logits as the library reads them. Keeps alive what the structure points to."""

    def __init__(self, logits: "Logits") -> None:
        ids, owner, reach, values = logits.overrides
        self.catalogue = logits.catalogue
        self.queries = logits.queries.detach()[:, 0].contiguous()  # (N, D)
        self.table = logits.table.detach().contiguous()  # (V, D)
        self.values = values.detach().contiguous()  # (N, K)
        self.levels = [level.query.detach().contiguous() for level in logits.levels]  # each (N, D)
        self.indices = [_within(ids, self.catalogue, "ids"), _within(owner, len(ids) - 1, "owner"), reach]
        self.indices = [index.long().contiguous() for index in self.indices]
        sizes = [min(level.k, self.catalogue) for level in logits.levels]
        self.struct = native.LogitsStruct(
            self.catalogue,
            self.table.shape[1],
            ids.shape[1],
            len(self.levels),
            self.table.data_ptr(),
            *(index.data_ptr() for index in self.indices),
            self.values.data_ptr(),
            (ctypes.c_int64 * len(sizes))(*sizes),
            _pointers(self.levels),
            native.mode() == "portable",
        )

    @property
    def rows(self) -> int:
        return self.queries.shape[0]

    def scratch(self) -> Tensor:
        """Memory of one worker."""
        return torch.empty(_library().abaca_scratch_words(self.struct), dtype=torch.int32)


def tile_memory(height: int, catalogue: int) -> Tensor:
    """Room for the logits of so many rows (height, V)."""
    stride = -(-catalogue // ALIGNED) * ALIGNED
    return torch.empty(height, stride)[:, :catalogue]


class Gradients:
    """Where the gradients go; those of the levels in the table are added up apart for each worker."""

    def __init__(self, frame: Frame, workers: int) -> None:
        self.scale = torch.empty(frame.rows)
        self.queries = torch.empty_like(frame.queries)
        self.values = torch.empty_like(frame.values)
        self.levels = [torch.empty_like(level) for level in frame.levels]
        self.tables = [torch.zeros_like(frame.table) for _ in range(workers)]

    def all(self) -> list[Tensor]:
        """Gradients of queries (N, 1, D), table, values and levels, as `cross_entropy` lists its inputs."""
        table, *others = self.tables
        for other in others:
            table += other
        return [self.queries.unsqueeze(1), table, self.values, *self.levels]


def cross_entropy(logits: "Logits", targets: Tensor, weights: Tensor) -> Tensor:
    """Σ weights · −log P(target) over the rows (N,), with gradients for queries, table and overrides."""
    inputs = (logits.queries, logits.table, logits.overrides.values, *(level.query for level in logits.levels))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        loss: Tensor = _CrossEntropy.apply(logits, targets, weights, *inputs)  # type: ignore[no-untyped-call]
        return loss
    return _losses(Frame(logits), targets, weights, None)


class _CrossEntropy(torch.autograd.Function):
    """The gradients are made on the way forward; backward only scales them."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, logits: "Logits", targets: Tensor, weights: Tensor, *inputs: Tensor
    ) -> Tensor:
        frame = Frame(logits)
        gradients = Gradients(frame, len(deal(frame.rows, frame.catalogue, torch.get_num_threads())))
        loss = _losses(frame, targets, weights, gradients)
        ctx.save_for_backward(*gradients.all())
        return loss

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, None, *(upstream * gradient for gradient in ctx.saved_tensors))  # type: ignore[attr-defined]


def _losses(frame: Frame, targets: Tensor, weights: Tensor, gradients: Gradients | None) -> Tensor:
    """The summed loss; fills in the gradients where they are asked for."""
    targets = _within(targets, frame.catalogue - 1, "targets").contiguous()
    weights = weights.detach().to(torch.float32).contiguous()
    losses = torch.empty(frame.rows, dtype=torch.float64)
    struct = native.LossStruct(targets.data_ptr(), weights.data_ptr(), losses.data_ptr())
    if gradients is not None:
        struct.scale = gradients.scale.data_ptr()
        struct.grad_values = gradients.values.data_ptr()
        struct.grad_queries = _pointers(gradients.levels)
    shares = deal(frame.rows, frame.catalogue, torch.get_num_threads())

    def work(worker: int) -> None:
        _work(frame, struct, shares[worker], gradients, worker)

    _in_parallel(len(shares), work)
    return losses.sum().to(torch.float32)


def _work(
    frame: Frame, struct: native.LossStruct, tiles: Sequence[slice], gradients: Gradients | None, worker: int
) -> None:
    """One worker's tiles, in order."""
    if not tiles:
        return
    memory, scratch = tile_memory(tiles[0].stop - tiles[0].start, frame.catalogue), frame.scratch()
    grad_table = gradients.tables[worker] if gradients is not None else None
    for rows in tiles:
        queries = frame.queries[rows]
        tile = memory[: len(queries)]
        torch.mm(queries, frame.table.T, out=tile)
        _library().abaca_loss_rows(
            frame.struct,
            struct,
            rows.start,
            len(queries),
            tile.data_ptr(),
            tile.stride(0),
            scratch.data_ptr(),
            None if grad_table is None else grad_table.data_ptr(),
        )
        if gradients is None or grad_table is None:
            continue
        scale = gradients.scale[rows].unsqueeze(1)
        torch.mm(tile, frame.table, out=gradients.queries[rows]).mul_(scale)
        grad_table.addmm_(tile.T, queries * scale)


def answer(logits: "Logits", question: "Question") -> tuple[Tensor, ...]:
    """Rank, best items, their logits and partitions, normaliser and mass of each row: the fields of `Answer`."""
    frame, n = Frame(logits), min(question.n, logits.catalogue)
    only = question.targets[:, None][:, :0] if question.only is None else question.only
    _within(question.targets.clamp_min(0), frame.catalogue - 1, "targets")
    lists = [
        _within(ids, frame.catalogue, "ids").long().contiguous() for ids in (question.mass_of, question.banned, only)
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
    shares = deal(frame.rows, frame.catalogue, torch.get_num_threads())
    _in_parallel(len(shares), lambda worker: _rank(frame, struct, shares[worker]))
    return found


def _rank(frame: Frame, struct: native.QuestionStruct, tiles: Sequence[slice]) -> None:
    """One worker's tiles of a ranking."""
    if not tiles:
        return
    memory = tile_memory(tiles[0].stop - tiles[0].start, frame.catalogue)
    desk = torch.zeros(_library().abaca_answer_bytes(frame.struct, struct), dtype=torch.uint8)
    for rows in tiles:
        queries = frame.queries[rows]
        tile = torch.mm(queries, frame.table.T, out=memory[: len(queries)])
        _library().abaca_answer_rows(
            frame.struct, struct, rows.start, len(queries), tile.data_ptr(), tile.stride(0), desk.data_ptr()
        )


def deal(rows: int, catalogue: int, workers: int) -> list[list[slice]]:
    """Which tiles each worker does, at most so many workers; one without tiles where there are no rows."""
    height = max(FEWEST_ROWS, min(TILE_ROWS, TILE_BYTES // (4 * catalogue), -(-rows // workers)))
    tiles = [slice(start, min(start + height, rows)) for start in range(0, rows, height)]
    return [tiles[worker::workers] for worker in range(min(workers, len(tiles)))] or [[]]


def _in_parallel(workers: int, work: Callable[[int], None]) -> None:
    """Call `work(0)` … `work(workers − 1)`, each in a thread of its own in which torch uses no further threads."""
    if workers == 1 and torch.get_num_threads() == 1:
        return work(0)
    threads, inference, failures = torch.get_num_threads(), torch.is_inference_mode_enabled(), []

    def run(worker: int) -> None:
        torch.set_num_threads(1)  # holds for the calling thread
        try:
            with torch.inference_mode(inference), torch.no_grad():
                work(worker)
        except BaseException as error:
            failures.append(error)

    others = [threading.Thread(target=run, args=(worker,)) for worker in range(1, workers)]
    for thread in others:
        thread.start()
    run(0)
    for thread in others:
        thread.join()
    torch.set_num_threads(threads)
    if failures:
        raise failures[0]
    return None


def _library() -> ctypes.CDLL:
    library = native.library()
    assert library is not None, "takes() says no without a library"
    return library


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def _within(index: Tensor, most: int, name: str) -> Tensor:
    """Check that the library will not read outside of what it is given."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) > most):
        raise ValueError(f"got {name} from {int(index.min())} to {int(index.max())}, expected 0 to {most}")
    return index

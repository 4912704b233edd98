"""Logits as the native library reads them, and what both of its forms need to call it from several threads."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from abaca.nn import native

if TYPE_CHECKING:
    from abaca.nn.logits import Logits


class Frame:
    """Logits as the library reads them. Keeps alive what the structure points to."""

    def __init__(self, logits: "Logits") -> None:
        ids, owner, reach, values = logits.overrides
        self.catalogue = logits.catalogue
        self.bases = [query.contiguous() for query in logits.queries.detach().unbind(1)]  # each (N, D)
        self.table = logits.table.detach().contiguous()  # (V, D)
        self.values = values.detach().contiguous()  # (N, K)
        self.levels = [level.query.detach().contiguous() for level in logits.levels]  # each (N, D)
        self.ids = within(ids, self.catalogue, "ids").long().contiguous()  # (B, K)
        self.owner = within(owner, len(ids) - 1, "owner").long().contiguous()  # (N,)
        self.reach = reach.long().contiguous()  # (N,)
        self.sizes = [min(level.k, self.catalogue) for level in logits.levels]
        self.struct = native.LogitsStruct(
            self.catalogue,
            self.table.shape[1],
            ids.shape[1],
            len(self.levels),
            self.table.data_ptr(),
            *(index.data_ptr() for index in (self.ids, self.owner, self.reach)),
            self.values.data_ptr(),
            (ctypes.c_int64 * len(self.sizes))(*self.sizes),
            pointers(self.levels),
            native.mode() == "portable",
        )

    @property
    def queries(self) -> Tensor:
        """The base queries where there is one for each row (N, D)."""
        (only,) = self.bases
        return only

    @property
    def rows(self) -> int:
        return self.bases[0].shape[0]


class Loss:
    """What the loss of each row needs and gives, as the library reads it; gradients where they are wanted."""

    def __init__(self, frame: Frame, targets: Tensor, weights: Tensor, wanted: bool) -> None:
        if len(targets) != frame.rows or len(weights) != frame.rows:
            raise ValueError(f"got {len(targets)} targets and {len(weights)} weights, expected {frame.rows}")
        self.targets = within(targets, frame.catalogue - 1, "targets").long().contiguous()
        self.weights = weights.detach().to(torch.float32).contiguous()
        self.losses = torch.empty(frame.rows, dtype=torch.float64)
        self.wanted = wanted
        self.struct = native.LossStruct(self.targets.data_ptr(), self.weights.data_ptr(), self.losses.data_ptr())
        if wanted:
            self.scale = torch.empty(frame.rows)
            self.values = torch.empty_like(frame.values)
            self.levels = [torch.empty_like(level) for level in frame.levels]
            self.struct.scale = self.scale.data_ptr()
            self.struct.grad_values = self.values.data_ptr()
            self.struct.grad_queries = pointers(self.levels)


def can_read(*tensors: Tensor) -> bool:
    """Whether the library can work on these: float32, on the CPU, nobody traces, and there is a library to call."""
    fits = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return fits and not torch.compiler.is_compiling() and native.mode() is not None


def in_parallel(workers: int, work: Callable[[int], None]) -> None:
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


def shared_out(windows: int, floats: int, work: Callable[[int, int, Tensor], None]) -> None:
    """Let as many workers as torch has threads do some of the windows each: the first, how many, memory of its own."""
    workers = max(1, min(torch.get_num_threads(), windows))
    size = -(-windows // workers)

    def part(worker: int) -> None:
        first = worker * size
        work(first, max(0, min(size, windows - first)), torch.empty(floats))

    in_parallel(workers, part)


def window_at(first: int, *tensors: Tensor | None) -> list[int | None]:
    """Where a window of each contiguous tensor (windows, …) begins; None for none."""
    return [None if x is None else x.data_ptr() + first * x.stride(0) * x.element_size() for x in tensors]


def library() -> ctypes.CDLL:
    library = native.library()
    assert library is not None, "takes() says no without a library"
    return library


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def within(index: Tensor, most: int, name: str) -> Tensor:
    """Check that the library will not read outside of what it is given."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) > most):
        raise ValueError(f"got {name} from {int(index.min())} to {int(index.max())}, expected 0 to {most}")
    return index

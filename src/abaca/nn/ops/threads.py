"""Threads for native code: each runs in a thread of its own, in which torch uses no further ones."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor


def in_parallel(workers: int, work: Callable[[int], None]) -> None:
    """Call `work(0)` … `work(workers − 1)`, each in a thread of its own."""
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


def parallel_over_windows(windows: int, floats: int, work: Callable[[int, int, Tensor], None]) -> None:
    """Call `work(first, count, memory)` for consecutive parts of the windows, one part per thread of torch.

    `memory` has room for `floats` numbers and belongs to the thread.
    """
    workers = max(1, min(torch.get_num_threads(), windows))
    size = -(-windows // workers)

    def part(worker: int) -> None:
        first = worker * size
        work(first, max(0, min(size, windows - first)), torch.empty(floats))

    in_parallel(workers, part)

"""Windows of training targets, and batches of windows without wasted padding.

A window trains `targets` consecutive targets of one user and has up to `overlap` leading inputs without loss. Every
training target stands in exactly one window of an epoch; the boundaries are redrawn each epoch. What an epoch holds,
and in which order, depends on (seed, epoch) alone, so a resumed run needs only the number of the next step.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abaca.types import PAD

Ints = npt.NDArray[np.int64]

SORTED_TOGETHER = 64
"""Windows of about this many batches are sorted by length before they are cut into batches."""


class Batch(NamedTuple):
    """Windows of similar length, oldest item first, PAD after their end."""

    items: Ints  # (B, L)
    positions: Ints  # (B, T) where a prediction is made: the last input it may see; PAD for none
    targets: Ints  # (B, T) the item that follows; PAD for none


class Windows(NamedTuple):
    """Windows as ranges of the flat item array: inputs [start, end − 1), targets [first, end)."""

    start: Ints
    first: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def take(self, index: Ints) -> "Windows":
        return Windows(self.start[index], self.first[index], self.end[index])


def draw_windows(begin: Ints, end: Ints, targets: int, overlap: int, rng: np.random.Generator) -> Windows:
    """Cut each user's targets `begin + 1 … end − 1` into windows; boundaries are random where there are several."""
    count = np.maximum(end - begin - 1, 0)  # targets per user
    keep = count > 0
    begin, end, count = begin[keep], end[keep], count[keep]
    lead = np.where(count > targets, rng.integers(1, targets + 1, size=len(count)), np.minimum(count, targets))
    windows = 1 + -(-(count - lead) // targets)  # per user
    user = np.repeat(np.arange(len(count)), windows)
    number = np.arange(len(user)) - np.repeat(np.cumsum(windows) - windows, windows)
    first = begin[user] + 1 + np.where(number > 0, lead[user] + (number - 1) * targets, 0)
    stop = np.minimum(begin[user] + 1 + lead[user] + number * targets, end[user])
    return Windows(np.maximum(begin[user], first - 1 - overlap), first, stop)


def order_batches(windows: Windows, batch_targets: int, rng: np.random.Generator) -> list[Ints]:
    """Window numbers of each batch: about `batch_targets` targets, similar lengths together, in random order."""
    if not len(windows):
        return []
    order = rng.permutation(len(windows))
    trained = (windows.end - windows.first)[order]
    length = (windows.end - windows.start)[order]
    block = (np.cumsum(trained) - trained) // (batch_targets * SORTED_TOGETHER)
    order = order[np.lexsort((length, block))]
    trained = (windows.end - windows.first)[order]
    batch = (np.cumsum(trained) - trained) // batch_targets
    batches = np.split(order, np.flatnonzero(np.diff(batch)) + 1)
    return [batches[i] for i in rng.permutation(len(batches))]


def make_batch(items: npt.NDArray[np.int32], windows: Windows) -> Batch:
    """Read windows from the flat item array."""
    length = windows.end - 1 - windows.start  # inputs per window
    trained = windows.end - windows.first
    step = np.arange(length.max())
    inside = step < length[:, None]
    inputs = np.where(inside, items[np.where(inside, windows.start[:, None] + step, 0)], PAD)
    turn = np.arange(trained.max())
    wanted = turn < trained[:, None]
    positions = np.where(wanted, (windows.first - 1 - windows.start)[:, None] + turn, PAD)
    targets = np.where(wanted, items[np.where(wanted, windows.first[:, None] + turn, 0)], PAD)
    return Batch(inputs.astype(np.int64), positions, targets.astype(np.int64))


class Epochs(NamedTuple):
    """The batches of any epoch."""

    items: npt.NDArray[np.int32]
    begin: Ints  # first training row of each user
    end: Ints  # one after the last
    targets: int
    overlap: int
    batch_targets: int
    seed: int

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """Batches of an epoch, from number `skip` on."""
        windows, order = self._plan(epoch)
        for index in order[skip:]:
            yield make_batch(self.items, windows.take(index))

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return len(self._plan(epoch)[1])

    def _plan(self, epoch: int) -> tuple[Windows, list[Ints]]:
        rng = np.random.default_rng([self.seed, epoch])
        windows = draw_windows(self.begin, self.end, self.targets, self.overlap, rng)
        return windows, order_batches(windows, self.batch_targets, rng)


def history_batches(
    histories: list[npt.NDArray[np.int64]], window: int, size: int
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """The last `window` items of each history, equal lengths together: numbers (B,), items (B, L), positions (B, 1)."""
    if not histories:
        return
    lengths = np.array([min(len(history), window) for history in histories], dtype=np.int64)
    end = np.cumsum(lengths)
    items = np.concatenate([*(history[-window:] for history in histories), [PAD]])  # never empty
    yield from stretch_batches(items, end - lengths, end, window, size)


def stretch_batches(
    items: npt.NDArray[np.integer], begin: Ints, end: Ints, window: int, size: int
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """The same of histories that are stretches of one array: history i is items[begin[i] : end[i]]."""
    lengths = np.minimum(end - begin, window)
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        longest = max(1, int(lengths[numbers[-1]]))
        if lengths[numbers[0]] == longest:  # so are all of them
            rows = np.lib.stride_tricks.sliding_window_view(items, longest)[end[numbers] - longest]
            yield numbers, rows.astype(np.int64), lengths[numbers, None] - 1
            continue
        steps = np.arange(longest)
        inside = steps < lengths[numbers, None]  # (B, L)
        places = np.where(inside, (end - lengths)[numbers, None] + steps, 0)
        yield numbers, np.where(inside, items[places], PAD).astype(np.int64), lengths[numbers, None] - 1

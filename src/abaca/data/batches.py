"""Windows of training targets, and batches of windows without wasted padding.

A window trains `targets` consecutive targets of one user and has up to `overlap` leading inputs without loss. Every
training target is in exactly one window of an epoch; the boundaries are redrawn each epoch. What an epoch holds,
and in which order, depends on (seed, epoch) alone, so a resumed run needs only the number of the next step.

Processes that train together share the windows of each batch out. A log with more windows than BLOCK is shuffled in
two levels, so that memory does not grow with it: segments of neighbouring users are put into blocks at random, and the
windows of a block are then shuffled as a small log is.

Where the order of a log says little, what comes soon is as good a target as what comes next. So a share of the targets,
`ahead`, are one of the items up to FARTHEST places after the next, d places with a weight of 1 / (d + 1).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abaca.histories import Floats, Histories, Ints, Windows
from abaca.types import PAD

Arrays = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Weights = npt.NDArray[np.float32]

SORTED_TOGETHER = 64
"""Windows of about this many batches are sorted by length before they are cut into batches."""
BLOCK = 1 << 22
"""Windows that are shuffled together, about; cutting them into batches takes 0.5 GB."""
SEGMENT = 1 << 10
"""Neighbouring users that are in one block."""
FARTHEST = 3
"""Places after the next item that a target may be ahead."""


class Batch(NamedTuple):
    """Windows of similar length, oldest item first, PAD after their end."""

    windows: Windows[Arrays]
    targets: Ints  # (B, T) the item that follows each position; PAD for none
    weights: Weights | None = None  # (B, T) of each target in the loss; None where all are alike
    step: "WholeStep | None" = None  # of all processes; None where one process trains alone

    @property
    def total(self) -> int:
        """The number of the step's targets, over all processes."""
        return int((self.targets >= 0).sum()) if self.step is None else self.step.total

    @property
    def weight(self) -> float:
        """The sum of their weights."""
        if self.step is None:
            return self.total if self.weights is None else float(self.weights.sum(dtype=np.float64))
        return self.step.weight


class WholeStep(NamedTuple):
    """The batch of a step, which several processes share out."""

    total: int  # targets
    weight: float  # the sum of their weights
    items: Ints  # inputs and targets, in any order


class Ranges(NamedTuple):
    """Windows as ranges of the flat arrays: inputs [start, end − 1), targets [first, end)."""

    start: Ints
    first: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def take(self, index: Ints) -> "Ranges":
        return Ranges(self.start[index], self.first[index], self.end[index])

    @property
    def inputs(self) -> Ints:
        """The rows that are inputs, a window after the other."""
        return rows_between(self.start, self.end - 1)

    @property
    def trained(self) -> Ints:
        """The rows that are targets, a window after the other."""
        return rows_between(self.first, self.end)


def rows_between(begin: Ints, end: Ints) -> Ints:
    """The numbers from each begin to before its end, one stretch after another."""
    lengths = end - begin
    rows: Ints = np.arange(lengths.sum()) + np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    return rows


def draw_windows(begin: Ints, end: Ints, targets: int, overlap: int, rng: np.random.Generator) -> Ranges:
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
    return Ranges(np.maximum(begin[user], first - 1 - overlap), first, stop)


def order_batches(
    windows: Ranges, batch_targets: int, rng: np.random.Generator, counts: Ints | None = None
) -> list[Ints]:
    """Window numbers of each batch: about `batch_targets` targets, similar lengths together, in random order.

    `counts` has the number of targets of each window where not all of its rows are targets.
    """
    if not len(windows):
        return []
    counts = windows.end - windows.first if counts is None else counts
    order = rng.permutation(len(windows))
    trained = counts[order]
    length = (windows.end - windows.start)[order]
    block = (np.cumsum(trained) - trained) // (batch_targets * SORTED_TOGETHER)
    order = order[np.lexsort((length, block))]
    trained = counts[order]
    batch = (np.cumsum(trained) - trained) // batch_targets
    batches = np.split(order, np.flatnonzero(np.diff(batch)) + 1)
    return [batches[i] for i in rng.permutation(len(batches))]


def draw_ahead(
    windows: Ranges, share: float, rng: np.random.Generator, types: npt.NDArray[np.uint8] | None = None
) -> Ints:
    """The rows that are targets, a window after the other: for a share of them a later row of window and type."""
    rows = windows.trained
    weight = 1 / np.arange(2, FARTHEST + 2)
    later = rows + rng.choice(np.arange(1, FARTHEST + 1), size=len(rows), p=weight / weight.sum())
    there = (rng.random(len(rows)) < share) & (later < np.repeat(windows.end, windows.end - windows.first))
    if types is not None:
        there[there] = types[rows[there]] == types[later[there]]
    return np.where(there, later, rows)


def make_batch(
    items: npt.NDArray[np.int32],
    times: Floats | None,
    windows: Ranges,
    types: npt.NDArray[np.uint8] | None = None,
    type_weights: Weights | None = None,
    drawn: Ints | None = None,
) -> Batch:
    """Read windows from the flat arrays; the moment of a prediction is the time of its target.

    With weights by type, rows of a type without weight are no targets. `drawn` has the rows that are targets, a window
    after the other, where they are not the next ones.
    """
    step = np.arange((windows.end - 1 - windows.start).max(initial=0))
    inside = step < (windows.end - 1 - windows.start)[:, None]  # (B, L)
    read = np.where(inside, windows.start[:, None] + step, 0)
    turn = np.arange((windows.end - windows.first).max(initial=0))
    asked = turn < (windows.end - windows.first)[:, None]  # (B, T)
    positions = np.where(asked, (windows.first - 1 - windows.start)[:, None] + turn, PAD)
    trained = np.zeros(asked.shape, dtype=np.int64)
    trained[asked] = windows.trained if drawn is None else drawn
    weights = None
    if types is not None and type_weights is not None:
        weights = np.where(asked, type_weights[types[trained]], np.float32(0))
        kept = np.argsort(weights == 0, axis=1, kind="stable")[:, : (weights > 0).sum(1).max(initial=0)]
        positions, trained, weights = (np.take_along_axis(part, kept, 1) for part in (positions, trained, weights))
        asked = weights > 0
        positions = np.where(asked, positions, PAD)
        weights = None if len(np.unique(type_weights[type_weights > 0])) == 1 else weights
    inputs, targets = (
        np.where(there, items[at], PAD).astype(np.int64) for there, at in ((inside, read), (asked, trained))
    )
    moments = (None, None) if times is None else (times[read], times[trained])
    read_types = None if types is None else types[read].astype(np.int64)
    return Batch(Windows(inputs, positions, moments[0], moments[1], read_types), targets, weights)


class Replay(NamedTuple):
    """Training goes on with new rows: an epoch has every window with a new target, and a sample of the others."""

    is_new: npt.NDArray[np.bool_]  # (n,) whether each row is new
    share: float
    """The share of the other windows that an epoch has, drawn anew each time."""

    def kept(self, windows: Ranges, rng: np.random.Generator) -> Ints:
        """The numbers of the windows that an epoch has."""
        before = np.concatenate([[0], np.cumsum(self.is_new)])
        new = before[windows.end] > before[windows.first]
        return np.flatnonzero(new | (rng.random(len(windows)) < self.share))


class Epochs(NamedTuple):
    """The batches of any epoch."""

    items: npt.NDArray[np.int32]
    times: Floats | None
    begin: Ints  # first training row of each user
    end: Ints  # one after the last
    targets: int
    overlap: int
    batch_targets: int
    seed: int
    types: npt.NDArray[np.uint8] | None = None
    type_weights: Weights | None = None  # (K,) of each type in the loss; None where all are alike
    replay: "Replay | None" = None
    ahead: float = 0.0  # share of the targets that are ahead of the next item

    def batches(self, epoch: int, skip: int = 0, rank: int = 0, size: int = 1) -> Iterator[Batch]:
        """Batches of an epoch, from number `skip` on; of `size` processes each has its share of every batch."""
        for number, segments in enumerate(blocks := self._blocks(epoch)):
            windows, order = self._plan(epoch, segments, number if len(blocks) > 1 else None)
            for place in range(skip, len(order)):
                taken, drawn = windows.take(order[place]), None
                if self.ahead:
                    rng = np.random.default_rng([self.seed, epoch, number, place])
                    drawn = draw_ahead(taken, self.ahead, rng, self.types)
                yield self._batch(taken, drawn, rank, size)
            skip = max(0, skip - len(order))

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has."""
        blocks = self._blocks(epoch)
        plans = (self._plan(epoch, each, number if len(blocks) > 1 else None) for number, each in enumerate(blocks))
        return sum(len(order) for _, order in plans)

    def _blocks(self, epoch: int) -> list[Ints]:
        """The numbers of the segments of each block; one block where the log is small."""
        first = np.arange(0, len(self.begin), SEGMENT)
        last = np.minimum(first + SEGMENT, len(self.begin)) - 1
        windows = SEGMENT + (self.end[last] - self.begin[first]) // self.targets  # at most
        if windows.sum() <= BLOCK:
            return [np.arange(len(first))]
        order = np.random.default_rng([self.seed, epoch]).permutation(len(first))
        block = (np.cumsum(windows[order]) - windows[order]) // BLOCK
        return [np.sort(part) for part in np.split(order, np.flatnonzero(np.diff(block)) + 1)]

    def _plan(self, epoch: int, segments: Ints, number: int | None) -> tuple[Ranges, list[Ints]]:
        """The windows of a block, and those of each of its batches."""
        rng = np.random.default_rng([self.seed, epoch] if number is None else [self.seed, epoch, number])
        users = rows_between(segments * SEGMENT, np.minimum((segments + 1) * SEGMENT, len(self.begin)))
        begin, end = np.asarray(self.begin[users]), np.asarray(self.end[users])
        windows, counts = draw_windows(begin, end, self.targets, self.overlap, rng), None
        if self.types is not None and self.type_weights is not None:
            before = np.cumsum((self.type_weights > 0)[self.types[windows.trained]])
            ends = np.cumsum(windows.end - windows.first) - 1
            counts = np.diff(before[ends], prepend=0) if len(ends) else ends
            windows, counts = windows.take(np.flatnonzero(counts)), counts[counts > 0]
        if self.replay is not None:
            kept = self.replay.kept(windows, rng)
            windows, counts = windows.take(kept), None if counts is None else counts[kept]
        return windows, order_batches(windows, self.batch_targets, rng, counts)

    def _batch(self, windows: Ranges, drawn: Ints | None, rank: int, size: int) -> Batch:
        """The share of a batch; every `size`-th window, since neighbours have similar lengths."""
        if size == 1:
            return make_batch(self.items, self.times, windows, self.types, self.type_weights, drawn)
        share, mine = windows.take(np.arange(rank, len(windows), size)), None
        if drawn is not None:
            mine = drawn[np.repeat(np.arange(len(windows)) % size == rank, windows.end - windows.first)]
        batch = make_batch(self.items, self.times, share, self.types, self.type_weights, mine)
        return batch._replace(step=self._whole(windows, drawn))

    def _whole(self, windows: Ranges, drawn: Ints | None) -> WholeStep:
        trained = windows.trained if drawn is None else drawn
        weights = np.ones(len(trained), dtype=np.float32)
        if self.types is not None and self.type_weights is not None:
            weights = self.type_weights[self.types[trained]]
            if len(np.unique(self.type_weights[self.type_weights > 0])) == 1:
                weights = np.where(weights > 0, np.float32(1), np.float32(0))
        trained, weights = trained[weights > 0], weights[weights > 0]
        items = self.items[np.concatenate([windows.inputs, trained])].astype(np.int64)
        return WholeStep(len(trained), float(weights.sum(dtype=np.float64)), items)


def last_windows(histories: Histories, length: int, size: int) -> Iterator[tuple[Ints, Windows[Arrays]]]:
    """The last `length` items of each history, at most `size` together, equal lengths together.

    Gives the numbers of the histories (B,) and their windows, each with one position: its last. Empty histories are
    left out.
    """
    lengths = np.minimum(histories.lengths, length)
    order = np.argsort(lengths, kind="stable")
    order = order[np.searchsorted(lengths[order], 1) :]
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        steps = np.arange(lengths[numbers[-1]])
        inside = steps < lengths[numbers, None]  # (B, L)
        places = np.where(inside, (histories.offsets[numbers + 1] - lengths[numbers])[:, None] + steps, 0)
        items = np.where(inside, histories.items[places], PAD)
        times = None if histories.times is None else histories.times[places]
        now = None if histories.now is None else histories.now[numbers, None]
        types = None if histories.types is None else histories.types[places]
        yield numbers, Windows(items, lengths[numbers, None] - 1, times, now, types)

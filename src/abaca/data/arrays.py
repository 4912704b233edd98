"""The flat arrays of a prepared folder, written and renumbered piece by piece, never held whole."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from numpy.lib.format import open_memmap

from abaca.data.engine import Ints

PIECE = 1_000_000
"""Interactions that are in memory at once."""


def write_ordered(
    batches: Iterable[pyarrow.RecordBatch], folder: Path, size: int, *, timed: bool, typed: bool = False
) -> None:
    """Write the item codes, and times and types where there are any, in the order of an engine."""
    kinds = [("items.npy", np.int32, True), ("times.npy", np.float64, timed), ("events.npy", np.uint8, typed)]
    columns = {
        place: _new_array(folder / name, dtype, size) for place, (name, dtype, there) in enumerate(kinds) if there
    }
    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        for place, array in columns.items():
            array[start:stop] = batch.column(place).to_numpy()
        start = stop
    assert start == size, (start, size)
    for array in columns.values():
        array.flush()


def _new_array(file: Path, dtype: type, size: int) -> "np.memmap[Any, Any]":
    """A mapped array with its disk space reserved: a full disk later would be a crash."""
    array = open_memmap(file, mode="w+", dtype=dtype, shape=(size,))
    if hasattr(os, "posix_fallocate"):
        try:
            with file.open("r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from error
    return array


def training_counts(folder: Path, offsets: Ints, train_end: Ints, codes: int) -> tuple[Ints, Ints]:
    """How often each item code occurs, and how often in training."""
    items = np.load(folder / "items.npy", mmap_mode="r")
    everywhere, training = np.zeros(codes, np.int64), np.zeros(codes, np.int64)
    for first, last in _pieces(offsets):
        begin, end = offsets[first], offsets[last]
        piece = items[begin:end]
        ends = np.repeat(train_end[first:last], np.diff(offsets[first : last + 1]))  # (end − begin,)
        everywhere += np.bincount(piece, minlength=codes)
        training += np.bincount(piece[np.arange(begin, end) < ends], minlength=codes)
    return everywhere, training


def keep_only(folder: Path, kept: npt.NDArray[np.bool_]) -> None:
    """Leave interactions out of the arrays."""
    for file in (folder / name for name in ("items.npy", "times.npy", "events.npy")):
        if file.exists():
            left = np.load(file, mmap_mode="r")[kept]
            np.save(file, left, allow_pickle=False)


def item_order(everywhere: Ints, training: Ints, held: npt.NDArray[np.bool_]) -> Ints:
    """The codes by item index: held-out items last; each part by training interactions, most first, ties by id."""
    present = np.flatnonzero(everywhere)
    return present[np.lexsort((-training[present], held[present]))]


def renumber(folder: Path, order: Ints, codes: int) -> None:
    """Replace item codes by item indices, in place."""
    items = np.load(folder / "items.npy", mmap_mode="r+")
    index = np.full(codes, -1, np.int32)
    index[order] = np.arange(len(order), dtype=np.int32)
    for start in range(0, len(items), PIECE):
        items[start : start + PIECE] = index[items[start : start + PIECE]]
    items.flush()


def _pieces(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Runs of users [first, last) with about PIECE interactions each."""
    users, first = len(offsets) - 1, 0
    while first < users:
        last = int(np.searchsorted(offsets, offsets[first] + PIECE, side="right")) - 1
        last = min(max(last, first + 1), users)
        yield first, last
        first = last

"""Which items a history holds, for many histories at once."""

import numpy as np

from abaca.evaluation.metrics import Bools, Ints

CELLS_PER_ITEM = 96
"""As many cells of a table can be cleared and read in the time that it takes to sort one item of a history."""
MOST_HELD = 1 << 25
"""Cells of that table at most: 32 MB."""


def known_items(histories: list[np.ndarray], catalogue: int) -> list[np.ndarray]:
    """Leave cold items out of histories."""
    if np.concatenate(histories).max(initial=0) < catalogue:
        return histories
    return [np.asarray(history[history < catalogue]) for history in histories]


def in_history(histories: list[np.ndarray], items: np.ndarray) -> Bools:
    """Tell which items (T, m) are in the history of their row; −1 is in none."""
    base = 1 + max(int(items.max(initial=0)), int(np.concatenate(histories).max(initial=0)))
    held = holdings(histories, base)
    if held is not None:
        return np.asarray(held[np.arange(len(items))[:, None], items] & (items >= 0))
    known = sorted_keys(histories, base)
    keys = np.arange(len(items))[:, None] * base + items
    found = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys if len(known) else False
    return np.asarray(found & (items >= 0))


def holdings(histories: list[np.ndarray], width: int) -> Bools | None:
    """Tell which of the items below `width` each history holds (T, width); None where a sort would be cheaper."""
    lengths = [len(history) for history in histories]
    if len(histories) * width > min(CELLS_PER_ITEM * sum(lengths), MOST_HELD):
        return None
    held = np.zeros((len(histories), width), dtype=bool)
    held[np.repeat(np.arange(len(histories)), lengths), np.concatenate(histories)] = True
    return held


def sorted_keys(histories: list[np.ndarray], width: int) -> Ints:
    """Row × width + item of every item, below `width`, of every history, ascending."""
    rows = np.repeat(np.arange(len(histories)), [len(history) for history in histories])
    return np.sort(rows * width + np.concatenate(histories))

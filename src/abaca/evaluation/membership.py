"""Which items histories hold, for many histories at once."""

import numpy as np

from abaca.evaluation.metrics import Bools
from abaca.histories import Histories, Ints


class Membership:
    """The distinct items of each history; items are below `width`."""

    def __init__(self, histories: Histories, width: int) -> None:
        self.count, self.width = len(histories), width
        self.keys: Ints = np.sort(histories.rows * width + histories.items)  # row × width + item, each once
        self.keys = self.keys[np.diff(self.keys, prepend=-1) > 0]

    def holds(self, items: np.ndarray) -> Bools:
        """Which items (B, m) are in the history of their row; a negative one is in none."""
        return self.contains(np.arange(self.count)[:, None], items)

    def contains(self, rows: Ints, items: np.ndarray) -> Bools:
        """Which items are in the histories of their rows."""
        asked = rows * self.width + items
        found = np.append(self.keys, -1)[np.searchsorted(self.keys, asked)] == asked
        return np.asarray(found & (items >= 0) & (items < self.width))

    def rectangle(self) -> Ints:
        """The distinct items of each history, ascending (B, X); `width` after their end."""
        rows, items = np.divmod(self.keys, self.width)
        count = np.bincount(rows, minlength=self.count)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        found = np.full((self.count, int(count.max(initial=0))), self.width, dtype=np.int64)
        found[rows, place] = items
        return found

"""What a ranker asks the model."""

import numpy as np
import pytest

from abaca.ranking import distinct


@pytest.mark.parametrize("catalogue", [50, 10**8])  # a table of all items, and too many of them for one
def test_every_item_of_a_history_stands_once(catalogue: int) -> None:
    rng = np.random.default_rng(0)
    histories = [rng.integers(0, 50, size).astype(np.int32) for size in rng.integers(1, 40, 30)]
    rows = distinct(histories, catalogue).tolist()
    width = max(len(set(history.tolist())) for history in histories)
    for row, history in zip(rows, histories, strict=True):
        own = sorted(set(history.tolist()))
        assert row == own + [catalogue] * (width - len(own))

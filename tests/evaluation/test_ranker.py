"""The items of histories that a ranker puts into its question, and a log with cold items."""

import numpy as np
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.evaluation.ranker import distinct


@pytest.mark.parametrize("catalogue", [50, 10**8])  # a table of all items, and too many of them for one
def test_every_item_of_a_history_stands_once(catalogue: int) -> None:
    rng = np.random.default_rng(0)
    histories = [rng.integers(0, 50, size).astype(np.int32) for size in rng.integers(1, 40, 30)]
    rows = distinct(histories, catalogue).tolist()
    width = max(len(set(history.tolist())) for history in histories)
    for row, history in zip(rows, histories, strict=True):
        own = sorted(set(history.tolist()))
        assert row == own + [catalogue] * (width - len(own))


@pytest.fixture(scope="module")
def with_cold(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    """Items that come after training ended stand among the histories and the targets; some users have no other."""
    rng = np.random.default_rng(3)
    rows = [
        (user, int(rng.integers(12)) + 20 * (time >= 10 and rng.random() < 0.4), time)
        for user in range(80)
        for time in sorted(rng.choice(30, int(rng.integers(2, 9)), replace=False).tolist())
    ]
    log = tmp_path_factory.mktemp("cold") / "log.csv"
    log.write_text("user,item,time\n" + "".join(f"{user},{item},{time}\n" for user, item, time in rows))
    options = PrepareOptions(min_user=1, split="time", valid_from=10, test_from=20)
    return prepare(read_log(log), log.parent / "sequences", options=options)


def test_the_log_with_cold_items_has_what_it_should(with_cold: Sequences) -> None:
    catalogue, test = with_cold.catalogue.size, with_cold.test
    histories = [with_cold.history(user, position) for user, position in zip(*test, strict=True)]
    assert (with_cold.items[test.positions] >= catalogue).any()
    assert any((history >= catalogue).any() and (history < catalogue).any() for history in histories)
    assert any(len(history) and (history >= catalogue).all() for history in histories)

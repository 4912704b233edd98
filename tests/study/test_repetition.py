"""The paper's counting, against a loop that reads like it."""

import math
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.synthetic import synthetic_log
from abaca.study.repetition import Repetition, Tally, repetition, wilson
from study.samples import sequences_of


def counted(histories: list[list[str]]) -> Repetition:
    """User by user, item by item."""
    found: dict[tuple[bool, int], list[int]] = {}
    for items in histories:
        seen, repeated = {items[0]}, False
        for length, item in enumerate(items[1:49], start=2):
            if length >= 3:
                tally = found.setdefault((repeated, length), [0, 0])
                tally[0] += 1
                tally[1] += item in seen
            repeated |= item in seen
            seen.add(item)
    lines = {had: tuple(Tally(n, *found[had, n]) for h, n in sorted(found) if h is had) for had in (True, False)}
    return Repetition(lines[True], lines[False])


def test_by_hand(tmp_path: Path) -> None:
    found = repetition(sequences_of({"a": "x y x z y", "b": "p q r", "c": "x x y"}, tmp_path))
    assert found.without_repeat == (Tally(3, 2, 1),)  # a: x again, b: r is new
    assert found.with_repeat == (Tally(3, 1, 0), Tally(4, 1, 0), Tally(5, 1, 1))  # c; then a: z is new, y again
    assert found.counts == (3, 2)


def test_it_counts_as_the_paper_does_in_a_log_and_when_prepared(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    histories = [[str(i) for i in rng.zipf(1.5, rng.integers(1, 80)) % 60] for _ in range(120)]
    users = [u for u, items in enumerate(histories) for _ in items]
    times = [n for items in histories for n in range(len(items))]
    rows = rng.permutation(len(users))
    columns = {"user": users, "item": [i for items in histories for i in items], "time": times}
    table = pyarrow.table({name: [values[row] for row in rows] for name, values in columns.items()})
    with read_log(table) as log:
        assert repetition(log) == counted(histories)
        sequences = prepare(log, tmp_path / "sequences", options=PrepareOptions(min_user=1))
    assert repetition(sequences) == counted(histories)


def test_a_log_can_be_read_again_afterwards() -> None:
    with read_log(synthetic_log("mixed", users=20, items=30, length=12, seed=1)) as log:
        assert repetition(log) == repetition(log)
        assert log.database.value("SELECT count(*) FROM log") == len(log)


def test_in_a_log_where_whoever_repeated_repeats_again_the_curves_are_apart() -> None:
    with read_log(synthetic_log("copy-after-repeat", users=200, items=50, length=30, seed=0)) as log:
        found = repetition(log)
    shares = [
        sum(t.repeats for t in line) / sum(t.count for t in line) for line in (found.with_repeat, found.without_repeat)
    ]
    assert shares[0] > 2 * shares[1]


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (1, 1), (3, 10), (0, 500), (499, 500)])
def test_wilsons_bounds_are_where_the_score_test_just_rejects(hits: int, count: int) -> None:
    estimate = wilson(hits, count)
    assert estimate.value == hits / count
    for bound in (estimate.low, estimate.high):
        if 0 < bound < 1:
            assert abs(estimate.value - bound) / math.sqrt(bound * (1 - bound) / count) == pytest.approx(1.959964)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_nothing_has_no_share() -> None:
    with pytest.raises(ValueError, match="got 0 of 0"):
        wilson(0, 0)

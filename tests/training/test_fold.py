"""Vectors of new items against a loop that reads like the formula."""

import numpy as np
import pytest
import torch

from abaca.histories import Histories
from abaca.training.fold import folded
from abaca.training.start import cooccurrences


def near(rows: list[list[int]], a: int, b: int) -> float:
    """N: 1/d over all pairs of the two items that stand d ≤ 5 apart."""
    return sum(
        1 / abs(i - j)
        for row in rows
        for i, first in enumerate(row)
        for j, second in enumerate(row)
        if first == a and second == b and 0 < abs(i - j) <= 5
    )


def test_a_new_item_is_the_mean_of_its_neighbours_without_their_popularity() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 9, 12).tolist() for _ in range(6)] + [[9]]  # item 9 stands near nothing
    table = torch.from_numpy(rng.normal(size=(7, 3)))
    known = np.array([3, 0, 1, -1, 2, 4, -1, 5, 6, -1])
    counts = np.bincount(np.concatenate(rows), minlength=10)
    found = folded(table, known, cooccurrences(Histories.of(rows), 10), counts)
    taken = {item: int(counts[item]) for item in range(10) if known[item] >= 0}
    usual = sum(count * table[known[item]] for item, count in taken.items()) / sum(taken.values())
    for item, before in enumerate(known.tolist()):
        if before >= 0:
            assert torch.equal(found[item], table[before])
            continue
        weights = [near(rows, item, other) if known[other] >= 0 else 0.0 for other in range(10)]
        if item == 9:
            expected = table.mean(dim=0)
        else:
            mean = sum(weight * table[known[other]] for other, weight in enumerate(weights)) / sum(weights)
            expected = table.mean(dim=0) + mean - usual
        torch.testing.assert_close(found[item], expected)


@pytest.mark.parametrize("known", [[0, 1, 2], [2, 0, 1]])
def test_without_new_items_only_the_order_changes(known: list[int]) -> None:
    table = torch.arange(6.0).view(3, 2)
    found = folded(table, np.array(known), cooccurrences(Histories.of([[0, 1, 2]]), 3), np.ones(3, dtype=np.int64))
    assert torch.equal(found, table[known])


def test_a_new_item_among_popular_ones_is_not_popular_itself() -> None:
    """Vectors hold popularity in one direction; a new item that stood near popular items at random has little of it."""
    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, 51)
    rows = [rng.choice(50, 20, p=chance / chance.sum()).tolist() for _ in range(200)]
    for row in rows[:40]:
        row[10] = 50
    table = torch.from_numpy(np.column_stack([np.log(chance), rng.normal(size=50)]))
    known = np.append(np.arange(50), -1)
    counts = np.bincount(np.concatenate(rows), minlength=51)
    found = folded(table, known, cooccurrences(Histories.of(rows), 51), counts)[50]
    assert abs(found[0] - table[:, 0].mean()) < 0.3  # the usual item's; that of its neighbours is far above
    assert table[:, 0] @ torch.from_numpy(counts[:50] / counts[:50].sum()) > table[:, 0].mean() + 1

"""Somebody else's recommendations: ranks counted by hand."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from abaca.data.sequences import Sequences
from abaca.errors import QueryError
from abaca.evaluation.lists import Lists

Row = tuple[object, object, float]


def targets_of(small: Sequences) -> list[tuple[object, object]]:
    users, positions = small.test
    pairs = zip(users.tolist(), positions.tolist(), strict=True)
    return [(small.user_ids[user], small.catalogue.ids[small.items[position]]) for user, position in pairs]


def write(path: Path, rows: list[Row], names: tuple[str, str, str]) -> Path:
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_a_target_has_the_place_that_it_has_in_its_users_list(small: Sequences, tmp_path: Path) -> None:
    """The first user has no list; the next have the target at places 1, 2, 3, 4, 1, …; ids are spelled as text."""
    targets = targets_of(small)
    rows: list[Row] = []
    for number, (user, item) in enumerate(targets[1:]):
        others = ["unknown", *(id for id in small.catalogue.ids if id != item)][: number % 4]
        rows += [(str(user), str(id), place) for place, id in enumerate([*others, item], 1)]
    lists = Lists.read(write(tmp_path / "a.parquet", rows[::-1], ("user_id", "item_id", "rank")), small)
    found = lists.evaluate(small, "test", (3,))
    assert found.rank.tolist() == [small.catalogue.size + 1, *(number % 4 + 1 for number in range(len(targets) - 1))]
    assert found.mean("hr@3") == pytest.approx((found.rank <= 3).mean())
    assert np.all(found.top[0] == -1)
    assert lists.without(small, "test") == [targets[0][0]]


def test_scores_order_a_list_and_the_first_of_two_equal_items_counts(small: Sequences, tmp_path: Path) -> None:
    (user, item), *_ = targets_of(small)
    other = next(id for id in small.catalogue.ids if id != item)
    rows: list[Row] = [(user, item, 0.1), (user, other, 0.5), (user, item, 0.4)]
    lists = Lists.read(write(tmp_path / "a.parquet", rows, ("user", "item", "score")), small)
    assert lists.evaluate(small, "test", (10,)).rank[0] == 2


def test_files_that_hold_no_lists_are_refused(small: Sequences, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="has the columns a, b, c; it needs user_id, item_id, and score or rank"):
        Lists.read(write(tmp_path / "a.parquet", [(1, 2, 3.0)], ("a", "b", "c")), small)
    with pytest.raises(QueryError, match="cannot be read as Parquet or CSV"):
        Lists.read(tmp_path / "nothing.csv", small)
    (tmp_path / "b.csv").write_text("user,item,score\n1,2,high\n")
    with pytest.raises(QueryError, match="the column of the score does not hold numbers"):
        Lists.read(tmp_path / "b.csv", small)

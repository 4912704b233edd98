"""Somebody else's recommendations: ranks counted by hand."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences, Targets
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


def test_shelves_are_those_of_the_list(small: Sequences, tmp_path: Path) -> None:
    """Of the places up to the target's, a repeat counts those with items of the history, a new target the others."""
    rng = np.random.default_rng(0)
    small = Sequences.open(small.path)
    early = np.arange(60) % 2 == 0  # a user's fourth item is new, the last is not
    small.test = Targets(small.test.users, np.where(early, small.offsets[:-1] + 3, small.test.positions))
    rows: list[Row] = []
    lists: list[list[int]] = []
    for user in small.test.users.tolist():
        order = rng.permutation(small.catalogue.size)[:25].tolist()
        lists.append(order)
        rows += [(small.user_ids[user], small.catalogue.ids[item], place // 2) for place, item in enumerate(order)]
    read = Lists.read(write(tmp_path / "a.parquet", rows, ("user_id", "item_id", "rank")), small)
    found = read.evaluate(small, "test", (3,))
    listed = 0
    for number, (user, position) in enumerate(zip(*small.test, strict=True)):
        history, target = set(small.history(user, position).tolist()), int(small.items[position])
        if target not in lists[number]:
            assert found.shelf_rank[number] == small.catalogue.size + 1
            continue
        listed += 1
        before = lists[number][: 2 * (lists[number].index(target) // 2 + 1)]  # two share a place
        assert found.shelf_rank[number] == sum((item in history) == (target in history) for item in before)
    assert listed > 20
    assert len(set(found.repeat[found.rank <= small.catalogue.size])) == 2


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


def test_ids_of_a_csv_stay_as_they_are_spelled(tmp_path: Path) -> None:
    """007 is not 7: a CSV whose ids look like numbers finds the users and items of a log with such ids."""
    rows = [(f"{user:03}", f"{(user + step) % 6:04}", step) for user in range(6) for step in range(6)]
    log = {name: list(column) for name, column in zip(("user", "item", "time"), zip(*rows, strict=True), strict=True)}
    with read_log(pyarrow.table(log)) as read:
        sequences = prepare(read, tmp_path / "sequences")
    lines = [f"{user},{item},1\n" for user, item in targets_of(sequences)]
    (tmp_path / "a.csv").write_text("User_ID,item_id,rank\n" + "".join(lines))
    assert Lists.read(tmp_path / "a.csv", sequences).evaluate(sequences, "test", (1,)).mean("hr@1") == 1


def test_equal_scores_count_against_the_target(small: Sequences, tmp_path: Path) -> None:
    (user, item), (another, its), *_ = targets_of(small)
    others = [id for id in small.catalogue.ids if id not in (item, its)]
    rows: list[Row] = [(user, item, 0.5), (user, others[0], 0.5), (user, others[1], 0.7), (user, others[2], 0.5)]
    rows += [(user, others[3], 0.1), (another, its, 0.1)]
    lists = Lists.read(write(tmp_path / "a.parquet", rows, ("user", "item", "score")), small)
    assert lists.evaluate(small, "test", (10,)).rank[:2].tolist() == [4, 1]


@pytest.mark.parametrize(
    ("user", "item", "rank", "said"),
    [
        ("nobody", 1, 1, "has no user of the data, whose users are such as"),
        (b"1", 1, 1, "the column of the user holds binary; ids are text or whole numbers"),
        (1, 1.0, 1, "the column of the item holds double"),
        (1, [1], 1, "the column of the item holds list"),
        (1, True, 1, "the column of the item holds bool"),
        (1, 1, float("nan"), "the column of the rank does not hold numbers in all rows"),
        (1, 1, datetime.date(2020, 1, 1), "the column of the rank does not hold numbers"),
    ],
)
def test_columns_that_hold_something_else_are_refused(
    small: Sequences, tmp_path: Path, user: object, item: object, rank: float, said: str
) -> None:
    with pytest.raises(QueryError, match=said):
        Lists.read(write(tmp_path / "a.parquet", [(user, item, rank)], ("user_id", "item_id", "rank")), small)


def test_a_column_that_stands_twice_is_refused(small: Sequences, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id,rank,user_id\n1,2,1,3\n")
    with pytest.raises(QueryError, match="has the column user_id twice"):
        Lists.read(tmp_path / "a.csv", small)

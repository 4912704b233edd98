"""Transitions and habits against loops that read like their formulas."""

import numpy as np
import pytest

from abaca.evidence.habits import EDGES, KINDS, MOST_ITEMS, OF_TYPES, Clock, codes, describe
from abaca.evidence.transitions import UNIT, Transitions
from abaca.histories import EventTypes, Histories

from . import formula

CATALOGUE = 12


def drawn(seed: int, count: int = 30, longest: int = 25) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, CATALOGUE, length).tolist() for length in rng.integers(1, longest, count)]


@pytest.mark.parametrize("fade", [1.0, 0.5])
def test_followers_are_those_of_the_formula(fade: float) -> None:
    rows, asked = drawn(0), drawn(1)
    found = Transitions.count(Histories.of(rows), CATALOGUE).after(Histories.of(asked), CATALOGUE, fade)
    for number, history in enumerate(asked):
        expected = formula.followers(rows, history, CATALOGUE, fade)
        got = np.zeros(CATALOGUE)
        got[found.items[found.rows == number]] = found.strength[found.rows == number]
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_counts_are_exact_in_any_order() -> None:
    rows = drawn(2)
    forward, backward = (Transitions.count(Histories.of(order), CATALOGUE) for order in (rows, rows[::-1]))
    assert np.array_equal(forward.units, backward.units)
    assert np.array_equal(forward.followers, backward.followers)
    assert forward.units.sum() == sum(
        UNIT // distance for row in rows for distance in range(1, 11) for _ in range(max(0, len(row) - distance))
    )


def test_only_the_strongest_followers_are_kept() -> None:
    transitions = Transitions.count(Histories.of([[0, 1, 2, 3]]), 4)
    found = transitions.after(Histories.of([[0]]), most=2)
    assert found.items.tolist() == [1, 2]
    np.testing.assert_allclose(found.strength, [1, 1 / 2])


@pytest.mark.parametrize("kind", KINDS)
def test_habits_are_those_of_the_formula(kind: str) -> None:
    rng = np.random.default_rng(3)
    asked = drawn(4)
    times = [np.cumsum(rng.integers(0, 90_000, len(history))).astype(float).tolist() for history in asked]
    now = [moment[-1] + float(rng.integers(0, 90_000)) for moment in times]
    histories = Histories.of(asked, times, now)
    owned = describe(histories, window=7, clock=Clock(1.0, True), kind=kind)
    seen = set()
    for place, (number, item) in enumerate(zip(owned.rows.tolist(), owned.items.tolist(), strict=True)):
        seen.add((number, item))
        moments = None if kind == "order" else times[number]
        expected = formula.habits(asked[number], item, 7, moments, now[number] if kind == "now" else None)
        assert set(expected) == set(KINDS[kind])
        for name, value in expected.items():
            assert owned.values[name][place] == pytest.approx(value), name
    assert seen == {(number, item) for number, history in enumerate(asked) for item in history}


def test_habits_of_types_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(5)
    asked = drawn(4)
    types = [rng.integers(0, 3, len(history)).tolist() for history in asked]
    known = EventTypes(("buy", "cart", "view"), (0, 1), 1)
    histories = Histories.of(asked, types=types)
    owned = describe(histories, window=7, clock=Clock(0.0, 0.0), kind="order", types=known)
    assert set(owned.values) == {*OF_TYPES, *KINDS["order"]}
    for place, (number, item) in enumerate(zip(owned.rows.tolist(), owned.items.tolist(), strict=True)):
        for name, value in formula.of_types(asked[number], item, types[number], known.targets).items():
            assert owned.values[name][place] == value, name
    untyped = describe(Histories.of(asked), window=7, clock=Clock(0.0, 0.0), kind="order", types=known)
    assert (untyped.values["type"] == known.usual).all()
    assert (untyped.values["taken"] == untyped.values["count"]).all()


def test_each_bucket_has_its_own_number() -> None:
    histories = Histories.of([[1, 2, 1, 3]])
    owned = describe(histories, window=50, clock=Clock(0.0, False), kind="order")
    found = codes(owned, KINDS["order"])  # items 1, 2, 3
    first = np.cumsum([0, *(len(EDGES[name]) + 1 for name in KINDS["order"])])
    assert (found >= first[:-1]).all()
    assert (found < first[1:]).all()
    assert (found - first[:-1])[0].tolist() == [1, 1, 0, 1 + 7, 1]  # twice; 2 ago; never after 3; rhythm 1; seen
    assert (found - first[:-1])[2].tolist() == [0, 0, 0, 0, 1]  # once; the latest


def test_a_long_history_keeps_its_latest_items() -> None:
    history = [*range(MOST_ITEMS + 50), 0]
    owned = describe(Histories.of([history]), window=50, clock=Clock(0.0, False), kind="order")
    assert sorted(owned.items.tolist()) == [0, *range(51, MOST_ITEMS + 50)]


def test_a_clock_tells_times_from_places() -> None:
    items = [[1, 2, 3, 4], [1, 2, 3]]
    assert Clock.of(Histories.of(items)).gap == 0
    assert Clock.of(Histories.of(items, [[0, 1, 2, 3], [0, 1, 3]])).gap == 0  # places, one of them left out
    days = Histories.of(items, [[1.6e9, 1.61e9, 1.63e9, 1.64e9], [1.6e9, 1.605e9, 1.62e9]])
    assert Clock.of(days).gap > 0
    assert Clock.of(days).second == 1
    milliseconds = Histories.of(items, [1000 * days.times[:4], 1000 * days.times[4:]])
    assert Clock.of(milliseconds).second == 1000
    assert not Clock.of(Histories.of(items, [[1, 3, 4, 9], [2, 7, 8]])).second


def test_hours_are_hours_in_any_unit() -> None:
    items, times, now = [[1, 2, 1]], [[0.0, 5_000.0, 86_400.0]], [2 * 86_400.0 + 60]
    found = []
    for second in (1.0, 1000.0):
        scaled = Histories.of(items, [[second * time for time in times[0]]], [second * now[0]])
        found.append(describe(scaled, window=7, clock=Clock(60 * second, second), kind="now").values)
    assert found[0]["hour"] == pytest.approx([1.0, np.exp(-0.5 * (4_940 / 5_400) ** 2)], abs=1e-3)
    for name, values in found[0].items():
        np.testing.assert_allclose(values, found[1][name], err_msg=name)


def test_what_can_be_known_follows_from_what_is_given() -> None:
    clock = Clock(60.0, True)
    with_times, with_now = Histories.of([[1, 2]], [[0, 9]]), Histories.of([[1, 2]], [[0, 9]], [12])
    assert [clock.kind(each) for each in (Histories.of([[1]]), with_times, with_now)] == ["order", "times", "now"]
    assert Clock(60.0, False).kind(with_now) == "times"
    assert Clock(0.0, False).kind(with_now) == "order"

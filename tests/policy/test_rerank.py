"""Lists of candidates under caps, floors, boosts and diversity, against plain loops."""

import math
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from abaca.policy.draft import Limits
from abaca.policy.rerank import POOL, Choice, Pools, rerank

REPEAT, NEW, FIRST = 0, 1, 2
"""Groups: repeats, new items, and from FIRST on the values of one column."""


@st.composite
def cases(draw: Any) -> tuple[list[float], list[int], list[bool], int]:
    """Logits, the value of each candidate (−1 for none), whether it is a repeat, and n."""
    size = draw(st.integers(0, 14))
    logits = sorted(draw(st.lists(st.floats(-5, 5, width=16), min_size=size, max_size=size)), reverse=True)
    values = draw(st.lists(st.integers(-1, 3), min_size=size, max_size=size))
    repeats = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return logits, values, repeats, draw(st.integers(1, 6))


def pool_of(logits: list[float], values: list[int], repeats: list[bool], **more: Any) -> Pools:
    """One list of candidates; a slot without a candidate follows."""
    groups = [
        [REPEAT if repeat else NEW, FIRST + 4 if value < 0 else FIRST + value]
        for value, repeat in zip(values, repeats, strict=True)
    ]
    boosts, vectors = more.get("boosts"), more.get("vectors")
    return Pools(
        np.array([[*logits, -math.inf]]),
        None if boosts is None else np.array([[*boosts, 0.0]]),
        np.array([[*groups, [NEW, FIRST + 4]]]),
        None if vectors is None else lambda _, places: np.array([*vectors, [0.0] * 3])[places],
    )


def only_list(pools: Pools, limits: Limits) -> Choice:
    (choice,) = rerank(pools, limits)
    return choice


def limits_of(
    n: int, most: dict[int, int] | None = None, least: dict[int, int] | None = None, strength: float = 0.0
) -> Limits:
    caps = np.full(FIRST + 5, 1000)
    for group, count in (most or {}).items():
        caps[group] = count
    return Limits(n, caps, least or {}, strength)


def counts(pool: Pools, places: list[int]) -> dict[int, int]:
    found = [group for place in places for group in pool.groups[0, place].tolist()]
    return {group: found.count(group) for group in range(FIRST + 4)}


@given(cases(), st.dictionaries(st.integers(FIRST, FIRST + 3), st.integers(0, 3)), st.integers(0, 6))
def test_caps_hold_and_the_list_is_as_long_as_they_allow(case: Any, of_values: dict[int, int], repeats: int) -> None:
    logits, values, repeated, n = case
    most = {REPEAT: repeats, **of_values}
    pool = pool_of(logits, values, repeated)
    choice = only_list(pool, limits_of(n, most))
    found = counts(pool, choice.places)
    assert all(found[group] <= count for group, count in most.items())
    assert len(choice.places) == len(set(choice.places)) == min(n, longest(values, repeated, most))
    assert choice.places == sorted(choice.places)  # by logit


def test_an_item_gives_way_to_two_others() -> None:
    """One repeat and one item of a value: the best item, both, would leave room for no other."""
    pool = pool_of([3.0, 2.0, 1.0], [0, 0, 1], [True, False, True])
    choice = only_list(pool, limits_of(2, {REPEAT: 1, FIRST: 1}))
    assert choice.places == [1, 2]
    assert [effect.removed for effect in choice.effects] == [[0]]


def test_a_floor_does_not_take_from_another() -> None:
    pool = pool_of([4.0, 3.0, 2.0, 1.0], [-1, -1, 0, 1], [False] * 4)
    choice = only_list(pool, limits_of(2, None, {FIRST: 1, FIRST + 1: 1}))
    assert choice.places == [2, 3]
    assert [(effect.removed, effect.moved) for effect in choice.effects] == [([1], [2]), ([0], [3])]


def longest(values: list[int], repeated: list[bool], most: dict[int, int]) -> int:
    """The length of the longest list: of each value as many new items as there may be, then repeats."""
    new = {value: sum(v == value and not r for v, r in zip(values, repeated, strict=True)) for value in range(-1, 4)}
    old = {value: sum(v == value and r for v, r in zip(values, repeated, strict=True)) for value in range(-1, 4)}
    caps = {value: most.get(FIRST + value, 1000) if value >= 0 else 1000 for value in new}
    first = {value: min(new[value], caps[value]) for value in new}
    rest = sum(min(old[value], caps[value] - first[value]) for value in new)
    return sum(first.values()) + min(rest, most[REPEAT])


@given(cases(), st.dictionaries(st.integers(FIRST, FIRST + 3), st.integers(0, 3)))
def test_by_score_each_item_is_taken_that_no_cap_bars(case: Any, most: dict[int, int]) -> None:
    """One column: the list is that of a loop which takes what fits."""
    logits, values, repeated, n = case
    taken: list[int] = []
    for place, value in enumerate(values):
        of_value = sum(values[other] == value for other in taken)
        if len(taken) < n and (value < 0 or of_value < most.get(FIRST + value, 1000)):
            taken.append(place)
    choice = only_list(pool_of(logits, values, repeated), limits_of(n, most))
    assert choice.places == taken
    removed = {place for effect in choice.effects for place in effect.removed}
    assert removed == {
        place for place in range(max(taken, default=-1) + 1 if len(taken) == n else len(values)) if place not in taken
    }


@given(cases(), st.dictionaries(st.integers(1, FIRST + 3), st.integers(1, 3), max_size=3))
def test_floors_hold_as_far_as_there_are_items(case: Any, least: dict[int, int]) -> None:
    logits, values, repeated, n = case
    assume(sum(least.values()) <= n)
    pool = pool_of(logits, values, repeated)
    choice = only_list(pool, limits_of(n, None, least))
    there, found = counts(pool, list(range(len(values)))), counts(pool, choice.places)
    for group, count in least.items():
        assert found[group] >= min(count, there[group])
    assert len(choice.places) == min(n, len(values))
    assert choice.places == sorted(choice.places)
    short = {effect.rule: effect.short for effect in choice.effects if effect.short}
    assert short == {group: count - found[group] for group, count in least.items() if found[group] < count}
    if all(count <= counts(pool, list(range(min(n, len(values)))))[group] for group, count in least.items()):
        assert choice.places == list(range(min(n, len(values))))  # floors that hold anyway change nothing


@given(
    cases(),
    st.dictionaries(st.integers(FIRST, FIRST + 3), st.integers(0, 2)),
    st.dictionaries(st.integers(1, FIRST + 3), st.integers(1, 6)),
)
def test_caps_go_before_floors(case: Any, most: dict[int, int], least: dict[int, int]) -> None:
    logits, values, repeated, n = case
    pool = pool_of(logits, values, repeated)
    choice = only_list(pool, limits_of(n, most, least))
    found = counts(pool, choice.places)
    assert all(found[group] <= count for group, count in most.items())
    assert len(choice.places) == len(only_list(pool, limits_of(n, most)).places)
    short = {effect.rule: effect.short for effect in choice.effects if effect.floor and effect.short}
    assert short == {
        group: min(count, n) - found[group] for group, count in least.items() if found[group] < min(count, n)
    }


@given(cases(), st.data())
def test_boosts_are_added_to_logits(case: Any, data: Any) -> None:
    logits, values, repeated, n = case
    boosts = np.array(data.draw(st.lists(st.floats(-3, 3, width=16), min_size=len(logits), max_size=len(logits))))
    choice = only_list(pool_of(logits, values, repeated, boosts=boosts), limits_of(n))
    expected = sorted(range(len(logits)), key=lambda place: -(logits[place] + boosts[place]))[:n]
    assert choice.places == expected
    moved = {place for effect in choice.effects for place in effect.moved}
    assert moved == {place for at, place in enumerate(expected) if place > at}


def vectors_of(size: int, seed: int) -> Any:
    rows = np.random.default_rng(seed).normal(size=(size, 3))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@given(cases(), st.floats(0.05, 1), st.integers(0, 5))
def test_diversity_is_maximal_marginal_relevance(case: Any, strength: float, seed: int) -> None:
    logits, values, repeated, n = case
    vectors = vectors_of(len(logits), seed)
    pool = pool_of(logits, values, repeated, vectors=vectors)
    pooled = list(range(min(len(logits), POOL * n)))
    span = (logits[0] - logits[pooled[-1]] or 1.0) if logits else 1.0
    taken: list[int] = []
    while len(taken) < min(n, len(logits)):
        gains = {
            place: (1 - strength) * (logits[place] - logits[pooled[-1]]) / span
            - (strength * max(vectors[place] @ vectors[other] for other in taken) if taken else 0)
            for place in pooled
            if place not in taken
        }
        best = max(gains.values())
        near = [place for place, gain in gains.items() if math.isclose(gain, best, abs_tol=1e-9)]
        assume(len(near) == 1 or not taken)
        taken.append(near[0])
    assert only_list(pool, limits_of(n, strength=strength)).places == taken


@given(
    cases(),
    st.floats(0.05, 1),
    st.dictionaries(st.integers(0, FIRST + 3), st.integers(0, 2)),
    st.dictionaries(st.integers(1, FIRST + 3), st.integers(1, 2)),
)
def test_diversity_keeps_to_caps_and_floors(
    case: Any, strength: float, most: dict[int, int], least: dict[int, int]
) -> None:
    logits, values, repeated, n = case
    vectors = vectors_of(len(logits), 1)
    pool = pool_of(logits, values, repeated, vectors=vectors)
    choice = only_list(pool, limits_of(n, most, least, strength))
    found = counts(pool, choice.places)
    assert all(found[group] <= count for group, count in most.items())
    assert len(set(choice.places)) == len(choice.places) <= n
    if not set(most) - {REPEAT, *range(FIRST, FIRST + 4)}:
        assert len(choice.places) == min(n, longest(values, repeated, {REPEAT: 1000, **most}))


@given(
    cases(),
    st.integers(0, 14),
    st.floats(0, 1),
    st.dictionaries(st.integers(0, FIRST + 3), st.integers(0, 2)),
    st.dictionaries(st.integers(1, FIRST + 3), st.integers(1, 2)),
)
def test_what_is_below_the_lowest_score_changes_nothing(
    case: Any, kept: int, strength: float, most: dict[int, int], least: dict[int, int]
) -> None:
    """A list of the first candidates that says so is the list of all candidates."""
    logits, values, repeated, n = case
    assume(len(set(logits)) == len(logits))
    vectors = vectors_of(len(logits), 2)
    limits = limits_of(n, most, least, strength)

    def of(size: int) -> Any:
        return only_list(pool_of(logits[:size], values[:size], repeated[:size], vectors=vectors), limits)

    some, every = of(min(kept, len(logits))), of(len(logits))
    if some.lowest > -math.inf:
        assert some.places == every.places

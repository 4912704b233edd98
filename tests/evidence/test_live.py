"""Live counts against counting all events at once."""

import random

import numpy as np
import pytest

from abaca.evidence.live import LiveCounts, LiveTransitions
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories

CATALOGUE = 8
Events = list[tuple[str, float, int]]


def drawn(seed: int, count: int = 200) -> Events:
    """Events of a few users; many have equal times."""
    rng = random.Random(seed)
    return [(f"u{rng.randrange(4)}", float(rng.randrange(40)), rng.randrange(CATALOGUE)) for _ in range(count)]


def counted(events: Events, since: float) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Pairs whose follower is later than `since`, and items: a loop over each user's events in the order of time."""
    pairs: dict[tuple[int, int], int] = {}
    counts = [0] * CATALOGUE
    for user in {event[0] for event in events}:
        row = sorted((event for event in events if event[0] == user), key=lambda event: event[1])
        for place, (_, time, item) in enumerate(row):
            if time > since:
                counts[item] += 1
                for distance in range(1, min(10, place) + 1):
                    pair = row[place - distance][2], item
                    pairs[pair] = pairs.get(pair, 0) + 2520 // distance
    return pairs, counts


def found(live: LiveCounts) -> tuple[dict[tuple[int, int], int], list[int]]:
    pairs = {(source, item): units for source, row in live.pairs.items() for item, units in row.items()}
    assert live.size == len(pairs)
    return pairs, live.counts[:CATALOGUE].tolist()


def test_events_count_the_same_whenever_they_arrive() -> None:
    for seed, since in ((0, None), (1, 20.0), (2, 35.0)):
        events = drawn(seed)
        live = LiveCounts(since)
        for user, time, item in events:
            live.add(user, time, item)
        assert found(live) == counted(events, -1.0 if since is None else since)


def test_forgetting_a_user_undoes_his_events() -> None:
    events, live, without = drawn(3), LiveCounts(15.0), LiveCounts(15.0)
    for event in events:
        live.add(*event)
        if event[0] != "u1":
            without.add(*event)
    live.forget("u1")
    live.forget("nobody")
    assert found(live) == found(without)
    assert live.events == without.events


def test_followers_are_those_of_all_rows_together() -> None:
    old, new = drawn(4), drawn(5)
    rows = {f"old {user}": [item for name, _, item in old if name == user] for user in ("u0", "u1", "u2", "u3")}
    base = Transitions.count(Histories.of(list(rows.values())), CATALOGUE)
    live = LiveCounts()
    transitions = LiveTransitions.of(base, live, CATALOGUE)
    for event in new:
        live.add(*event)
    new.sort(key=lambda event: event[1])
    both = [*rows.values(), *([item for name, _, item in new if name == user] for user in ("u0", "u1", "u2", "u3"))]
    expected = Transitions.count(Histories.of(both), CATALOGUE)
    asked = Histories.of([[0, 1, 2], [3], [4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6]])
    for got, wanted in zip(transitions.after(asked, 5), expected.after(asked, 5), strict=True):
        np.testing.assert_array_equal(got, wanted)
    rows_asked, items = np.array([0, 1, 2, 2]), np.array([5, 4, 1, 3])
    for got, wanted in zip(
        transitions.sources(asked, rows_asked, items), expected.sources(asked, rows_asked, items), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_items_that_the_model_does_not_have_yet_are_left_out() -> None:
    base, live = Transitions.count(Histories.of([[0, 1]]), 2), LiveCounts()
    small, large = (LiveTransitions.of(base, live, size) for size in (2, 3000))
    for item in (0, 2999, 1):
        live.add("u", float(item == 1), item)
    assert small.after(Histories.of([[0]]), 10).items.tolist() == [1]
    assert large.after(Histories.of([[0]]), 10).items.tolist() == [1, 2999]
    assert large.count_of(np.array([0, 1, 2999])).tolist() == [2, 2, 1]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abaca.evidence.live.MOST_EVENTS", 5)
    live = LiveCounts()
    for event in drawn(6):
        live.add(*event)
    assert live.full
    assert live.events == 5
    assert live.counts.sum() == 5

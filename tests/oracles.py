"""The exact answers of the rules of `abaca.data.synthetic`, and the best score that a ranker can expect."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from abaca.data.synthetic import CLUSTER, EXPLORED, ONCE, STAY, TWICE, Rule


def oracle(rule: Rule, history: Sequence[int], items: int) -> dict[int, float]:
    """The exact probability of every item that can come next."""
    if rule not in _ORACLES:
        raise ValueError(f"the rule {rule!r} has no exact answer; those that have are {', '.join(_ORACLES)}")
    return _ORACLES[rule](list(history), items)


def best_possible(rule: Rule, histories: Sequence[Sequence[int]], items: int, cutoff: int = 10) -> dict[str, float]:
    """What the best ranker can expect on these histories: HR and NDCG at a cutoff, with one target each."""
    discounts = 1 / np.log2(np.arange(2, cutoff + 2))
    hits = gains = 0.0
    for history in histories:
        best = sorted(oracle(rule, history, items).values(), reverse=True)[:cutoff]
        hits += sum(best)
        gains += float(np.dot(best, discounts[: len(best)]))
    return {"hr": hits / len(histories), "ndcg": gains / len(histories)}


def _copy_after_repeat_next(history: list[int], items: int) -> dict[int, float]:
    least, most = EXPLORED
    distinct = set(history)
    if len(distinct) < len(history):
        return {item: 1 / len(distinct) for item in distinct}
    seen = len(history)
    repeats = 0.0 if seen < least else 1 / (most - seen + 1)
    following = {item: repeats / seen for item in distinct if repeats}
    if repeats < 1:
        following |= {item: (1 - repeats) / (items - seen) for item in range(items) if item not in distinct}
    return following


def _never_copy_next(history: list[int], items: int) -> dict[int, float]:
    if len(history) % STAY == 0:
        visited = {item // CLUSTER for item in history}
        possible = [item for item in range(items // CLUSTER * CLUSTER) if item // CLUSTER not in visited]
    else:
        start = history[-1] // CLUSTER * CLUSTER
        possible = [item for item in range(start, start + CLUSTER) if item not in history]
    return {item: 1 / len(possible) for item in possible}


def _copy_twice_next(history: list[int], items: int) -> dict[int, float]:
    opening = history[: 2 * TWICE + ONCE]
    once = [item for item in set(opening) if opening.count(item) == 1]
    twice = set(opening) - set(once)
    left = 2 * TWICE + ONCE - len(history)
    if left <= 0:
        return dict.fromkeys(twice, 1 / TWICE)
    # how many of those seen once will come again: weighed by the number of openings that begin like this one
    ways = {
        again: math.comb(len(once), again)
        * math.perm(TWICE, len(twice) + again)
        * math.perm(ONCE, len(once) - again)
        * 2**again
        for again in range(len(once) + 1)
    }
    expected = sum(again * count for again, count in ways.items()) / sum(ways.values())
    following = {item: expected / len(once) / left for item in once if expected}
    rest = 1 - sum(following.values())
    if rest > 1e-12:
        seen = set(history)
        following |= {item: rest / (items - len(seen)) for item in range(items) if item not in seen}
    return following


_ORACLES: dict[str, Callable[[list[int], int], dict[int, float]]] = {
    "copy-after-repeat": _copy_after_repeat_next,
    "never-copy": _never_copy_next,
    "copy-twice": _copy_twice_next,
}

"""Synthetic logs with a known rule, so that the right answer is known.

* `copy-after-repeat`: new items until one is repeated; then any of the history, equally likely.
* `never-copy`: an item like the latest (of its cluster) that is not in the history.
* `copy-twice`: nine places hold three items twice and three once, shuffled; then any item that they
  hold twice, equally likely.
* `view-then-buy`: rounds of five events: three views of new items, one of them put into the cart, one of them bought,
  which is the one in the cart with probability 0.75.
* `mixed`: like a shop: popular items, tastes, more repeats after repeats; it has no exact answer.

New items are drawn at random for each user, so that no model can know them by heart.
"""

from collections.abc import Callable, Iterator
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow

Rule = Literal["copy-after-repeat", "never-copy", "copy-twice", "view-then-buy", "mixed"]
RULES: tuple[str, ...] = get_args(Rule)
Ints = npt.NDArray[np.int64]

EXPLORED = (4, 8)
"""copy-after-repeat: the fewest and most new items before the first repeat."""

CLUSTER, STAY = 20, 16
"""never-copy: items of a cluster, and how many of them a user takes before the next one."""

TWICE, ONCE = 3, 3
"""copy-twice: how many items the opening holds twice, and how many once."""

ROUND = ("view", "view", "view", "cart", "buy")
VIEWED, FROM_CART = 3, 0.75
"""view-then-buy: the types of a round, items that it views, and how often the one in the cart is bought."""

GROUPS = 20
"""mixed: how many tastes there are."""

USERS_AT_ONCE = 20_000
BEGIN = 1_600_000_000


def synthetic_log(rule: Rule, users: int, items: int, length: int, seed: int) -> pyarrow.Table:
    """A log (user, item, time) of integers; `length` interactions a user, in `mixed` on average.

    That of `view-then-buy` has a fourth column, the type of each event.
    """
    return pyarrow.concat_tables(_tables(rule, users, items, length, seed))


def _tables(rule: Rule, users: int, items: int, length: int, seed: int) -> Iterator[pyarrow.Table]:
    if rule not in RULES:
        raise ValueError(f"the rule is one of {', '.join(RULES)}, got {rule!r}")
    rng = np.random.default_rng(seed)
    for first in range(0, users, USERS_AT_ONCE):
        some = min(USERS_AT_ONCE, users - first)
        sequences, lengths = _MAKERS[rule](rng, some, items, length)  # (users, longest), (users,)
        inside = np.arange(sequences.shape[1]) < lengths[:, None]
        gaps = rng.integers(1, 200_000, sequences.shape) if rule == "mixed" else np.ones_like(sequences)
        times = BEGIN + np.cumsum(gaps, axis=1)
        owners = np.broadcast_to(np.arange(first, first + some)[:, None], sequences.shape)
        made = pyarrow.table({"user": owners[inside], "item": sequences[inside], "time": times[inside]})
        if rule == "view-then-buy":
            types = np.resize(ROUND, sequences.shape[1])
            made = made.append_column("event", pyarrow.array(np.broadcast_to(types, sequences.shape)[inside]))
        yield made


def _fresh(rng: np.random.Generator, users: int, items: int, count: int) -> Ints:
    """`count` different random items for each user."""
    if count > items:
        raise ValueError(f"{count} different items are needed, there are {items}; take more items or a smaller length")
    rows = [rng.permutation(items)[:count] for _ in range(users)]
    return np.stack(rows)


def _copy_after_repeat(rng: np.random.Generator, users: int, items: int, length: int) -> tuple[Ints, Ints]:
    least, most = EXPLORED
    explored = rng.integers(least, most + 1, users)
    fresh = _fresh(rng, users, items, most)
    places = np.arange(length)
    copied = rng.integers(0, explored[:, None], (users, length))
    chosen = np.where(places < explored[:, None], np.minimum(places, most - 1), copied)
    return np.take_along_axis(fresh, chosen, axis=1), np.full(users, length)


def _never_copy(rng: np.random.Generator, users: int, items: int, length: int) -> tuple[Ints, Ints]:
    visits = -(-length // STAY)
    clusters = _fresh(rng, users, items // CLUSTER, visits)  # (users, visits)
    inside = _fresh(rng, users * visits, CLUSTER, STAY).reshape(users, visits, STAY)
    return (clusters[:, :, None] * CLUSTER + inside).reshape(users, -1)[:, :length], np.full(users, length)


def _copy_twice(rng: np.random.Generator, users: int, items: int, length: int) -> tuple[Ints, Ints]:
    fresh = _fresh(rng, users, items, TWICE + ONCE)  # the first of them are those seen twice
    places = np.tile([*range(TWICE), *range(TWICE), *range(TWICE, TWICE + ONCE)], (users, 1))
    copied = rng.integers(0, TWICE, (users, length))
    chosen = np.concatenate([rng.permuted(places, axis=1), copied], axis=1)[:, :length]
    return np.take_along_axis(fresh, chosen, axis=1), np.full(users, length)


def _view_then_buy(rng: np.random.Generator, users: int, items: int, length: int) -> tuple[Ints, Ints]:
    rounds = -(-length // len(ROUND))
    viewed = _fresh(rng, users, items, VIEWED * rounds).reshape(users, rounds, VIEWED)
    carted = rng.integers(0, VIEWED, (users, rounds, 1))
    other = (carted + rng.integers(1, VIEWED, carted.shape)) % VIEWED
    bought = np.where(rng.random(carted.shape) < FROM_CART, carted, other)
    taken = [viewed, *(np.take_along_axis(viewed, choice, 2) for choice in (carted, bought))]
    return np.concatenate(taken, axis=2).reshape(users, -1)[:, :length], np.full(users, length)


def _mixed(rng: np.random.Generator, users: int, items: int, length: int) -> tuple[Ints, Ints]:
    lengths = np.clip(rng.geometric(1 / max(length - 4, 1), users) + 4, 5, 20 * length)
    lengths[::-1].sort()  # the longest first, so that the users still active are the first ones
    longest = int(lengths[0])
    sequences = np.zeros((users, longest), np.int64)
    taste = rng.integers(0, GROUPS, users)
    loyalty = rng.beta(1, 3, users)
    repeats = np.zeros(users)
    for place in range(longest):
        active = int(np.searchsorted(-lengths, -place, side="left"))
        new = _popular(rng, taste[:active], items)
        chance = (loyalty[:active] * 4 + repeats[:active]) / (5 + place) if place else np.zeros(active)
        copies = rng.random(active) < np.minimum(chance, 0.9)
        old = sequences[np.arange(active), rng.integers(0, max(place, 1), active)]
        sequences[:active, place] = np.where(copies, old, new)
        repeats[:active] += copies
    shuffled = rng.permutation(users)
    return sequences[shuffled], lengths[shuffled]


def _popular(rng: np.random.Generator, taste: Ints, items: int) -> Ints:
    """Items with Zipf-like popularity: of everyone's, or of the user's taste only."""
    everyone = rng.random(len(taste)) < 0.3
    ranks = items ** rng.random(len(taste)) - 1  # density ∝ 1 / (rank + 1)
    own = (np.floor((items / GROUPS) ** rng.random(len(taste))) - 1) * GROUPS + taste
    return np.minimum(np.where(everyone, np.floor(ranks), own), items - 1).astype(np.int64)


_MAKERS: dict[str, Callable[[np.random.Generator, int, int, int], tuple[Ints, Ints]]] = {
    "copy-after-repeat": _copy_after_repeat,
    "never-copy": _never_copy,
    "copy-twice": _copy_twice,
    "view-then-buy": _view_then_buy,
    "mixed": _mixed,
}

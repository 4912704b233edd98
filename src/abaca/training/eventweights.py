"""The weight of each type of event in the loss.

A target of type k counts w_k times. A type that is predicted has weight 1 and any other 0, unless weights are given.
With `auto`, a type that is not predicted has the share of its training events that lead to a target of the same item,
among those after which the user has a target at all:

    w_k = #{events of type k with a later target of the same user and item}
        / #{events of type k with a later target of the same user}

So where one view in ten before a purchase is of an item that is then bought, a view counts a tenth of a purchase.
"""

import numpy as np

from abaca.data.batches import Weights
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.histories import Bools, EventTypes, Histories, Ints
from abaca.options import AUTO, parse_weights


def type_weights(sequences: Sequences, given: str, *, everything: bool = False) -> Weights | None:
    """The weight of each type (K,); None where every event has weight 1."""
    types = sequences.types
    if types is None:
        if given:
            raise SpecError(
                "`event_weights` needs types of events; pass `event=COLUMN` and `types=True` when preparing"
            )
        return None
    found = np.array([number in types.targets for number in range(len(types.names))], dtype=np.float32)
    if given == AUTO:
        if not types.restricted:
            raise SpecError("`event_weights` auto needs types that are only read; name those to predict: `targets_of`")
        counted = conversions(sequences.training(everything=everything), types)
        found = np.where(found > 0, found, counted).astype(np.float32)
    for name, weight in parse_weights(given).items():
        if name not in types.names:
            raise SpecError(f"`event_weights` {name!r} is no type of the log; it has {', '.join(types.names)}")
        found[types.names.index(name)] = weight
    if not found.any():
        raise SpecError("`event_weights` are all 0: nothing would be trained; give a type a weight above 0")
    return None if (found == 1).all() else found


def conversions(rows: Histories, types: EventTypes) -> Weights:
    """The share of each type's events (K,) that a target of the same item follows, if one of the same user does."""
    assert rows.types is not None
    _, pair = np.unique(rows.rows * (int(rows.items.max(initial=0)) + 1) + rows.items, return_inverse=True)
    by_item, by_user = (
        np.bincount(rows.types[_before_target(group, rows.types, types)], minlength=len(types.names))
        for group in (pair, rows.rows)
    )
    return np.asarray(by_item / np.maximum(by_user, 1), dtype=np.float32)


def _before_target(group: Ints, kinds: Ints, types: EventTypes) -> Bools:
    """Mask of the events (n,) after which their group has a target."""
    place, is_target = np.arange(len(group)), np.isin(kinds, types.targets)
    last = np.full(int(group.max(initial=-1)) + 1, -1)
    np.maximum.at(last, group[is_target], place[is_target])
    return np.asarray(last[group] > place)

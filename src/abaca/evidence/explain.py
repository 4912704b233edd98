"""Why an item was chosen: the terms of its logit, which add up to it."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from abaca.evidence.evidence import Evidence, Reading
from abaca.histories import Floats, Histories, Ints

NETWORK, OWN, FOLLOWERS = "network", "own", "followers"
"""Terms; the others are habits."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The terms of the items that were chosen after some histories, and what they were read from."""

    terms: dict[str, Floats]
    """(B, n) by name; NaN where a term does not apply to an item."""
    histories: Histories
    table: Tensor
    """(V, D) the item vectors."""
    evidence: Evidence | None


def terms_of(items: Ints, logits: Floats, numbers: Ints, reading: Reading) -> dict[str, Floats]:
    """The terms of chosen items (B, n) and their final logits; `numbers` has the row of each history that was read.

    Items of a row differ; slots without an item hold a number that is no item. The network's term is the rest of the
    logit: T z, or A z for an item of the history.
    """
    claims, (rows, n) = reading.claims, items.shape
    names = (NETWORK, *reading.terms)
    dense = np.zeros((len(names), rows * n))
    if dense.size:
        width = max(items.max(), claims.items.max(initial=0)) + 1
        keys = (np.arange(rows)[:, None] * width + items).ravel()
        claimed = numbers[claims.rows] * width + claims.items
        order = keys.argsort()
        ordered = keys[order]
        place = np.minimum(ordered.searchsorted(claimed), len(keys) - 1)
        entries = np.flatnonzero(ordered[place] == claimed)
        slots = order[place[entries]]
        dense[1:, slots] = np.array(list(reading.terms.values()))[:, entries]
        dense[0] = logits.ravel() - dense.sum(0)
        others = np.ones(rows * n, dtype=bool)
        others[slots[claims.own[entries]]] = False
        habits = dense[1 : len(names) - (names[-1] == FOLLOWERS)]
        habits[:, others] = np.nan
    return dict(zip(names, dense.reshape(len(names), rows, n), strict=True))

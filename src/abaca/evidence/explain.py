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
    claims = reading.claims
    width = max(items.max(initial=0), claims.items.max(initial=0)) + 1
    keys = (np.arange(len(items))[:, None] * width + items).ravel()
    claimed = numbers[claims.rows] * width + claims.items
    order = np.argsort(keys)
    place = np.searchsorted(keys[order], claimed).clip(max=len(keys) - 1)
    entries = np.flatnonzero(keys[order][place] == claimed) if len(keys) else np.zeros(0, np.int64)
    slots, own = order[place[entries]], claims.own[entries]
    found = {NETWORK: np.array(logits, dtype=np.float64)}
    for name, values in reading.terms.items():
        part = np.zeros(len(keys))
        part[slots] = values[entries]
        found[NETWORK] -= part.reshape(items.shape)
        if name != FOLLOWERS:
            part[:] = np.nan
            part[slots[own]] = values[entries[own]]
        found[name] = part.reshape(items.shape)
    return found

"""Repeats in sequences, and users who show when people repeat."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from abaca.data.sequences import Sequences, Targets
from abaca.evaluation.metrics import Bools, Floats, Ints

Kind = Literal["copy", "explore"]
PLACES: dict[Kind, float] = {"copy": 0.9, "explore": 0.1}
"""The quantile of the chosen user among the candidates, by their share of repeats."""


@dataclass(frozen=True)
class Chosen:
    """A user's target as the example of a kind of user."""

    kind: Kind
    user: int
    position: int
    share: float  # of repeats in the history


def repeats(sequences: Sequences) -> Bools:
    """Whether each interaction (n,) is with an item that the user had before."""
    items, owners = np.asarray(sequences.items), _owners(sequences)
    order = np.lexsort((items, owners))  # stable: a user's interactions with one item stay in time order
    again = np.zeros(len(items), dtype=bool)
    again[1:] = (np.diff(items[order]) == 0) & (np.diff(owners[order]) == 0)
    found = np.empty_like(again)
    found[order] = again
    return found


def repeats_before(repeat: Bools, sequences: Sequences) -> Ints:
    """The number of repeats in the history of each interaction (n,)."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(repeat)])
    starts = np.asarray(sequences.offsets[:-1])
    return np.asarray(total[:-1] - total[starts][_owners(sequences)])


def choose_users(sequences: Sequences, targets: Targets, least: int = 20) -> list[Chosen]:
    """An example of each kind: a user who repeats often and does again, and one who rarely repeats and explores.

    Of each user with at least `least` earlier items the first target counts. Candidates are sorted by the share of
    repeats in their history, ties by number. *Copy* is at 90 % of those whose target is a repeat, *explore* at 10 %
    of those whose target is new. A kind without candidates is left out.
    """
    repeat = repeats(sequences)
    before = repeats_before(repeat, sequences)
    users, first = np.unique(np.asarray(targets.users), return_index=True)
    positions = np.asarray(targets.positions)[first]
    lengths = positions - np.asarray(sequences.offsets)[users]
    enough = lengths >= least
    users, positions, lengths = users[enough], positions[enough], lengths[enough]
    shares = before[positions] / lengths
    known = np.asarray(sequences.items)[positions] < sequences.catalogue.size
    among = {"copy": repeat[positions], "explore": ~repeat[positions] & known}
    chosen: list[Chosen] = []
    for kind, place in PLACES.items():
        rows = np.flatnonzero(among[kind] & ~np.isin(users, [c.user for c in chosen]))
        if len(rows):
            row = _at(rows, shares, place)
            chosen.append(Chosen(kind, int(users[row]), int(positions[row]), float(shares[row])))
    return chosen


def _owners(sequences: Sequences) -> Ints:
    """The user of each interaction (n,)."""
    return np.repeat(np.arange(sequences.users), np.asarray(sequences.offsets[1:] - sequences.offsets[:-1]))


def _at(rows: Ints, shares: Floats, place: float) -> int:
    """The row at a quantile by share, ties by number."""
    ordered = rows[np.argsort(shares[rows], kind="stable")]
    return int(ordered[round(place * (len(ordered) - 1))])

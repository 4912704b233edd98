"""When people repeat: how likely the next item is one of the history, and users that show it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from abaca.data.sequences import Sequences, Targets
from abaca.evaluation.metrics import Bools, Floats, Ints

EDGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Where bins of history lengths begin."""

FEWEST = 30
"""Interactions that a bin needs to be shown."""

Kind = Literal["copy", "explore", "typical"]
PLACES: dict[Kind, float] = {"copy": 0.9, "explore": 0.1, "typical": 0.5}
"""Where the chosen users stand when candidates are sorted by their share of repeats."""

CHOICE_RULE = (
    "chosen by the data alone, before any model is asked. For each {who} with at least {least} earlier items take the "
    "first test target, and sort by the share of repeats in its history, ties by id. Copy: at 90 % of those whose "
    "target is a repeat. Explore: at 10 % of those whose target is new. Typical: the middle of all"
)


@dataclass(frozen=True)
class Point:
    """Histories of similar lengths, and how often a repeat followed."""

    length: float  # mean number of items in the history
    count: int
    probability: float


@dataclass(frozen=True)
class RepeatCurves:
    """The probability of a repeat by the length of the history, apart by whether the history has a repeat in it."""

    with_repeat: tuple[Point, ...]
    without_repeat: tuple[Point, ...]


@dataclass(frozen=True)
class Chosen:
    """A user's target that stands for a kind of user."""

    kind: Kind
    user: int
    position: int
    share: float  # of repeats in the history


def repeats(sequences: Sequences) -> Bools:
    """Tell which interactions (n,) are with an item that the user had before."""
    items, owners = np.asarray(sequences.items), _owners(sequences)
    order = np.lexsort((items, owners))  # stable: a user's interactions with one item stay in time order
    again = np.zeros(len(items), dtype=bool)
    again[1:] = (np.diff(items[order]) == 0) & (np.diff(owners[order]) == 0)
    found = np.empty_like(again)
    found[order] = again
    return found


def repeats_before(repeat: Bools, sequences: Sequences) -> Ints:
    """Count the repeats in the history of each interaction (n,)."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(repeat)])
    starts = np.asarray(sequences.offsets[:-1])
    return np.asarray(total[:-1] - total[starts][_owners(sequences)])


def repeat_curves(sequences: Sequences, fewest: int = FEWEST) -> RepeatCurves:
    """Measure over every interaction that has a history; bins with fewer interactions are left out."""
    repeat = repeats(sequences)
    lengths = np.arange(len(repeat)) - np.asarray(sequences.offsets[:-1])[_owners(sequences)]
    had = repeats_before(repeat, sequences) > 0
    known = lengths > 0
    return RepeatCurves(
        _points(lengths[known & had], repeat[known & had], fewest),
        _points(lengths[known & ~had], repeat[known & ~had], fewest),
    )


def choose_users(sequences: Sequences, targets: Targets, least: int = 20) -> list[Chosen]:
    """Choose a user for each kind by CHOICE_RULE; a kind without candidates is left out."""
    repeat = repeats(sequences)
    before = repeats_before(repeat, sequences)
    users, first = np.unique(np.asarray(targets.users), return_index=True)
    positions = np.asarray(targets.positions)[first]
    lengths = positions - np.asarray(sequences.offsets)[users]
    enough = lengths >= least
    users, positions, lengths = users[enough], positions[enough], lengths[enough]
    shares = before[positions] / lengths
    known = np.asarray(sequences.items)[positions] < sequences.catalogue.size
    among = {"copy": repeat[positions], "explore": ~repeat[positions] & known, "typical": np.ones_like(known)}
    chosen: list[Chosen] = []
    for kind, place in PLACES.items():
        rows = np.flatnonzero(among[kind] & ~np.isin(users, [c.user for c in chosen]))
        if len(rows):
            row = _at(rows, shares, place)
            chosen.append(Chosen(kind, int(users[row]), int(positions[row]), float(shares[row])))
    return chosen


def _owners(sequences: Sequences) -> Ints:
    """Name the user of each interaction (n,)."""
    return np.repeat(np.arange(sequences.users), np.asarray(sequences.offsets[1:] - sequences.offsets[:-1]))


def _points(lengths: Ints, repeat: Bools, fewest: int) -> tuple[Point, ...]:
    bins = np.searchsorted(EDGES, lengths, side="right")
    return tuple(
        Point(float(lengths[bins == b].mean()), int((bins == b).sum()), float(repeat[bins == b].mean()))
        for b in np.unique(bins).tolist()
        if (bins == b).sum() >= fewest
    )


def _at(rows: Ints, shares: Floats, place: float) -> int:
    """Give the row at a place between 0 and 1 when rows are sorted by share, ties by number."""
    ordered = rows[np.argsort(shares[rows], kind="stable")]
    return int(ordered[round(place * (len(ordered) - 1))])

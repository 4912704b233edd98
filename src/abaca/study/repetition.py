"""The probability of a repeated next item by history length, counted as in the paper's Figure 3.

At a length L the first L items of every user with at least L count: whether the last one is a repeat, and whether
there was an earlier repeat. A user counts once at each length, so a binomial interval fits. The paper counts raw
logs, lengths 3 to 49, and draws 0 where no user is left; here that is a gap.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pyarrow

from abaca.data.database import Database
from abaca.data.engine import ORDER
from abaca.data.log import Log
from abaca.data.sequences import Sequences
from abaca.evaluation.metrics import LEVEL, Estimate

SHORTEST, LONGEST = 3, 49
"""Lengths of sequences in the paper's figure, the next item included."""


@dataclass(frozen=True)
class Tally:
    """The number of sequences of one length, and of those that end with a repeat."""

    length: int
    """Items, the last one included."""
    count: int
    repeats: int

    @property
    def probability(self) -> Estimate:
        """The share of repeats, with Wilson's interval."""
        return wilson(self.repeats, self.count)


@dataclass(frozen=True)
class Repetition:
    """Counts by length, with and without an earlier repeat."""

    with_repeat: tuple[Tally, ...]
    without_repeat: tuple[Tally, ...]

    @property
    def counts(self) -> tuple[int, int]:
        """All sequences with and without an earlier repeat, as in the legend of the paper's figure."""
        with_repeat, without = (sum(tally.count for tally in line) for line in (self.with_repeat, self.without_repeat))
        return with_repeat, without


def repetition(source: Log | Sequences) -> Repetition:
    """The counts of a log, or of prepared sequences after filtering."""
    if isinstance(source, Log):
        order = f'row_number() OVER (PARTITION BY "user" ORDER BY {ORDER})'
        source.database.replace("firsts", f'SELECT "user", item, {order} AS n FROM log QUALIFY n <= {LONGEST}')
        try:
            return _tallied(source.database)
        finally:
            source.database.drop("firsts")
    database = Database()
    try:
        with database.registered("firsts", _firsts(source)):
            return _tallied(database)
    finally:
        database.close()


def wilson(hits: int, count: int, level: float = LEVEL) -> Estimate:
    """A share with Wilson's score interval, which stays within 0 and 1."""
    if count < 1 or not 0 <= hits <= count:
        raise ValueError(f"got {hits} of {count}, expected 0 to all of at least one")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, extra = hits / count, z * z / count
    middle = (share + extra / 2) / (1 + extra)
    half = z * math.sqrt(share * (1 - share) / count + extra / (4 * count)) / (1 + extra)
    return Estimate(share, middle - half if hits else 0.0, middle + half if hits < count else 1.0)


def _firsts(sequences: Sequences) -> pyarrow.Table:
    """The first interactions of each user: user, item and place n from 1."""
    offsets = np.asarray(sequences.offsets)
    lengths = np.diff(offsets)
    places = np.arange(len(sequences.items)) - np.repeat(offsets[:-1], lengths) + 1
    first = places <= LONGEST
    users = np.repeat(np.arange(len(lengths)), lengths)
    return pyarrow.table({"user": users[first], "item": np.asarray(sequences.items)[first], "n": places[first]})


def _tallied(database: Database) -> Repetition:
    again = 'row_number() OVER (PARTITION BY "user", item ORDER BY n) > 1'
    before = 'OVER (PARTITION BY "user" ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)'
    rows = database.rows(
        f'WITH marked AS (SELECT "user", n, {again} AS again FROM firsts), '
        f"flagged AS (SELECT n, again, coalesce(bool_or(again) {before}, false) AS had FROM marked) "
        f"SELECT had, n, count(*), sum(again::INTEGER) FROM flagged WHERE n >= {SHORTEST} GROUP BY had, n ORDER BY n"
    )
    lines: dict[bool, list[Tally]] = {True: [], False: []}
    for had, length, count, repeats in rows:
        lines[had].append(Tally(length, count, int(repeats)))
    return Repetition(tuple(lines[True]), tuple(lines[False]))

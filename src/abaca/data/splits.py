"""Splits: where training ends for each user, and the targets of validation and test."""

import datetime
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from abaca.data.engine import Engine, Ints
from abaca.data.reading.values import parse_time, unix_scale
from abaca.errors import SpecError

Bools = npt.NDArray[np.bool_]
TargetChoice = Literal["last", "first", "all"]


@dataclass(frozen=True)
class Split:
    """What a split decided, and its rule in words."""

    rule: str
    train_end: Ints  # (users,)
    valid: Ints  # (T, 2): user, position
    test: Ints  # (T, 2)
    cuts: tuple[float, float] | None = None
    """Where validation and test begin, when the split is by time."""
    without_history: int = 0
    """How many interactions would be targets but are the first of their user."""


class Wanted(NamedTuple):
    """The interactions that may be targets."""

    places: Ints
    """Where they are, ascending."""
    named: str
    """What they are, such as: events of type buy."""

    def between(self, begin: Ints, end: Ints) -> int:
        """How many of them are in the stretches [begin, end)."""
        first, last = (np.searchsorted(self.places, edge) for edge in (begin, end))
        return int(np.maximum(last - first, 0).sum())


def leave_one_out(offsets: Ints, wanted: Wanted | None = None) -> Split:
    """Each user's last interaction is the test target, the one before it the validation target.

    With `wanted` these are the last two of the wanted ones, and training ends before the first of them.
    """
    if wanted is not None:
        return _leave_wanted_out(offsets, wanted)
    ends, lengths = offsets[1:], np.diff(offsets)
    users = np.flatnonzero(lengths >= 3)
    train_end = ends.copy()
    train_end[users] -= 2
    rule = (
        "leave one out: of each user's interactions in time order, the last is the test target, the one before it the "
        "validation target, and the rest are for training; users with fewer than 3 interactions only train; the "
        "catalogue is every item"
    )
    return Split(rule, train_end, np.stack([users, ends[users] - 2], 1), np.stack([users, ends[users] - 1], 1))


def _leave_wanted_out(offsets: Ints, wanted: Wanted) -> Split:
    starts = offsets[:-1]
    first, end = np.searchsorted(wanted.places, starts), np.searchsorted(wanted.places, offsets[1:])
    users = np.flatnonzero(end - first >= 2)
    valid, test = wanted.places[end[users] - 2], wanted.places[end[users] - 1]
    users, valid, test = (part[valid > starts[users]] for part in (users, valid, test))
    train_end = offsets[1:].copy()
    train_end[users] = valid
    rule = (
        f"leave one out: of each user's {wanted.named} in time order, the last is the test target and the one before "
        "it the validation target; everything before that is for training; users with fewer than 2 such events, or "
        "with nothing before them, only train; the catalogue is every item"
    )
    return Split(rule, train_end, np.stack([users, valid], 1), np.stack([users, test], 1))


def by_time(
    offsets: Ints,
    before: tuple[Ints, Ints],
    cuts: tuple[float, float],
    target: TargetChoice,
    wanted: Wanted | None = None,
) -> Split:
    """Training before the first cut, validation targets until the second, test targets after it.

    `before` counts each user's interactions before the cuts. With `wanted` only the wanted ones are targets.
    """
    starts = offsets[:-1]
    valid_start, test_start = starts + before[0], starts + before[1]
    of_which = "" if wanted is None else f", of those that are {wanted.named},"
    chosen = {"last": "the last one", "first": "the first one", "all": "each one"}[target]
    valid_from, test_from = (as_date(cut) or f"{cut:.15g}" for cut in cuts)
    rule = (
        f"by time: interactions before {valid_from} are for training;{of_which} {chosen} of each user from then until "
        f"before {test_from} is a validation target, {chosen} from then on is a test target; its history is "
        "everything of the user before it, and a target without history is left out; the catalogue is the items of "
        "training, and a target outside it counts as a miss"
    )
    valid = _targets(valid_start, test_start, target, wanted)
    test = _targets(test_start, offsets[1:], target, wanted)
    candidates = len(valid) + len(test)
    valid, test = (rows[rows[:, 1] > starts[rows[:, 0]]] for rows in (valid, test))
    return Split(rule, valid_start, valid, test, cuts, candidates - len(valid) - len(test))


def hold_out(split: Split, offsets: Ints, items: Ints, held: Bools) -> tuple[Split, Ints, Bools]:
    """Take the interactions with held-out items (codes,) out of training; they may still be targets.

    Returns the split and the offsets of the interactions that are left, and which of the old ones are.
    """
    users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    kept = ~(held[items] & (np.arange(len(items)) < split.train_end[users]))
    gone = np.concatenate([np.zeros(1, np.int64), np.cumsum(~kept)])  # (n + 1,) before each position
    starts = offsets - gone[offsets]
    valid, test = (np.stack([rows[:, 0], rows[:, 1] - gone[rows[:, 1]]], 1) for rows in (split.valid, split.test))
    candidates = len(valid) + len(test)
    valid, test = (rows[rows[:, 1] > starts[rows[:, 0]]] for rows in (valid, test))
    without = split.without_history + candidates - len(valid) - len(test)
    rule = f"{split.rule}; {int(held.sum()):,} items are held out: training has none of their interactions"
    ends = split.train_end - gone[split.train_end]
    return Split(rule, ends, valid, test, split.cuts, without), starts, kept


def find_cuts(
    engine: Engine, valid_from: str | float | None, test_from: str | float | None, *, dates: bool
) -> tuple[float, float]:
    """The two cuts of a split by time: as given, or where a share of the interactions is reached.

    Without a moment, validation begins at '80%' and test at '90%'.
    """
    first = _cut(engine, "80%" if valid_from is None else valid_from, "`valid_from`", dates=dates)
    second = _cut(engine, "90%" if test_from is None else test_from, "`test_from`", dates=dates)
    earliest, latest = engine.span()
    span = f"the log goes from {moment(earliest)} to {moment(latest)}"
    if first >= second:
        raise SpecError(
            f"validation begins at {moment(first)}, not before test at {moment(second)}; {span}: move the cuts apart"
        )
    if first <= earliest:
        raise SpecError(
            f"validation begins at {moment(first)}, so nothing is left to train on; {span}: pass a later `valid_from`"
        )
    if second > latest:
        raise SpecError(
            f"test begins at {moment(second)}, after the last interaction; {span}: pass an earlier `test_from`"
        )
    return first, second


def share(value: str | float | None) -> float | None:
    """0.8 for '80%'; None for anything that is not a percentage."""
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return None
    try:
        return float(value.strip()[:-1]) / 100
    except ValueError:
        return None


def moment(time: float) -> str:
    """A time in words: the number, and the date where it is plausibly counted since 1970."""
    number = f"{time:.15g}"
    date = as_date(time)
    return number if date is None else f"{number} ({date})"


def as_date(time: float) -> str | None:
    """The ISO date of a time that plausibly counts since 1970; else None."""
    scale = unix_scale(time)
    if scale is None:
        return None
    return datetime.datetime.fromtimestamp(time / scale, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cut(engine: Engine, value: str | float, option: str, *, dates: bool) -> float:
    part = share(value)
    if part is None:
        return parse_time(value, option, engine.latest(), dates=dates)
    return engine.time_at(int(part * engine.count()))


def _targets(begin: Ints, end: Ints, target: TargetChoice, wanted: Wanted | None = None) -> Ints:
    """Rows (user, position) of the targets in [begin, end) of each user."""
    if wanted is not None:
        first, last = (np.searchsorted(wanted.places, edge).astype(np.int64) for edge in (begin, end))
        found = _targets(first, last, target)
        return np.stack([found[:, 0], wanted.places[found[:, 1]]], 1)
    users = np.flatnonzero(end > begin)
    if target == "last":
        return np.stack([users, end[users] - 1], 1)
    if target == "first":
        return np.stack([users, begin[users]], 1)
    lengths = (end - begin)[users]
    rows = np.repeat(users, lengths)
    ordinals = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.stack([rows, begin[rows] + ordinals], 1)

"""Drift: whether new rows are like the old ones, and as the model predicted them."""

from dataclasses import replace

import numpy as np

from abaca.data.catalogue import Catalogue
from abaca.data.sequences import Sequences
from abaca.evaluation.ranker import BATCH, Ranker
from abaca.evaluation.ranking import rank_chunk
from abaca.histories import Bools, Histories, Ints
from abaca.training.fold import known_items

NOTABLE = 0.05
"""A share that changes by more is reported,"""
SURE = 3.0
"""if the change is also more than this number of standard errors."""
MOST = 500
"""Users whose first new row is compared with what the model predicted: with more it would take longer than counting."""

WORDS = {
    "repeats": "repeats are {now:.0%} of the new rows and were {before:.0%} of as many rows before them",
    "new_items": "items that did not occur before are {now:.0%} of the new rows and were {before:.0%} of as many rows "
    "before them",
    "calibration": "the model predicted {before:.0%} repeats where {now:.0%} of the new rows are repeats",
}


def drift(rows: Histories, since: float | None) -> dict[str, list[float]] | None:
    """Shares of the new rows, those after a time, beside the same shares of as many old rows just before them.

    `repeats`: rows whose item the user had before. `new_items`: rows whose item nobody had before the period began.
    Each is a share before, the share now, and the standard error of the change; None where either period has no rows.
    """
    if rows.times is None or since is None:
        return None
    is_new = rows.times > since
    old = rows.times[~is_new]
    if not len(old) or len(old) == len(rows.times):
        return None
    begin = float(np.sort(old)[-min(len(old), int(is_new.sum()))])
    is_old = ~is_new & (rows.times >= begin)
    first = np.full(int(rows.items.max()) + 1, np.inf)
    np.minimum.at(first, rows.items, rows.times)
    fresh = first[rows.items]
    new_items = np.where(is_new, fresh > since, fresh >= begin)
    return {
        name: _change(found, rows.rows, is_old, is_new)
        for name, found in (("repeats", _repeats(rows)), ("new_items", new_items))
    }


def _change(found: Bools, users: Ints, is_old: Bools, is_new: Bools) -> list[float]:
    """The share of rows before and now, and the standard error of the change if there is none: users are the sample."""
    usual, before, now = (float(found[period].mean()) for period in (is_old | is_new, is_old, is_new))
    apart = (found - usual) * (is_new / is_new.sum() - is_old / is_old.sum())
    error = float(np.sqrt((np.bincount(users, apart) ** 2).sum()))
    return [round(number, 4) for number in (before, now, error)]


def notes(found: dict[str, list[float]] | None) -> list[str]:
    """What has changed notably, in words."""
    return [
        WORDS[name].format(before=before, now=now)
        for name, (before, now, error) in (found or {}).items()
        if abs(now - before) > max(NOTABLE, SURE * error)
    ]


def calibration(ranker: Ranker, before: Catalogue, sequences: Sequences, since: float) -> list[float] | None:
    """The mean probability of a repeat that a model predicted for new rows, the share of repeats among them, an error.

    The error is the standard error of their difference if the model is right.
    The rows are the first one after a time of each user, of at most `MOST` users; None where there are none.
    """
    users, positions = _first_new(sequences, since)
    number = known_items(before, Catalogue(sequences.catalogue.ids, None, {}))
    number = np.where(number < 0, before.size + np.arange(len(number)), number)
    predicted, repeat = np.zeros(0), np.zeros(0)
    for start in range(0, len(users), BATCH):
        some = slice(start, start + BATCH)
        asked = replace(sequences.histories(users[some], positions[some]), now=None)
        asked = replace(asked, items=number[asked.items])
        targets = number[sequences.items[positions[some]]]
        found = rank_chunk(ranker, asked, targets, before.size, 1, sequences.types)
        predicted = np.append(predicted, found.repeat_probability)
        repeat = np.append(repeat, found.repeat)
    known = ~np.isnan(predicted)  # not after a history of unknown items
    if not known.any():
        return None
    predicted, repeat = predicted[known], repeat[known]
    error = np.sqrt(((repeat - predicted) ** 2).sum()) / len(repeat)
    return [round(float(number), 4) for number in (predicted.mean(), repeat.mean(), error)]


def _first_new(sequences: Sequences, since: float) -> tuple[Ints, Ints]:
    """Users and the positions of their first rows after a time that can be predicted."""
    assert sequences.times is not None
    new = np.flatnonzero(np.asarray(sequences.times) > since)
    if sequences.types is not None and sequences.types.restricted and sequences.events is not None:
        new = new[np.isin(np.asarray(sequences.events)[new], np.asarray(sequences.types.targets))]
    users = np.searchsorted(np.asarray(sequences.offsets), new, side="right") - 1
    new, users = new[new > sequences.offsets[users]], users[new > sequences.offsets[users]]
    users, first = np.unique(users, return_index=True)
    some = np.sort(np.random.default_rng(0).permutation(len(users))[:MOST])
    return users[some], new[first[some]]


def _repeats(rows: Histories) -> Bools:
    """Whether each row's item occurred before in its history."""
    keys: Ints = rows.rows * (int(rows.items.max(initial=0)) + 1) + rows.items
    repeat = np.ones(len(keys), dtype=bool)
    repeat[np.unique(keys, return_index=True)[1]] = False
    return repeat

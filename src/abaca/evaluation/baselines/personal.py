"""Baselines that count within the user's own history."""

from typing import NamedTuple

import numpy as np

from abaca.evaluation.baselines.baseline import Baseline, Shortlist
from abaca.histories import Floats, Histories, Ints


class Distinct(NamedTuple):
    """The distinct items of several histories, one after another, ascending within a history."""

    rows: Ints
    items: Ints
    counts: Ints  # how often in the history
    recency: Floats  # 0 to 1; the latest item of a history has the largest
    since: Ints  # positions since its last occurrence, from 1


def distinct(histories: Histories) -> Distinct:
    """The distinct items of each history, with their counts and last places."""
    rows, items = histories.rows, histories.items
    order = np.lexsort((items, rows))  # stable: the last of a group is the latest
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (np.diff(rows[order]) != 0) | (np.diff(items[order]) != 0)
    counts = np.diff(np.flatnonzero(last), prepend=-1)
    latest = order[last]
    owner = rows[latest]
    place, length = latest - histories.offsets[owner], histories.lengths[owner]
    return Distinct(owner, items[latest], counts, place / length, length - place)


def times_followed(histories: Histories, seen: Distinct) -> Ints:
    """How often each distinct item came right after an earlier occurrence of the last item of its history."""
    rows, items = histories.rows, histories.items
    last = items[histories.offsets[rows + 1] - 1]
    after = 1 + np.flatnonzero((items[:-1] == last[:-1]) & (rows[:-1] == rows[1:]))
    width = 1 + items.max(initial=0)
    places = np.searchsorted(seen.rows * width + seen.items, rows[after] * width + items[after])
    return np.bincount(places, minlength=len(seen.rows))


class MostRecent(Baseline):
    """The distinct items of the history, latest first."""

    name = "most recent"

    def _shortlist(self, histories: Histories) -> Shortlist:
        seen = distinct(histories)
        return Shortlist(seen.rows, seen.items, seen.recency)


class PersonalFrequency(Baseline):
    """The items of the history, most frequent first, ties by recency."""

    name = "personal frequency"

    def _shortlist(self, histories: Histories) -> Shortlist:
        seen = distinct(histories)
        return Shortlist(seen.rows, seen.items, seen.counts + seen.recency)  # recency is below 1


class PersonalFollow(Baseline):
    """The items of the history that most often came right after the current item, then by frequency and recency."""

    name = "personal follow"

    def _shortlist(self, histories: Histories) -> Shortlist:
        seen = distinct(histories)
        above = 1 + histories.lengths[seen.rows]  # more than count and recency together
        return Shortlist(seen.rows, seen.items, above * times_followed(histories, seen) + seen.counts + seen.recency)

"""Drift: whether new rows are like the old ones."""

import numpy as np

from abaca.histories import Bools, Histories, Ints

NOTABLE = 0.05
"""A share that changes by more is reported."""

WORDS = {"repeats": "repeats", "new_items": "items that did not occur before"}


def drift(rows: Histories, since: float | None) -> dict[str, list[float]] | None:
    """Shares of the new rows, those after a time, beside the same shares of as many old rows just before them.

    `repeats`: rows whose item the user had before. `new_items`: rows whose item nobody had before the period began.
    Each is a pair, before and now; None where either period has no rows.
    """
    if rows.times is None or since is None:
        return None
    is_new = rows.times > since
    old = rows.times[~is_new]
    if not len(old) or len(old) == len(rows.times):
        return None
    begin = float(np.sort(old)[-min(len(old), int(is_new.sum()))])
    is_old = ~is_new & (rows.times >= begin)
    repeat, width = _repeats(rows), int(rows.items.max()) + 1
    first = np.full(width, np.inf)
    np.minimum.at(first, rows.items, rows.times)
    fresh = first[rows.items]
    shares = {
        "repeats": (repeat[is_old], repeat[is_new]),
        "new_items": (fresh[is_old] >= begin, fresh[is_new] > since),
    }
    return {name: [round(float(part.mean()), 4) for part in parts] for name, parts in shares.items()}


def notes(found: dict[str, list[float]] | None) -> list[str]:
    """What has changed notably, in words."""
    return [
        f"{WORDS[name]} are {now:.0%} of the new rows and were {before:.0%} of as many rows before them"
        for name, (before, now) in (found or {}).items()
        if abs(now - before) > NOTABLE
    ]


def _repeats(rows: Histories) -> Bools:
    """Whether each row's item occurred before in its history."""
    keys: Ints = rows.rows * (int(rows.items.max(initial=0)) + 1) + rows.items
    repeat = np.ones(len(keys), dtype=bool)
    repeat[np.unique(keys, return_index=True)[1]] = False
    return repeat

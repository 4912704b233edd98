"""Users of prepared data that the page offers as examples."""

from pathlib import Path
from typing import Any

import numpy as np

from abaca.data.sequences import Sequences

USERS = 12
LEAST, MOST = 5, 60
"""Shortest history that is offered, and the number of latest items shown of a longer one."""


def example_users(folder: Path) -> list[dict[str, Any]]:
    """Some users with a test target, by the share of repeats in their history, lowest first."""
    sequences = Sequences.open(folder)
    catalogue = sequences.catalogue
    found = []
    for user, position in _first_targets(sequences):
        history = sequences.history(user, position)
        known = history[history < catalogue.size]
        if len(known) >= LEAST:
            found.append((1 - len(np.unique(known)) / len(known), user, known))
    found.sort(key=lambda one: one[:2])
    chosen = sorted({round(place) for place in np.linspace(0, len(found) - 1, min(USERS, len(found)))})
    return [
        {
            "user": str(sequences.user_ids[user]),
            "items": [{"id": catalogue.ids[item], "title": catalogue.name(item)} for item in known[-MOST:].tolist()],
            "repeat_share": float(share),
        }
        for share, user, known in (found[place] for place in chosen)
    ]


def _first_targets(sequences: Sequences) -> list[tuple[int, int]]:
    """The first test target of each user: its history holds no other test target."""
    users, first = np.unique(sequences.test.users, return_index=True)
    return list(zip(users.tolist(), sequences.test.positions[first].tolist(), strict=True))

"""Users of prepared data whose histories a visitor of the page can load."""

from pathlib import Path
from typing import Any

import numpy as np

from abaca.data.sequences import Sequences

USERS = 12
LEAST, MOST = 5, 60
"""A history must have so many items to be shown; of a longer one the latest are."""


def example_users(folder: Path) -> list[dict[str, Any]]:
    """Some users with a test target, from those who hardly repeat to those who hardly explore."""
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
    """The first test target of each user: its history holds nothing that was held out to test."""
    users, first = np.unique(sequences.test.users, return_index=True)
    return list(zip(users.tolist(), sequences.test.positions[first].tolist(), strict=True))

"""What people did with recommendations, kept in the store: shown, clicked, bought."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from abaca.serve.events import Store

KINDS = ("shown", "clicked", "bought")
Kind = Literal["shown", "clicked", "bought"]

ADD_FEEDBACK = (
    'INSERT INTO abaca_feedback (id, "user", item, time, kind, model) VALUES (?, ?, ?, ?, ?, ?) '
    "ON CONFLICT (id) DO NOTHING"
)
PER_USER = """
SELECT shown.model, shown."user", count(*),
  sum(CASE WHEN EXISTS (SELECT 1 FROM abaca_feedback later WHERE later."user" = shown."user"
    AND later.item = shown.item AND later.kind = 'clicked' AND later.model = shown.model
    AND later.time >= shown.time) THEN 1 ELSE 0 END),
  sum(CASE WHEN EXISTS (SELECT 1 FROM abaca_feedback later WHERE later."user" = shown."user"
    AND later.item = shown.item AND later.kind = 'bought' AND later.model = shown.model
    AND later.time >= shown.time) THEN 1 ELSE 0 END)
FROM (
  SELECT model, "user", item, min(time) AS time FROM abaca_feedback
  WHERE kind = 'shown' AND time >= ? GROUP BY model, "user", item
) shown
GROUP BY shown.model, shown."user"
ORDER BY shown.model, shown."user"
"""
"""Items that were shown to a user, each once, and those that the user clicked or bought at that time or later."""


class Feedback(NamedTuple):
    """What a user did with an item that a model recommended."""

    id: str
    user: str
    item: str
    time: float  # seconds since 1970
    kind: str
    model: str


class UserCounts(NamedTuple):
    """Items that were shown to a user by a model, and how many of them were clicked and bought."""

    model: str
    user: str
    shown: int
    clicked: int
    bought: int


def add_feedback(store: Store, feedback: Sequence[Feedback]) -> int:
    """Store feedback in one transaction, on disk when this returns; how many were new."""
    (stored,) = store.add([feedback], ADD_FEEDBACK)
    return stored


def per_user(store: Store, since: float = float("-inf")) -> list[UserCounts]:
    """The counts of each user since a time."""
    return [UserCounts(model, user, *map(int, counts)) for model, user, *counts in store._read(PER_USER, since)]

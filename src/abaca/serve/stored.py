"""Stored histories as a model reads them: which events it reads, and their types."""

from collections.abc import Sequence

from abaca.recommender import Recommender
from abaca.serve.events import Past


def reads(recommender: Recommender, past: Past) -> bool:
    """Whether a model reads an event: not where the log of its training was filtered to other types of events."""
    wanted = recommender.learned.events
    return wanted is None or past.type is None or past.type in wanted


def types_of(recommender: Recommender, history: Sequence[Past]) -> list[list[str | None]] | None:
    """The types of a history; one that the model does not know is the usual one. None for a model without types."""
    types = None if recommender.saved is None else recommender.saved.types
    if types is None:
        return None
    return [[past.type if past.type in types.names else None for past in history]]

"""Stored histories as a model reads them: which events it reads, and their types."""

from collections.abc import Sequence
from typing import Any

from abaca.data.catalogue import Catalogue
from abaca.recommender import Recommender
from abaca.serve.events import Past
from abaca.serve.item_search import item_json, known_item


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


def reads_followers(recommender: Recommender) -> bool:
    """Whether a model reads followers, which events that come later can add to."""
    saved = recommender.saved
    return saved is not None and saved.evidence is not None and "followers" in saved.evidence.parts


def past_json(catalogue: Catalogue, past: Past) -> dict[str, Any]:
    """A stored event as an answer has it; an unknown item keeps the text of its id."""
    item = known_item(catalogue, past.item)
    known = {"id": past.item, "title": past.item} if item is None else item_json(catalogue, item)
    return {**known, "time": past.time, "type": past.type}

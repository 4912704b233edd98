"""Served models that count the events that came after their training."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abaca.data.catalogue import INTEGER, Catalogue
from abaca.data.reading.values import UNITS
from abaca.errors import ModelError
from abaca.evidence.live import LiveCounts, LiveTransitions
from abaca.evidence.transitions import UNIT
from abaca.histories import Ints
from abaca.nn.model import Model
from abaca.serve.events import PAGE, Past, Store
from abaca.serve.item_search import ItemSearch
from abaca.serve.service import Loaded
from abaca.serve.stored import reads, reads_followers
from abaca.training.fold import carried
from abaca.training.newitems import NewItems
from abaca.types import Id

MOST_NEW_ITEMS = 10_000
"""New items that a model takes while it serves; events of further ones are stored and not counted."""
REFRESH = 10.0
"""Seconds after which the order of items by popularity counts new events; users without a history get it."""


class LiveModel:
    """A served model and the events that came after its training."""

    def __init__(self, loaded: Loaded) -> None:
        saved = loaded.recommender.saved
        assert saved is not None
        assert saved.evidence is not None
        if saved.index is not None:
            raise ModelError(
                f"{loaded.name} has a search index, which cannot take new items; remove it with `abaca index --remove` "
                "or serve without --learn"
            )
        self.loaded, self.saved, self.evidence = loaded, saved, saved.evidence
        last, unit = saved.training.get("last_time"), loaded.recommender.time_unit
        self.counts = LiveCounts(None if last is None or unit is None else last / UNITS[unit])
        self.ids: list[Id] = []
        """New items, numbered after the model's."""
        self.columns: dict[Id, dict[str, Any]] = {}
        """The columns of those that were described."""
        self.changed = True
        """Whether the model that answers lacks new items, or has items that nobody took any more."""
        self._grown_at, self._grown_with = -math.inf, 0
        self._numbers: dict[str, int] = {}
        self._integers = isinstance(saved.catalogue.ids[0], int)

    def add(self, user: str, past: Past) -> None:
        """Count an event, if the model reads events of its type."""
        number = self._number(past.item) if reads(self.loaded.recommender, past) else None
        if number is not None:
            self.counts.add(user, past.time, number)

    def _number(self, item: str) -> int | None:
        """The number of an item, a new one where it is not known; None where it cannot be one, or there is no room."""
        known = self.saved.catalogue.index(item)
        if known is not None:
            return known
        if item not in self._numbers:
            if len(self.ids) >= MOST_NEW_ITEMS or (self._integers and not INTEGER.fullmatch(item)):
                return None
            self._numbers[item] = self.saved.catalogue.size + len(self.ids)
            self.ids.append(int(item) if self._integers else item)
            self.changed = True
        return self._numbers[item]

    def describe(self, new: NewItems) -> None:
        """Know further items by their features."""
        for place, id in enumerate(new.ids):
            self.columns[id] = {name: values[place] for name, values in new.columns.items()}
            self._number(str(id))
        self.changed = True

    def forget(self, user: str) -> None:
        """Undo the events of a user."""
        self.counts.forget(user)
        self.changed |= bool(self.ids)

    @property
    def stale(self) -> bool:
        """Whether the model that answers is to be replaced: it has other items, or its popularity is old."""
        old = time.monotonic() - self._grown_at > REFRESH and self._grown_with != self.counts.changes
        return self.changed or old

    def grown(self) -> Loaded:
        """The model with live counts and its new items; those that nobody took any more are retired."""
        self.changed, changes = False, self.counts.changes
        self._grown_at, self._grown_with = time.monotonic(), -1  # where it fails, it is tried again
        before, new = self.saved.catalogue.known(), len(self.ids)
        ids: list[Id] = [*before.ids, *self.ids[:new]]
        described = [self.columns.get(id, {}) for id in self.ids[:new]]
        columns = {name: [*values, *(row.get(name) for row in described)] for name, values in before.columns.items()}
        catalogue = Catalogue(ids, None, columns)  # type: ignore[arg-type]
        transitions = LiveTransitions.of(self.evidence.transitions, self.counts, catalogue.size)
        counts = transitions.count_of(np.arange(before.size, catalogue.size))
        unused = [ids[before.size + place] for place in np.flatnonzero(counts == 0) if not described[place]]
        retired = [*self.saved.retired, *unused]
        saved = replace(
            self.saved,
            ranks=self._with_items(catalogue) if new else self.saved.model,
            catalogue=catalogue,
            evidence=replace(self.evidence, transitions=transitions),
            popularity=self._popularity(catalogue.size),
            training=self.saved.training | {"retired": retired},
        )
        search = ItemSearch(catalogue) if new else self.loaded.search
        grown = replace(self.loaded, recommender=self.loaded.recommender.with_model(saved), search=search)
        self._grown_with = changes
        return grown

    def _popularity(self, size: int) -> Ints:
        """The interactions of each item, those of live events included."""
        before, live = self.saved.popularity, self.counts.counts[:size]
        before = self.evidence.transitions.counts if before is None else before
        found = np.zeros(size, dtype=np.int64)
        found[: len(before)] += before
        found[: len(live)] += live
        return found

    def _with_items(self, catalogue: Catalogue) -> Model:
        first, size = self.saved.catalogue.size, catalogue.size
        near = self.counts.near(set(range(first, size)))
        pairs = {(other, new): units for (new, other), units in near.items() if other < first}
        keys = np.array([a * size + b for a, b in pairs], dtype=np.int64)
        known = np.where(np.arange(size) < first, np.arange(size), -1)
        return carried(self.saved, known, (keys, np.array(list(pairs.values())) / UNIT), catalogue.columns)


def live_models(models: Sequence[Loaded]) -> list[LiveModel]:
    """Those of the models that read followers; ModelError where none does, or one cannot take new items."""
    live = [LiveModel(model) for model in models if reads_followers(model.recommender)]
    if not live:
        raise ModelError("no model reads followers, so --learn has nothing to count; train with +followers")
    return live


class Counted:
    """Models that have counted the events of a store up to a place."""

    def __init__(self, store: Store, models: list[LiveModel]) -> None:
        self.store, self.models = store, models
        self.last = -1
        """The place of the last event that is counted."""

    def follow(self) -> None:
        """Count the events that were stored since the last call."""
        while rows := self.store.since(self.last):
            for place, user, past in rows:
                for model in self.models:
                    model.add(user, past)
                self.last = place
            if len(rows) < PAGE:
                return

    def recount(self, user: str) -> None:
        """Count the events of a user again, after some were deleted."""
        left = self.store.counted(user, self.last)
        for model in self.models:
            model.forget(user)
            for past in left:
                model.add(user, past)

"""Learning while serving: accepted events are counted at once, so that followers, and new items, are recommended.

An event is stored first and counted then, in one step, and erasing a user takes his counts out in one step: whatever
the order of requests, the counts are those of the store. The start counts the events that the store holds.
"""

import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
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
from abaca.serve.events import Event, Past, Store
from abaca.serve.item_search import ItemSearch
from abaca.serve.service import Loaded, Service
from abaca.serve.stored import reads
from abaca.training.fold import carried
from abaca.training.newitems import NewItems, checked_items
from abaca.types import Id

logger = logging.getLogger(__name__)

MOST_NEW_ITEMS = 10_000
"""New items that a model takes while it serves; events of further ones are stored and not counted."""
PAUSE, SHARE = 0.2, 4.0
"""Seconds between two growths of a model, at least; and at least this multiple of what the last one took."""
REFRESH = 10.0
"""Seconds after which the order of items by popularity counts new events; users without a history get it."""
MOST_STORED = 1 << 62


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
        self.changed = False
        self._grown_at, self._grown_with = time.monotonic(), self.counts.changes
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
        return replace(self.loaded, recommender=self.loaded.recommender.with_model(saved), search=search)

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


class Learner:
    """Stores events and counts them for every model that reads followers."""

    def __init__(self, store: Store, service: Service) -> None:
        self.store, self.service = store, service
        self.models: list[LiveModel] = []
        self._lock, self._wake = threading.Lock(), threading.Condition()
        self._closed = False
        self.restart()
        self._thread = threading.Thread(target=self._grow, name="abaca-learning", daemon=True)
        self._thread.start()

    def restart(self) -> None:
        """Begin with the models that are served now and the events of the store."""
        with self._lock:
            models = [LiveModel(loaded) for loaded in self.service.models if _reads_followers(loaded)]
            if not models:
                raise ModelError("no model reads followers, so --learn has nothing to count; train with +followers")
            for user, past in self.store.all():
                for model in models:
                    model.add(user, past)
            self.models = models
            for model in models:
                self.service.replace(model.grown())

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Store batches of events and count them; the number of new events of each batch."""
        with self._lock:
            stored = self.store.add(batches)
            for events, new in zip(batches, stored, strict=True):
                if new == len(events):
                    for event in events:
                        self._add(event.user, [Past(event.item, event.time, event.type)])
                else:  # some were sent before, or by a call that had to be repeated: the store knows which
                    for user in {event.user for event in events}:
                        self._forget(user)
                        self._add(user, self.store.history(user, MOST_STORED))
        self._notify()
        return stored

    def add_items(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Know further items of a model by their features, soon; at once where the model reads no followers."""
        with self._lock:
            found = next((model for model in self.models if model.loaded.name == name), None)
            if found is None:
                return self.service.add_items(name, items)
            found.describe(checked_items(found.saved, items))
        return self._notify()

    def forget(self, user: str) -> int:
        """Delete the events of a user and their counts; the number of events."""
        with self._lock:
            deleted = self.store.forget(user)
            self._forget(user)
        self._notify()
        return deleted

    def figures(self) -> dict[str, int]:
        """What the first model has counted: events, pairs and new items; and whether there is no more room."""
        counts = self.models[0].counts
        items = len(self.models[0].ids)
        return {"events": counts.events, "pairs": counts.size, "items": items, "full": int(counts.full)}

    def close(self) -> None:
        """End the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _add(self, user: str, events: Iterable[Past]) -> None:
        for past in events:
            for model in self.models:
                model.add(user, past)

    def _forget(self, user: str) -> None:
        for model in self.models:
            model.forget(user)

    def _notify(self) -> None:
        if self._stale():
            with self._wake:
                self._wake.notify()

    def _grow(self) -> None:
        """Serve models with their new items, soon after these were seen."""
        while not self._closed:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._stale(), REFRESH)
            began = time.monotonic()
            for model in self._stale():
                try:
                    grown = model.grown()
                except Exception:
                    logger.exception("%s cannot take new items", model.loaded.name)
                    continue
                with self._lock:
                    if model in self.models:  # else the models were reloaded meanwhile
                        self.service.replace(grown)
            with self._wake:
                self._wake.wait_for(lambda: self._closed, max(PAUSE, SHARE * (time.monotonic() - began)))

    def _stale(self) -> list[LiveModel]:
        """Models whose items have changed since they were last served."""
        return [model for model in self.models if model.stale]


def _reads_followers(loaded: Loaded) -> bool:
    saved = loaded.recommender.saved
    return saved is not None and saved.evidence is not None and "followers" in saved.evidence.parts

"""Learning while serving: accepted events are counted at once, so that followers, and new items, are recommended.

An event is stored first. Then all events that the store numbered since the last look are counted, so the counts are
those of the store, whichever server accepted an event. Erasing a user takes the user's counts out in one step.
"""

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abaca.data.catalogue import INTEGER, Catalogue
from abaca.data.reading.values import UNITS
from abaca.errors import BusyError, ModelError
from abaca.evidence.live import LiveCounts, LiveTransitions
from abaca.evidence.transitions import UNIT
from abaca.histories import Ints
from abaca.nn.model import Model
from abaca.serve.events import PAGE, Event, Past, Store
from abaca.serve.item_search import ItemSearch
from abaca.serve.service import Loaded, Service
from abaca.serve.stored import reads, reads_followers
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
POLL = 0.5
"""Seconds between two looks for events of other servers."""
JOIN_SECONDS = 5.0


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


class Learner:
    """Stores events, and counts all events of the store for every model that reads followers.

    Events are counted in the order in which the store numbers them, whichever server accepted them. So all servers
    of a store have the same counts, a moment apart.
    """

    def __init__(self, store: Store, service: Service) -> None:
        self.store, self.service = store, service
        self.models: list[LiveModel] = []
        self._lock, self._wake = threading.Lock(), threading.Condition()
        self._closed, self._behind = False, False
        self._last = -1
        """The place of the last event that is counted."""
        self._read()
        self.threads = [
            threading.Thread(target=work, name=f"abaca-{name}", daemon=True)
            for name, work in (("learning", self._grow), ("following", self._follow))
        ]
        for thread in self.threads:
            thread.start()

    def restart(self) -> None:
        """Begin with the models that are served now and the events of the store; later, where that fails."""
        try:
            self._read()
        except BusyError as error:
            logger.warning("the counts of followers are read when the store is back: %s", error)
        except Exception:
            logger.exception("the counts of followers cannot be read; it is tried again")

    def _read(self) -> None:
        with self._lock:
            self._behind, self.models, self._last = True, [], -1
            models = live_models(self.service.models)
            self._count(models)
            self.models, self._behind = models, False
            for model in models:
                self.service.replace(model.grown())

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int | Exception]:
        """Store batches of events and count them; the number of new events of each batch."""
        stored = self.store.add_each(batches)
        try:
            self.follow()
        except Exception as error:  # they are stored, and counted a moment later
            logger.warning("events are not counted yet: %s", error)
        return stored

    def follow(self) -> None:
        """Count the events that were stored since the last call, here or by another server."""
        with self._lock:
            if not self._behind:
                self._count(self.models)
        if self._behind:
            self.restart()
        self._notify()

    def _count(self, models: Sequence[LiveModel]) -> None:
        while rows := self.store.since(self._last):
            for place, user, past in rows:
                for model in models:
                    model.add(user, past)
                self._last = place
            if len(rows) < PAGE:
                return

    def add_items(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Know further items of a model by their features, soon; at once where the model reads no followers."""
        with self._lock:
            found = next((model for model in self.models if model.loaded.name == name), None)
            if found is None:
                return self.service.add_items(name, items)
            found.describe(checked_items(found.saved, items))
        return self._notify()

    def forget(self, user: str, who: str = "") -> int:
        """Erase a user and the counts of the user's events; the number of events."""
        deleted = self.store.forget(user, who)
        self.recount(user)
        return deleted

    def recount(self, user: str) -> None:
        """Count the events of a user again, after some were deleted."""
        with self._lock:
            left = self.store.counted(user, self._last)
            for model in self.models:
                model.forget(user)
                for past in left:
                    model.add(user, past)
        self._notify()

    def figures(self) -> dict[str, int]:
        """What the first model has counted: events, pairs and new items; and whether there is no more room."""
        if not self.models:
            return {"events": 0, "pairs": 0, "items": 0, "full": 0}
        counts = self.models[0].counts
        items = len(self.models[0].ids)
        return {"events": counts.events, "pairs": counts.size, "items": items, "full": int(counts.full)}

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return all(thread.is_alive() for thread in self.threads)

    def close(self) -> None:
        """End the threads."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        for thread in self.threads:
            thread.join(JOIN_SECONDS)

    def _follow(self) -> None:
        """Count what other servers of the store accepted, soon after they did."""
        while not self._closed:
            try:
                self.follow()
            except BusyError:
                pass  # /ready reports it
            except Exception:
                logger.exception("events of other servers cannot be counted")
            with self._wake:
                self._wake.wait_for(lambda: self._closed, POLL)

    def _notify(self) -> None:
        if self._stale():
            with self._wake:
                self._wake.notify_all()

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

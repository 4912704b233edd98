"""Learning while serving: accepted events are counted at once, so that followers, and new items, are recommended.

An event is stored first. Then all events that the store numbered since the last look are counted, so the counts are
those of the store, whichever server accepted an event. Erasing a user takes the user's counts out in one step.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from abaca.errors import BusyError
from abaca.serve import live
from abaca.serve.events import Event, Store
from abaca.serve.live import Counted, LiveModel, live_models
from abaca.serve.service import Service
from abaca.training.newitems import checked_items

logger = logging.getLogger(__name__)

PAUSE, SHARE = 0.2, 4.0
"""Seconds between two growths of a model, at least; and at least this multiple of what the last one took."""
POLL = 0.5
"""Seconds between two looks for events of other servers."""
JOIN_SECONDS = 5.0


class Learner:
    """Stores events, and counts all events of the store for every model that reads followers.

    Events are counted in the order in which the store numbers them, whichever server accepted them. So all servers
    of a store have the same counts, a moment apart.
    """

    def __init__(self, store: Store, service: Service) -> None:
        self.store, self.service = store, service
        self._counted: Counted | None = None
        """None while the whole store is read, and until that succeeds."""
        self._erased: set[str] = set()
        """Users who were erased meanwhile."""
        self._reading, self._lock, self._wake = threading.Lock(), threading.Lock(), threading.Condition()
        self._closed = False
        self._read()
        self.threads = [
            threading.Thread(target=work, name=f"abaca-{name}", daemon=True)
            for name, work in (("learning", self._grow), ("following", self._follow))
        ]
        for thread in self.threads:
            thread.start()

    @property
    def models(self) -> list[LiveModel]:
        """The models that count; none while the whole store is read."""
        counted = self._counted
        return [] if counted is None else counted.models

    def restart(self, only_missing: bool = False) -> None:
        """Begin with the models that are served now and the events of the store; later, where that fails."""
        with self._reading:
            if only_missing and self._counted is not None:
                return
            try:
                self._read()
            except BusyError as error:
                logger.warning("the counts of followers are read when the store is back: %s", error)
            except Exception:
                logger.exception("the counts of followers cannot be read; it is tried again")

    def _read(self) -> None:
        with self._lock:
            self._counted = None
            self._erased.clear()
        counted = Counted(self.store, live_models(self.service.models))
        counted.follow()  # without the lock, so that no event waits
        grown = [model.grown() for model in counted.models]
        with self._lock:
            counted.follow()
            for user in self._erased:
                counted.recount(user)
            self._counted = counted
            for model in grown:
                self.service.replace(model)

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
            if self._counted is not None:
                self._counted.follow()
        self._notify()

    def add_items(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Know further items of a model by their features, soon; at once where the model reads no followers."""
        with self._reading, self._lock:
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
            if self._counted is None:
                self._erased.add(user)
            else:
                self._counted.recount(user)
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
                self.restart(only_missing=True)
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
                self._wake.wait_for(lambda: self._closed or self._stale(), live.REFRESH)
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

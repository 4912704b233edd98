"""The working parts of a server: queues, threads, the check of the store; how they end."""

import asyncio
import logging
from collections.abc import Sequence

from abaca.serve.batching import Batcher
from abaca.serve.calls import Calls
from abaca.serve.events import Event, Store
from abaca.serve.learning import Learner
from abaca.serve.readiness import Queue, Readiness, StoreCheck
from abaca.serve.service import Service

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 8.0
"""Time for queues to finish when the server ends."""
STORE_THREADS = 8
TOGETHER, ROOM = 256, 10_000
"""Requests with events that share one transaction, and those that may wait for it."""


class Parts:
    """All that runs beside the event loop."""

    def __init__(self, service: Service, store: Store | None, learn: bool) -> None:
        self.service, self.store = service, store
        self.learner = Learner(store, service) if store is not None and learn else None
        add = self.learner.add if self.learner is not None else None if store is None else store.add_each
        self.writer: Batcher[Sequence[Event], int] | None = None if add is None else Batcher(add, TOGETHER, ROOM)
        self.calls = Calls(STORE_THREADS, "abaca-store")
        self.check = None if store is None else StoreCheck(store)
        queues: list[Queue] = [service.batcher, *([] if self.writer is None else [self.writer])]
        self.readiness = Readiness(self.check, queues, [] if self.learner is None else [self.learner])

    async def close(self) -> None:
        """Finish the queues; what is not finished in time is given up."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                for part in (self.service, self.writer, self.learner):
                    if part is not None:
                        await asyncio.to_thread(part.close)
        except TimeoutError:
            logger.error("work was given up at the end: it took more than %g s", CLOSE_SECONDS)
        for last in (self.check, self.calls, self.store):  # the store ends calls that wait for it
            if last is not None:
                last.close()

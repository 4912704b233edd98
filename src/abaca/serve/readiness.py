"""Whether the server can do its work now: store, threads, queues and models."""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from abaca.errors import BusyError
from abaca.serve.events import Store

logger = logging.getLogger(__name__)

FRESH_SECONDS = 0.5
"""How long the result of a check of the store is used."""
WAIT_SECONDS = 1.0
"""How long a probe waits for the store."""


class Part(Protocol):
    """Threads."""

    @property
    def alive(self) -> bool: ...


class Queue(Part, Protocol):
    """A thread with a queue."""

    @property
    def full(self) -> bool: ...


class StoreCheck:
    """Tries a write to the store, one at a time, in a thread of its own; many probes share one try."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._thread = ThreadPoolExecutor(1, "abaca-check")
        self._running: asyncio.Future[None] | None = None
        self._checked = -FRESH_SECONDS
        self._error: Exception | None = None

    async def __call__(self) -> None:
        """Raise BusyError where a write would fail, or takes longer than a second."""
        if time.monotonic() - self._checked > FRESH_SECONDS:
            if self._running is None:
                self._running = asyncio.get_running_loop().run_in_executor(self._thread, self.store.check)
                self._running.add_done_callback(self._done)
            done, _ = await asyncio.wait([self._running], timeout=WAIT_SECONDS)
            if not done:
                raise BusyError(f"the store does not answer within {WAIT_SECONDS:g} s")
        if self._error is not None:
            raise BusyError(str(self._error))

    def _done(self, future: "asyncio.Future[None]") -> None:
        self._running = None
        self._checked = time.monotonic()
        self._error = None if future.cancelled() else future.exception()  # type: ignore[assignment]
        if self._error is not None and not isinstance(self._error, BusyError):
            logger.error("the check of the store failed", exc_info=self._error)

    def close(self) -> None:
        """Begin no further check."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class Readiness:
    """All that must work for an answer."""

    def __init__(self, store: StoreCheck | None, queues: Sequence[Queue], others: Sequence[Part]) -> None:
        self._store, self._queues, self._parts = store, queues, [*queues, *others]

    async def check(self) -> None:
        """Raise BusyError with what does not work."""
        if not all(part.alive for part in self._parts):
            raise BusyError("a thread of the server has died; restart the server", 10)
        if any(queue.full for queue in self._queues):
            raise BusyError("the queue is full")
        if self._store is not None:
            await self._store()

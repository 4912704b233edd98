"""Concurrent jobs share the batches of one worker thread."""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Generic, TypeVar

from abaca.errors import BusyError

logger = logging.getLogger(__name__)

Job = TypeVar("Job")
Result = TypeVar("Result")

DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)
"""The moment, by the monotonic clock, after which nobody waits for the answer to the current request."""
DEAD = "the thread that answers has died; restart the server"
FORGETTING = 0.1
"""Weight of the last batch in the time that a job takes."""
JOIN_SECONDS = 10.0
"""How long the end waits for the thread: all that it calls has a limit of its own."""


class Batcher(Generic[Job, Result]):
    """Calls `work` with all jobs in the queue, at most `most` at once, in a thread of its own.

    While one batch runs, the next one collects, so a single job never waits for others. `work` returns a result or
    an exception per job. At most `room` jobs may wait. A job that would wait for more than `patience` seconds, or
    beyond its deadline, is refused at once.
    """

    def __init__(
        self,
        work: Callable[[list[Job]], Sequence[Result | Exception]],
        most: int,
        room: int,
        patience: float = math.inf,
    ) -> None:
        self.work, self.most, self.room, self.patience = work, most, room, patience
        self._waiting: deque[tuple[Job, asyncio.Future[Result]]] = deque()
        self._wake = threading.Condition()
        self._current: list[asyncio.Future[Result]] = []
        self._closed = False
        self._pace = 0.0
        """Seconds of a job, of late."""
        self._thread = threading.Thread(target=self._run, name="abaca-batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Length of the queue."""
        return len(self._waiting)

    @property
    def queue_seconds(self) -> float:
        """The expected time in the queue of a job that comes now."""
        return self._pace * len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def full(self) -> bool:
        """Whether a job that comes now is refused."""
        return len(self._waiting) >= self.room or self.queue_seconds > self.patience

    async def submit(self, jobs: Sequence[Job]) -> list[Result]:
        """The results of some jobs; BusyError where the queue is full."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in jobs]
        with self._wake:
            self._check(len(jobs))
            self._waiting.extend(zip(jobs, futures, strict=True))
            self._wake.notify()
        return await asyncio.gather(*futures)  # a cancelled request cancels its jobs

    def _check(self, jobs: int) -> None:
        """Refuse jobs for which there is no room or no time."""
        if not self.alive:
            raise BusyError(DEAD, 10)
        if self._closed:
            raise BusyError("the server is shutting down")
        if len(self._waiting) + jobs > max(self.room, jobs):
            raise BusyError(f"{len(self._waiting)} histories or events are in the queue")
        expected = self.queue_seconds
        if expected > min(self.patience, DEADLINE.get() - time.monotonic()):
            raise BusyError(f"the queue takes {expected:.1f} s", max(1, math.ceil(expected)))

    def close(self) -> None:
        """Finish the queue, then end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._process([(job, future) for job, future in batch if not future.cancelled()])
        except BaseException:
            logger.exception("the thread %s died; /ready reports it", self._thread.name)
            self._fail_all()

    def _fail_all(self) -> None:
        """Nobody waits for a thread that is dead."""
        with self._wake:
            self._closed = True
            futures = [*self._current, *(future for _, future in self._waiting)]
            self._waiting.clear()
        if futures:
            errors = [BusyError(DEAD, 10)] * len(futures)
            futures[0].get_loop().call_soon_threadsafe(_deliver, futures, errors)

    def _process(self, wanted: list[tuple[Job, "asyncio.Future[Result]"]]) -> None:
        """Work on a batch, and give each job its result."""
        if not wanted:
            return
        self._current = [future for _, future in wanted]
        began = time.monotonic()
        results: Sequence[Result | Exception]
        try:
            results = self.work([job for job, _ in wanted])
        except Exception as error:
            results = [error] * len(wanted)
        took = (time.monotonic() - began) / len(wanted)
        self._pace = took if not self._pace else (1 - FORGETTING) * self._pace + FORGETTING * took
        futures, self._current = self._current, []
        futures[0].get_loop().call_soon_threadsafe(_deliver, futures, results)

    def _next(self) -> list[tuple[Job, "asyncio.Future[Result]"]]:
        """The next batch; empty when closed and finished."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closed)
            return [self._waiting.popleft() for _ in range(min(self.most, len(self._waiting)))]


def _deliver(futures: list["asyncio.Future[Result]"], results: Sequence[Result | Exception]) -> None:
    """Set the results of a whole batch, in the thread of the event loop."""
    for future, result in zip(futures, results, strict=True):
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

"""Concurrent jobs share the batches of one worker thread."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from abaca.errors import BusyError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Batcher(Generic[Job, Result]):
    """Calls `work` with all jobs in the queue, at most `most` at once, in a thread of its own.

    While one batch runs, the next one collects, so a single job never waits for others. `work` returns a result or
    an exception per job. At most `room` jobs may wait.
    """

    def __init__(self, work: Callable[[list[Job]], Sequence[Result | Exception]], most: int, room: int) -> None:
        self.work, self.most, self.room = work, most, room
        self._waiting: deque[tuple[Job, asyncio.Future[Result]]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="abaca-batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Length of the queue."""
        return len(self._waiting)

    async def submit(self, jobs: Sequence[Job]) -> list[Result]:
        """The results of some jobs; BusyError where the queue is full."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in jobs]
        with self._wake:
            if self._closed:
                raise BusyError("the server is shutting down")
            if len(self._waiting) + len(jobs) > max(self.room, len(jobs)):
                raise BusyError(f"{len(self._waiting)} histories or events are in the queue")
            self._waiting.extend(zip(jobs, futures, strict=True))
            self._wake.notify()
        return await asyncio.gather(*futures)  # a cancelled request cancels its jobs

    def close(self) -> None:
        """Finish the queue, then end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            wanted = [(job, future) for job, future in batch if not future.cancelled()]
            if not wanted:
                continue
            results: Sequence[Result | Exception]
            try:
                results = self.work([job for job, _ in wanted])
            except Exception as error:
                results = [error] * len(wanted)
            futures = [future for _, future in wanted]
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

"""Concurrent jobs go through one worker thread together."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from abaca.errors import BusyError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Batcher(Generic[Job, Result]):
    """Hands `work` all jobs that wait, at most `most` at once, in a thread of its own.

    No job waits for company: while one batch runs, the next collects. So a lone job is answered at once, and a crowd
    shares the cost. `work` answers each job with a result or with the exception that belongs to it.
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
        """How many jobs wait for their batch."""
        return len(self._waiting)

    async def submit(self, jobs: Sequence[Job]) -> list[Result]:
        """The results of some jobs; refused at once when more would wait than there is room for."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in jobs]
        with self._wake:
            if self._closed:
                raise BusyError("the server is shutting down")
            if len(self._waiting) + len(jobs) > max(self.room, len(jobs)):
                raise BusyError(f"{len(self._waiting)} histories or events wait already")
            self._waiting.extend(zip(jobs, futures, strict=True))
            self._wake.notify()
        return await asyncio.gather(*futures)  # whoever gives up cancels them: they need no answer any more

    def close(self) -> None:
        """Finish what waits, then end the thread."""
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
        """The next batch; empty when closed and done."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closed)
            return [self._waiting.popleft() for _ in range(min(self.most, len(self._waiting)))]


def _deliver(futures: list["asyncio.Future[Result]"], results: Sequence[Result | Exception]) -> None:
    """In the event loop's thread: once for a whole batch."""
    for future, result in zip(futures, results, strict=True):
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

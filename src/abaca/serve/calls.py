"""Calls that wait, in threads of their own: a database that is away holds these threads and no others."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from abaca.errors import BusyError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

WAIT_SECONDS = 2.0
"""How long a call waits for a thread."""


class Calls:
    """Runs functions in at most `threads` threads; a call that finds none free in time is refused."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._room = asyncio.Semaphore(threads)

    async def __call__(
        self, call: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """The result of a call. It goes on, and keeps its thread, where nobody waits for it any more."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            raise BusyError("the store is busy: others wait for it") from None
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*arguments, **named))
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, future: "asyncio.Future[Result]") -> None:
        self._room.release()
        if not future.cancelled():
            future.exception()  # its caller may be gone

    def close(self) -> None:
        """Begin no further calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

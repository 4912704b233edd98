"""Concurrent jobs share a batch; errors, cancelling and the end reach whom they belong to."""

import asyncio
import threading
import time

import pytest

from abaca.errors import BusyError
from abaca.serve.batching import DEADLINE, Batcher


class Slow:
    """Doubles numbers when told to go on, and keeps the batches it saw."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, jobs: list[int]) -> list[int | Exception]:
        self.batches.append(jobs)
        self.began.set()
        assert self.go.wait(10)
        if 13 in jobs and len(jobs) == 1:
            raise RuntimeError("the whole batch")
        return [ValueError(f"not {job}") if job < 0 else 2 * job for job in jobs]


async def begun(work: Slow) -> None:
    await asyncio.to_thread(work.began.wait, 10)


def test_jobs_that_come_while_a_batch_runs_share_the_next_one() -> None:
    work = Slow()
    batcher = Batcher(work, most=3, room=100)

    async def ask() -> list[list[int]]:
        tasks = [asyncio.create_task(batcher.submit([0]))]
        await begun(work)
        tasks += [asyncio.create_task(batcher.submit([job, job + 10])) for job in (1, 2, 3)]
        await asyncio.sleep(0)
        assert batcher.waiting == 6
        work.go.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(ask()) == [[0], [2, 22], [4, 24], [6, 26]]
    assert work.batches == [[0], [1, 11, 2], [12, 3, 13]]
    batcher.close()


def test_an_error_reaches_only_its_own_job_unless_the_whole_batch_fails() -> None:
    work = Slow()
    work.go.set()
    batcher = Batcher(work, most=10, room=100)

    async def ask() -> list[object]:
        first = asyncio.gather(*(batcher.submit([job]) for job in (4, -1, 5)), return_exceptions=True)
        return [*(await first), *(await asyncio.gather(batcher.submit([13]), return_exceptions=True))]

    one, refused, two, failed = asyncio.run(ask())
    assert (one, two) == ([8], [10])
    assert isinstance(refused, ValueError)
    assert isinstance(failed, RuntimeError)
    batcher.close()


def test_what_nobody_waits_for_is_not_worked_on() -> None:
    work = Slow()
    batcher = Batcher(work, most=10, room=100)

    async def ask() -> None:
        first = asyncio.create_task(batcher.submit([1]))
        await begun(work)
        second = asyncio.create_task(batcher.submit([2]))
        await asyncio.sleep(0)
        second.cancel()
        work.go.set()
        assert await first == [2]

    asyncio.run(ask())
    batcher.close()
    assert work.batches == [[1]]


def test_too_much_is_refused_at_once_and_a_closed_one_finishes_what_waits() -> None:
    work = Slow()
    batcher = Batcher(work, most=1, room=2)

    async def ask() -> None:
        running = [asyncio.create_task(batcher.submit([1]))]
        await begun(work)
        running.append(asyncio.create_task(batcher.submit([2, 3])))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="2 histories or events are in the queue"):
            await batcher.submit([4])
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        while not batcher._closed:
            await asyncio.sleep(0.001)
        with pytest.raises(BusyError, match="shutting down"):
            await batcher.submit([5])
        work.go.set()
        assert await asyncio.gather(*running) == [[2], [4, 6]]
        await closing

    asyncio.run(ask())


def test_a_request_larger_than_the_room_is_taken_when_nothing_waits() -> None:
    work = Slow()
    work.go.set()
    batcher = Batcher(work, most=2, room=1)
    assert asyncio.run(batcher.submit([1, 2, 3])) == [2, 4, 6]
    batcher.close()


def test_a_job_that_would_wait_too_long_is_refused_with_the_time_to_wait() -> None:
    """The pace is that of earlier batches, here 3 seconds a job."""
    work = Slow()
    batcher = Batcher(work, most=1, room=100, patience=5.0)
    batcher._pace = 3.0

    async def ask() -> None:
        running = [asyncio.create_task(batcher.submit([1]))]
        await begun(work)
        running.append(asyncio.create_task(batcher.submit([2])))  # nothing waits: it is taken
        await asyncio.sleep(0)
        assert not batcher.full
        DEADLINE.set(time.monotonic() + 2)
        with pytest.raises(BusyError, match=r"the queue takes 3\.0 s") as caught:
            await batcher.submit([3])
        assert caught.value.seconds == 3
        DEADLINE.set(time.monotonic() + 60)
        running.append(asyncio.create_task(batcher.submit([4])))
        await asyncio.sleep(0)
        assert batcher.full
        with pytest.raises(BusyError, match=r"the queue takes 6\.0 s"):
            await batcher.submit([5])
        work.go.set()
        assert await asyncio.gather(*running) == [[2], [4], [8]]

    asyncio.run(ask())
    batcher.close()
    assert work.batches == [[1], [2], [4]]
    assert batcher.queue_seconds == 0


def test_the_pace_follows_the_batches() -> None:
    work = Slow()
    work.go.set()
    batcher = Batcher(work, most=4, room=100)
    batcher._pace = 100.0
    for _ in range(200):
        asyncio.run(batcher.submit([1, 2]))
    assert batcher._pace < 1
    batcher.close()

"""Several processes share the work of one study; the first process reports their progress."""

import multiprocessing
import queue
import signal
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch

from abaca.errors import UserError
from abaca.study.plan import read_study
from abaca.study.work import Message, Report, Work


class Place(NamedTuple):
    """The study's file, the folder of its logs, and the folder of its results."""

    study: Path
    data: Path | None
    folder: Path

    def work(self) -> Work:
        """The study, opened."""
        return Work(read_study(self.study, self.data), self.folder)


class Orphaned(Exception):
    """Raised in a worker when the first process has ended."""


def run_study(place: Place, jobs: int, threads: int, report: Report) -> Work:
    """Do all the work of a study with `jobs` processes of `threads` threads each."""
    work = place.work()
    work.prepare(report)
    if jobs == 1:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            work.share(report)
        finally:
            torch.set_num_threads(before)
        return work
    codes = _spawn(place, jobs, threads, report)
    work.results.refresh()
    if any(codes) and next(work.pending(), None) is not None:
        raise UserError(
            f"a worker ended with code {max(codes, key=abs)} before its work was done (out of memory?); "
            "run the same command again to continue"
        )
    return work


def _spawn(place: Place, jobs: int, threads: int, report: Report) -> list[int]:
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    workers = [
        context.Process(target=_join, args=(place, threads, number, messages), daemon=True) for number in range(jobs)
    ]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers) or not messages.empty():
            try:
                message = messages.get(timeout=0.2)
            except queue.Empty:
                continue
            if message.kind == "error":
                raise UserError(message.details)
            if message.kind == "failure":
                raise RuntimeError(message.details)
            report(message)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return [worker.exitcode or 0 for worker in workers]


def _join(place: Place, threads: int, number: int, messages: Any) -> None:
    """A worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the first process too, which ends this one
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()

    def report(message: Message) -> None:
        if parent is not None and not parent.is_alive():
            raise Orphaned
        messages.put(message._replace(worker=number))

    try:
        place.work().share(report)
    except Orphaned:
        messages.cancel_join_thread()
    except UserError as error:
        messages.put(Message("error", "", details=str(error)))
    except Exception:
        messages.put(Message("failure", "", details=f"a worker failed:\n{traceback.format_exc()}"))

"""Several processes at one study: each shares in the work, the first tells what all of them do."""

import multiprocessing
import queue
import signal
import traceback
from pathlib import Path
from typing import Any

import torch

from abaca.errors import UserError
from abaca.study.plan import read_study
from abaca.study.work import Message, Tell, Work


class Place:
    """Where a study is: its file, where its logs are, and the folder of its results."""

    def __init__(self, study: Path, data: Path | None, folder: Path) -> None:
        self.study, self.data, self.folder = study, data, folder

    def work(self) -> Work:
        """Open it."""
        return Work(read_study(self.study, self.data), self.folder)


class Orphaned(Exception):
    """The first process is gone: nobody waits for this one."""


def run_study(place: Place, jobs: int, threads: int, tell: Tell) -> Work:
    """Do all the work of a study with so many processes, each with so many threads."""
    work = place.work()
    work.prepare(tell)
    if jobs == 1:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            work.share(tell)
        finally:
            torch.set_num_threads(before)
        return work
    codes = _spawn(place, jobs, threads, tell)
    work.results.refresh()
    if any(codes) and next(work.pending(), None) is not None:
        raise UserError(
            f"a worker ended with code {max(codes, key=abs)} before its work was done (was memory short?); "
            "the same command goes on where it stopped"
        )
    return work


def _spawn(place: Place, jobs: int, threads: int, tell: Tell) -> list[int]:
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
                raise UserError(message.news)
            if message.kind == "failure":
                raise RuntimeError(message.news)
            tell(message)
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

    def tell(message: Message) -> None:
        if parent is not None and not parent.is_alive():
            raise Orphaned
        messages.put(message._replace(worker=number))

    try:
        place.work().share(tell)
    except Orphaned:
        messages.cancel_join_thread()
    except UserError as error:
        messages.put(Message("error", "", news=str(error)))
    except Exception:
        messages.put(Message("failure", "", news=f"a worker failed:\n{traceback.format_exc()}"))

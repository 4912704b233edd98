"""The processes that train one model together: torchrun starts them, `torch.distributed` connects them.

Every process has all weights and takes a share of each step's windows. Gradients are sums over all processes, so the
steps are those of one process. One process on its own is a group of one, and nothing here communicates then.
"""

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from abaca.errors import ProcessError, UserError

T = TypeVar("T")

TOGETHER = 1 << 16
"""Tensors with fewer numbers than this are sent together."""
PATIENCE = timedelta(hours=12)
"""How long a process waits for the others: the first may prepare a log or fit evidence meanwhile."""
MEETING = timedelta(minutes=30)
"""How long a process waits at the start until all others have started."""
ADDRESS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of the environment that a launcher such as torchrun sets for each process."""


@dataclass(frozen=True)
class Group:
    """The processes of a run, and which of them this one is. All must call the same methods in the same order."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is the first process of its machine, which prepares a log there; yes where that is not known."""
        return self.size == 1 or int(os.environ.get("LOCAL_RANK", 0)) == 0

    @property
    def restarted(self) -> bool:
        """Whether torchrun started the processes again after one of them ended."""
        return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type, in place, by their sums over all processes."""
        if self.size == 1:
            return
        small = [tensor for tensor in tensors if tensor.numel() < TOGETHER]
        with self._connected():
            for tensor in tensors:
                if tensor.numel() >= TOGETHER:
                    dist.all_reduce(tensor)
            if small:
                flat = torch.cat([tensor.reshape(-1) for tensor in small])
                dist.all_reduce(flat)
                for tensor, part in zip(small, torch.split(flat, [tensor.numel() for tensor in small]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors, in place, by those of the first process."""
        if self.size > 1:
            with self._connected():
                for tensor in tensors:
                    dist.broadcast(tensor.detach(), 0)

    def first_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors by name of the first process, which need not fit into memory twice."""
        kinds = self.first(lambda: {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
        if self.rank:
            tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in kinds.items()}
        self.copy_first(tensors.values())
        return dict(tensors)

    def first(self, work: Callable[[], T]) -> T:
        """What a function returns in the first process, the only one that calls it; its mistake ends all."""
        if self.size == 1:
            return work()
        box = [_done(work) if self.rank == 0 else None]
        with self._connected():
            dist.broadcast_object_list(box, 0)
        return self._settled(box)[0]  # type: ignore[no-any-return]

    def lead(self, work: Callable[[], T]) -> T | None:
        """What a function returns, which only the first process of each machine calls; its mistake ends all."""
        if self.size == 1:
            return work()
        done = _done(work) if self.leads else (None, None)
        self._settled(self.gather((None, done[1])), own=done)
        return done[0]

    def of_machine(self, value: T | None) -> T:
        """A value that the first process of this machine has."""
        name = socket.gethostname()
        return next(found for host, found in self.gather((name, value)) if host == name and found is not None)

    def gather(self, value: T) -> list[T]:
        """The values of all processes."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with self._connected():
            dist.all_gather_object(found, value)
        return found

    def _settled(self, outcomes: list[Any], own: tuple[Any, UserError | None] = (None, None)) -> Any:
        """The first outcome, unless a process reports a mistake; others end without a second message."""
        failed = [error for _, error in outcomes if error is not None]
        if own[1] is not None:
            raise own[1]
        if failed:
            failed[0].reported = self.rank > 0
            raise failed[0]
        return outcomes[0]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Turn a lost connection into an error that names the cure."""
        try:
            yield
        except RuntimeError as error:
            reason = re.sub(r"^\[[^]]*\] *", "", str(error)).split(". ")[0]  # without the place in torch's source
            raise ProcessError(
                f"process {self.rank} of {self.size} lost the others ({reason}): one of them ended; see its message, "
                "if it has one; the same command with `resume=True` continues from the last saved state"
            ) from error


def _done(work: Callable[[], T]) -> tuple[T | None, UserError | None]:
    """What a function returns, or the user's mistake."""
    try:
        return work(), None
    except UserError as error:
        return None, error


def current() -> Group:
    """The processes that `torch.distributed` has connected; without it, this one alone."""
    if not dist.is_available() or not dist.is_initialized():
        return Group()
    return Group(dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """Connect the processes that torchrun started, if it did; they are apart again after the block."""
    size = int(os.environ.get("WORLD_SIZE", 1)) if all(name in os.environ for name in ADDRESS) else 1
    if size == 1 or dist.is_initialized():
        yield current()
        return
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=MEETING)))
        store = dist.PrefixStore(_meet(store, rank, size), store)  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE, store=store, rank=rank, world_size=size)
    except (RuntimeError, ValueError) as error:
        raise ProcessError(f"the processes of this run cannot reach each other ({error}); start all of them") from error
    try:
        yield current()
    finally:
        dist.destroy_process_group()


def _meet(store: Any, rank: int, size: int) -> str:
    """A name that only the processes of this start have.

    After a restart, the store of torchrun still has the addresses of processes that are gone (pytorch issue 135712). So
    each process leaves a new name of its own, and the first answers it with the name of the meeting.
    """
    own = uuid4().hex
    if rank:
        store.set(f"abaca/{rank}", own)
        name: str = store.get(f"abaca/{own}").decode()  # waits for it
        store.set(f"abaca/{name}/{rank}", "here")
        return name
    deadline, waiting = time.monotonic() + MEETING.total_seconds(), set(range(1, size))
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {min(waiting)} has not started")
        for other in [each for each in waiting if store.check([f"abaca/{each}"])]:
            store.set(f"abaca/{store.get(f'abaca/{other}').decode()}", own)
            if store.check([f"abaca/{own}/{other}"]):
                waiting.remove(other)
        time.sleep(0.02)
    return own

"""Contenders side by side: CPU time, wall time, and each one's peak memory.

All contenders of a benchmark run in one process, one after another, several times over; a first round warms up and
does not count. Other work on the machine blurs wall time, so CPU time is what is compared, and two contenders are
compared round by round. Peak memory is that of a process of its own, which runs one contender once.
"""

import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from abaca.errors import SpecError
from abaca.nn import ops
from abaca.study.environment import commit, processor

LEAST_REPETITIONS = 5
"""Fewer do not make a median."""

MB = 1e6


class Spent(NamedTuple):
    """What one run of a contender cost."""

    cpu: float  # seconds, all threads
    wall: float  # seconds
    targets: int  # how many were trained or ranked
    peak_bytes: int | None = None  # of another process that did the work, where it was one

    @property
    def cpu_per_target(self) -> float:
        return self.cpu / self.targets


Contender = Callable[[], Spent]
Progress = Callable[[int, int], None]


class Bench(Protocol):
    """What is measured: a small value that can be sent to another process, which makes the contenders anew."""

    @property
    def title(self) -> str: ...

    def references(self, name: str) -> Mapping[str, str]:
        """Whom a contender is compared with, by what the comparison is called."""
        ...

    def contenders(self) -> Mapping[str, Contender]: ...


@dataclass(frozen=True)
class Measurement:
    """One contender's runs, and how its CPU time per target compares with others in the same rounds."""

    name: str
    spent: tuple[Spent, ...]
    ratios: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """Median seconds of CPU time of a run."""
        return statistics.median(run.cpu for run in self.spent)

    @property
    def wall(self) -> float:
        """Median seconds of a run."""
        return statistics.median(run.wall for run in self.spent)

    @property
    def targets_per_second(self) -> float:
        """Targets per second of CPU time, at the median."""
        return 1 / statistics.median(run.cpu_per_target for run in self.spent)

    def to_json(self) -> dict[str, Any]:
        """Plain data: medians first, then the ratios and every run."""
        return {
            "name": self.name,
            "cpu_ms": round(1e3 * self.cpu, 3),
            "wall_ms": round(1e3 * self.wall, 3),
            "peak_mb": None if self.peak_bytes is None else round(self.peak_bytes / MB, 1),
            "targets": self.spent[0].targets,
            "targets_per_cpu_second": round(self.targets_per_second, 1),
            **{f"cpu_to_{other}": round(ratio, 4) for other, ratio in self.ratios.items()},
            **self.more,
            "runs_cpu_ms": [round(1e3 * run.cpu, 3) for run in self.spent],
            "runs_wall_ms": [round(1e3 * run.wall, 3) for run in self.spent],
            "runs_targets": [run.targets for run in self.spent],
        }


def timed(work: Callable[[], object], targets: int) -> Spent:
    """Do the work and tell what it cost."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall, targets)


def measure(bench: Bench, only: Sequence[str], repetitions: int, memory: bool, progress: Progress) -> list[Measurement]:
    """Run the contenders in turns; `only` chooses some of them."""
    if repetitions < LEAST_REPETITIONS:
        raise SpecError(f"got {repetitions} repetitions, a median needs at least {LEAST_REPETITIONS}")
    contenders = bench.contenders()
    names = chosen(contenders, only)
    total = len(names) * (repetitions + 1 + memory)
    spent = rounds({name: contenders[name] for name in names}, repetitions, lambda done: progress(done, total))
    del contenders
    found = compared(spent, bench.references)
    for place in range(len(found) if memory else 0):
        found[place] = replace(found[place], peak_bytes=peak_bytes(bench, found[place]))
        progress(total - len(found) + place + 1, total)
    return found


def chosen(contenders: Mapping[str, object], only: Sequence[str]) -> list[str]:
    """The names asked for, in the benchmark's order; all of them where none is asked for."""
    unknown = [name for name in only if name not in contenders]
    if unknown:
        raise SpecError(f"there is no contender {', '.join(unknown)}; there are {', '.join(contenders)}")
    return [name for name in contenders if not only or name in only]


def rounds(
    contenders: Mapping[str, Contender], repetitions: int, progress: Callable[[int], None]
) -> dict[str, list[Spent]]:
    """Let the contenders take turns; the first round warms up and does not count."""
    spent: dict[str, list[Spent]] = {name: [] for name in contenders}
    for turn in range(repetitions + 1):
        for number, (name, contender) in enumerate(contenders.items(), 1):
            run = contender()
            if turn:
                spent[name].append(run)
            progress(turn * len(contenders) + number)
    return spent


def compared(spent: Mapping[str, Sequence[Spent]], references: Callable[[str], Mapping[str, str]]) -> list[Measurement]:
    """Medians, and the median ratios to those that a contender is compared with."""
    return [
        Measurement(
            name,
            tuple(runs),
            {label: ratio(runs, spent[other]) for label, other in references(name).items() if other in spent},
        )
        for name, runs in spent.items()
    ]


def ratio(mine: Sequence[Spent], theirs: Sequence[Spent]) -> float:
    """The median over the rounds of CPU time per target against another's in the same round."""
    return statistics.median(a.cpu_per_target / b.cpu_per_target for a, b in zip(mine, theirs, strict=True))


def peak_bytes(bench: Bench, one: Measurement) -> int:
    """Peak memory of the process that did the work, or else of one that runs the contender once, alone."""
    known = [run.peak_bytes for run in one.spent if run.peak_bytes is not None]
    if known:
        return max(known)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run_alone, _unused(bench), one.name, torch.get_num_threads()).result()


def _unused(bench: Any) -> Any:
    """The same benchmark without anything that it may keep while it runs."""
    return replace(bench)


def _run_alone(bench: Bench, name: str, threads: int) -> int:
    torch.set_num_threads(threads)
    bench.contenders()[name]()
    return own_peak_bytes()


def own_peak_bytes() -> int:
    """This process's peak so far. On Linux ru_maxrss would be the parent's: it outlives exec."""
    if sys.platform == "linux":
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def machine() -> dict[str, Any]:
    """What a reader of the numbers must know of where they were made."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "native": ops.instructions(),
        "commit": commit(),
    }


def settings(bench: Any) -> dict[str, Any]:
    """The benchmark's sizes; of a path only its last part."""
    return {key: _named(value) for key, value in asdict(bench).items()}


def _named(value: Any) -> Any:
    """A path by its last part: where a folder lies is nobody's business."""
    if isinstance(value, tuple):
        return [_named(part) for part in value]
    return value.name if isinstance(value, Path) else value

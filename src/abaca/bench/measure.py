"""Contenders measured in turns: CPU time, wall time, and each one's peak memory.

All contenders of a benchmark run in one process, in several rounds; the first round is a warm-up. Other
work on the machine disturbs wall time, so contenders are compared by CPU time, round by round. Peak memory
is that of a new process, which runs one contender once.
"""

import multiprocessing
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

LEAST_REPETITIONS = 5
"""Rounds that a median needs at least."""

MB = 1e6


class Spent(NamedTuple):
    """The cost of one run of a contender."""

    cpu: float  # seconds, all threads
    wall: float  # seconds
    targets: int  # trained or ranked

    @property
    def cpu_per_target(self) -> float:
        return self.cpu / self.targets


Contender = Callable[[], Spent]
Progress = Callable[[int, int], None]


class Bench(Protocol):
    """A benchmark: a small value that can be sent to another process, which makes the contenders again."""

    @property
    def title(self) -> str: ...

    def references(self, name: str) -> Mapping[str, str]:
        """The contenders that one is compared with, by the name of the comparison."""
        ...

    def contenders(self) -> Mapping[str, Contender]: ...


@dataclass(frozen=True)
class Measurement:
    """One contender's runs, and its CPU time per target relative to others in the same rounds."""

    name: str
    spent: tuple[Spent, ...]
    ratios: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None

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
        """JSON values: medians first, then the ratios and every run."""
        return {
            "name": self.name,
            "cpu_ms": round(1e3 * self.cpu, 3),
            "wall_ms": round(1e3 * self.wall, 3),
            "peak_mb": None if self.peak_bytes is None else round(self.peak_bytes / MB, 1),
            "targets": self.spent[0].targets,
            "targets_per_cpu_second": round(self.targets_per_second, 1),
            **{f"cpu_to_{other}": round(ratio, 4) for other, ratio in self.ratios.items()},
            "runs_cpu_ms": [round(1e3 * run.cpu, 3) for run in self.spent],
            "runs_wall_ms": [round(1e3 * run.wall, 3) for run in self.spent],
            "runs_targets": [run.targets for run in self.spent],
        }


def timed(work: Callable[[], object], targets: int) -> Spent:
    """The cost of some work."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall, targets)


def measure(bench: Bench, only: Sequence[str], repetitions: int, memory: bool, progress: Progress) -> list[Measurement]:
    """Run the contenders in turns; `only` selects some of them."""
    if repetitions < LEAST_REPETITIONS:
        raise SpecError(f"got {repetitions} repetitions, a median needs at least {LEAST_REPETITIONS}")
    contenders = bench.contenders()
    unknown = [name for name in only if name not in contenders]
    if unknown:
        raise SpecError(f"there is no contender {', '.join(unknown)}; available: {', '.join(contenders)}")
    chosen = {name: contender for name, contender in contenders.items() if not only or name in only}
    total = len(chosen) * (repetitions + 1 + memory)
    spent = rounds(chosen, repetitions, lambda done: progress(done, total))
    del contenders, chosen
    found = compared(spent, bench.references)
    for place in range(len(found) if memory else 0):
        found[place] = replace(found[place], peak_bytes=peak_bytes(bench, found[place].name))
        progress(total - len(found) + place + 1, total)
    return found


def rounds(
    contenders: Mapping[str, Contender], repetitions: int, progress: Callable[[int], None]
) -> dict[str, list[Spent]]:
    """The runs of each contender, in turns; the warm-up round is not among them."""
    spent: dict[str, list[Spent]] = {name: [] for name in contenders}
    for turn in range(repetitions + 1):
        for number, (name, contender) in enumerate(contenders.items(), 1):
            run = contender()
            if turn:
                spent[name].append(run)
            progress(turn * len(contenders) + number)
    return spent


def compared(spent: Mapping[str, Sequence[Spent]], references: Callable[[str], Mapping[str, str]]) -> list[Measurement]:
    """Measurements with the median ratios to each contender's references."""
    return [
        Measurement(
            name,
            tuple(runs),
            {label: ratio(runs, spent[other]) for label, other in references(name).items() if other in spent},
        )
        for name, runs in spent.items()
    ]


def ratio(mine: Sequence[Spent], theirs: Sequence[Spent]) -> float:
    """The median over rounds of CPU time per target relative to another's in the same round."""
    return statistics.median(a.cpu_per_target / b.cpu_per_target for a, b in zip(mine, theirs, strict=True))


def peak_bytes(bench: Bench, name: str) -> int:
    """Peak memory of a process that runs the contender once, alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run_alone, bench, name, torch.get_num_threads()).result()


def _run_alone(bench: Bench, name: str, threads: int) -> int:
    torch.set_num_threads(threads)
    bench.contenders()[name]()
    if sys.platform == "linux":  # here ru_maxrss would be the parent's: it survives exec
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def settings(bench: Any) -> dict[str, Any]:
    """The benchmark's sizes; a path by its last part."""
    return {key: value.name if isinstance(value, Path) else value for key, value in asdict(bench).items()}

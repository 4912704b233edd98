"""What the loss costs: every output layer with all its gradients, against the three matrix products it cannot avoid.

    python benchmarks/loss.py --items 50000 --rows 6400 --json loss.json

All contenders run in one process on the same numbers, one after another, several times over; CPU time is what counts,
since other processes only blur wall time. Peak memory is that of a process of its own for each contender.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from abaca.nn import fast, native
from abaca.nn.logits import Level, Logits, Overrides, cross_entropy
from abaca.nn.outputs.history import Slots

LIMIT, REFERENCE = "gemm", "softmax"


@dataclass(frozen=True)
class Size:
    """What is measured."""

    items: int = 50_000
    rows: int = 6400
    dim: int = 64
    history: int = 50
    threads: int = 1
    repetitions: int = 5


class Data:
    """Projections of `rows` positions, in histories of `history` items with repeats, and an item table."""

    def __init__(self, size: Size, levels: int) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        batch = size.rows // size.history
        self.size = size
        self.table = normal(size.items, size.dim).mul_(size.dim**-0.25).requires_grad_()
        drawn = torch.rand(batch, size.history, generator=generator) ** 3 * size.items  # some items often
        self.items = drawn.long()
        self.embedded = self.table.detach()[self.items].requires_grad_()  # (B, L, D)
        self.f_V, self.f_C, self.f_P, self.f_L, *self.f_R = (
            normal(batch, size.history, size.dim).mul_(size.dim**-0.25).requires_grad_() for _ in range(4 + levels)
        )
        self.positions = torch.arange(size.history).expand(batch, -1)
        self.targets = torch.randint(size.items, (batch * size.history,), generator=generator)
        self.weights = torch.ones(batch * size.history)

    @property
    def rows(self) -> int:
        return len(self.targets)

    def leaves(self) -> list[Tensor]:
        return [self.table, self.embedded, self.f_V, self.f_C, self.f_P, self.f_L, *self.f_R]

    def overrides(self, copy: bool, point: bool) -> Overrides:
        owner = torch.arange(len(self.items)).repeat_interleave(self.size.history)
        reach = self.positions.flatten() + 1
        if not copy:
            return Overrides(self.items[:, :0], owner, reach, self.table.new_empty(self.rows, 0))
        slots = Slots.of(self.items, self.size.items)
        values = self.f_C @ self.embedded.transpose(1, 2)  # (B, L, L)
        if point:
            total, count = slots.gather(self.f_P @ self.f_L.transpose(1, 2), self.positions)
            values = values + total / count
        return Overrides(slots.ids, owner, reach, values.flatten(0, 1))

    def loss(self, overrides: Overrides, ks: tuple[int, ...]) -> Tensor:
        levels = tuple(Level(k, f.flatten(0, 1)) for k, f in zip(sorted(ks, reverse=True), self.f_R, strict=False))
        logits = Logits(self.f_V.flatten(0, 1).unsqueeze(1), self.table, levels, overrides)
        return cross_entropy(logits, self.targets, self.weights)


def products(data: Data) -> None:
    """The three matrix products alone, tiled as the fused loss tiles them."""
    queries, table = data.f_V.detach().flatten(0, 1), data.table.detach()
    grad_queries, grad_table = torch.empty_like(queries), torch.zeros_like(table)
    (tiles,) = fast.deal(len(queries), len(table), 1)
    memory = fast.tile_memory(tiles[0].stop, len(table))
    for rows in tiles:
        tile = memory[: rows.stop - rows.start]
        torch.mm(queries[rows], table.T, out=tile)
        torch.mm(tile, table, out=grad_queries[rows])
        grad_table.addmm_(tile.T, queries[rows])


def materialised(data: Data) -> None:
    """Plain torch: all logits in memory."""
    logits = data.f_V.flatten(0, 1) @ data.table.T
    torch.nn.functional.cross_entropy(logits, data.targets, reduction="sum").backward()  # type: ignore[no-untyped-call]


def chunked(data: Data) -> None:
    """The plain form of the library: torch alone, a few rows at a time."""
    before = os.environ.get(native.SWITCH)
    os.environ[native.SWITCH] = "0"
    try:
        fused(data, False, False, ())
    finally:
        os.environ.pop(native.SWITCH)
        if before is not None:
            os.environ[native.SWITCH] = before


def fused(data: Data, copy: bool, point: bool, ks: tuple[int, ...]) -> None:
    data.loss(data.overrides(copy, point), ks).backward()  # type: ignore[no-untyped-call]


CONTENDERS: dict[str, Callable[[Data], None]] = {
    LIMIT: products,
    REFERENCE: lambda data: fused(data, False, False, ()),
    "softmax-materialised": materialised,
    "softmax-chunked": chunked,
    "C": lambda data: fused(data, True, False, ()),
    "CP": lambda data: fused(data, True, True, ()),
    "CPR:100": lambda data: fused(data, True, True, (100,)),
    "CPR:20,100,500": lambda data: fused(data, True, True, (20, 100, 500)),
}


def measure(data: Data, name: str) -> tuple[float, float]:
    """CPU and wall seconds of one run."""
    for leaf in data.leaves():
        leaf.grad = None
    cpu, wall = time.process_time(), time.perf_counter()
    CONTENDERS[name](data)
    return time.process_time() - cpu, time.perf_counter() - wall


def peak_bytes(name: str, size: Size) -> int:
    """Peak memory of a process that runs one contender once."""
    run = [sys.executable, __file__, "--alone", name]
    for key, value in asdict(size).items():
        run += [f"--{key}", str(value)]
    return int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def alone(name: str, size: Size) -> int:
    """Run once and tell the peak. On Linux ru_maxrss would be the parent's: it outlives exec."""
    measure(Data(size, 3), name)
    if sys.platform == "linux":
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(size: Size, names: list[str], memory: bool) -> dict[str, object]:
    """All contenders, interleaved; the first round warms up and does not count."""
    data = Data(size, 3)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for repetition in range(size.repetitions + 1):
        for name in names:
            spent = measure(data, name)
            if repetition:
                times[name].append(spent)
    medians = {name: statistics.median(cpu for cpu, _ in spent) for name, spent in times.items()}
    against = {"to_gemm": LIMIT, "to_softmax": REFERENCE}
    return {
        "size": asdict(size),
        "native": native.mode(),
        "torch": torch.__version__,
        "processor": processor(),
        "commit": commit(),
        "contenders": {
            name: {
                "cpu_seconds": [cpu for cpu, _ in times[name]],
                "wall_seconds": [wall for _, wall in times[name]],
                **{key: ratio(times, name, other) for key, other in against.items() if other in times},
                "median_cpu_seconds": medians[name],
                "peak_bytes": peak_bytes(name, size) if memory else None,
            }
            for name in names
        },
    }


def ratio(times: dict[str, list[tuple[float, float]]], name: str, other: str) -> float:
    """The median over the repetitions of CPU time against another contender's in the same round."""
    return statistics.median(mine[0] / theirs[0] for mine, theirs in zip(times[name], times[other], strict=True))


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str | None:
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    for key, value in asdict(Size()).items():
        parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--memory", action="store_true", help="measure peak memory too, in processes of their own")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--alone", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = Size(**{key: getattr(arguments, key) for key in asdict(Size())})
    torch.set_num_threads(size.threads)
    if arguments.alone:
        print(alone(arguments.alone, size))
        return
    results = run(size, arguments.only, arguments.memory)
    text = json.dumps(results, indent=1)
    if arguments.json:
        with open(arguments.json, "w") as file:
            file.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

"""Training steps of one process and of several on one machine, in turns: time, and bytes on the wire.

    python benchmarks/together.py --json together.json

Each round starts every case with one process and then with two, so that other work on the machine affects both. The
model is real (SASRec with the default output layer), the log is random. Wall time needs a machine that is otherwise
idle. CPU time of the slowest process shows what two processes would gain without waiting for each other. A process
sends 2 (n − 1) / n of the bytes that are added up: gloo and NCCL use rings. The loopback counter of the machine shows
all that was sent, also by other programs.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from abaca.data.batches import Epochs
from abaca.nn.build import make_model
from abaca.options import DEFAULT_OUTPUT
from abaca.training import group as groups
from abaca.training.gradients import set_gradients

CASES = ((3_000, 1.0), (50_000, 0.05), (50_000, 1.0), (500_000, 0.05))
"""Items, and the share of them that the loss reads."""
SIZES = (1, 2)
USERS, LENGTH = 2_000, 40


def loopback_bytes() -> int:
    with open("/proc/net/dev") as lines:
        return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:"))


class Wire:
    """Counts what a group adds up, and the time that it takes."""

    def __init__(self) -> None:
        self.bytes, self.seconds, self._add = 0, 0.0, groups.Group.add
        groups.Group.add = lambda group, tensors: self.add(group, tensors)  # type: ignore[method-assign]

    def add(self, group: groups.Group, tensors: list[torch.Tensor]) -> None:
        began = time.perf_counter()
        self._add(group, tensors)
        self.seconds += time.perf_counter() - began
        self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def work(items: int, share: float, steps: int, targets: int) -> None:
    """One process: print the cost of its steps as JSON."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    log = (rng.random(USERS * LENGTH) ** 3 * items).astype(np.int32)
    begin = np.arange(0, USERS * LENGTH, LENGTH)
    epochs = Epochs(log, None, begin, begin + LENGTH, 25, 25, targets, 0)
    with groups.joined() as group:
        torch.manual_seed(0)
        model = make_model("sasrec", DEFAULT_OUTPUT, items, dim=64, window=50)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        batches = epochs.batches(0, 0, group.rank, group.size)
        wire = Wire()
        for step in range(steps + 1):
            if step == 1:  # the first allocates the optimizer's state
                wire.bytes, wire.seconds = 0, 0.0
                sent, marks = loopback_bytes(), (time.perf_counter(), time.process_time())
            optimizer.zero_grad()
            loss = set_gradients(model, next(batches), share, group, (0, step))
            optimizer.step()
        spent = time.perf_counter() - marks[0], time.process_time() - marks[1]
        sent = loopback_bytes() - sent
    found = {
        "wall_ms": 1e3 * spent[0] / steps,
        "cpu_ms": 1e3 * spent[1] / steps,
        "wait_ms": 1e3 * wire.seconds / steps,
        "added_bytes": wire.bytes // steps if group.size > 1 else 0,
        "loopback_bytes": sent // steps,
        "loss": loss,
    }
    print(json.dumps(found))


def start(size: int, command: list[str]) -> list[dict[str, float]]:
    """What each process of a group prints, all of which run one Python program."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]


def summary(rounds: list[list[dict[str, float]]]) -> dict[str, float]:
    """The median over rounds of the slowest process."""
    return {key: statistics.median(max(each[key] for each in one) for one in rounds) for key in rounds[0][0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--targets", type=int, default=800)
    parser.add_argument("--json")
    given = parser.parse_args()
    if given.work:
        items, share, steps, targets = given.work
        work(int(items), float(share), int(steps), int(targets))
        return
    raw: dict[tuple[int, float, int], list[list[dict[str, float]]]] = {}
    facts = {"targets": given.targets, "steps": given.steps, "cores": os.cpu_count(), "torch": torch.__version__}
    for _ in range(given.rounds):
        for items, share in CASES:
            for size in SIZES:
                command = [__file__, "--work", *map(str, (items, share, given.steps, given.targets))]
                raw.setdefault((items, share, size), []).append(start(size, command))
                if given.json:  # after each, so that a run that is stopped has results too
                    with open(given.json, "w") as file:
                        json.dump({**facts, "load": os.getloadavg(), "cases": cases(raw)}, file, indent=1)
    for row in cases(raw):
        print(" ".join(f"{key} {value:.5g}" for key, value in row.items() if key != "rounds"))


def cases(raw: dict[tuple[int, float, int], list[list[dict[str, float]]]]) -> list[dict[str, Any]]:
    """The summary of each case, and its rounds."""
    return [
        {"items": items, "share": share, "processes": size, **summary(rounds), "rounds": rounds}
        for (items, share, size), rounds in raw.items()
    ]


if __name__ == "__main__":
    main()

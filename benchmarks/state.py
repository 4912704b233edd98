"""What a kept state per user would save: the encoder's share of a request for a remembered user.

    python benchmarks/state.py --json benchmarks/results/state.json

A server stores histories and is asked for the recommendations of their users, one request after another or by several
clients at once. The encoder runs in this process, on the same histories, in turn with empty requests: alone or on
batches of as many windows as there are clients. `one` is the encoder on a single position, the least that a kept state
would leave. All numbers are milliseconds of CPU time for a request.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from abaca.data.catalogue import Catalogue
from abaca.data.prepare import PrepareOptions
from abaca.histories import Windows
from abaca.nn.build import make_model
from abaca.nn.model import Model
from abaca.study.environment import commit, processor
from abaca.training.checkpoint import Saved, save_model
from abaca.training.trainer import TrainingOptions
from serve import Connection, Load, Server, histories, message, saturate, served, timed

USERS, CLIENTS = 100, 32


@dataclass(frozen=True)
class Size:
    """What is measured; `histories` of the other benchmark reads it."""

    items: int
    history: int


SIZES = [Size(items, history) for items in (3_706, 50_000) for history in (50, 200)]


def write_model(folder: Path, size: Size) -> Model:
    """HSTU with random weights, of a log with times."""
    torch.manual_seed(0)
    model = make_model("hstu", "softmax", size.items).eval()
    training = {
        "encoder_options": {}, "options": asdict(TrainingOptions(window=size.history)), "everything": False,
        "fingerprint": "random", "best": None, "best_epoch": None, "records": [], "split": {},
        "prepared": asdict(PrepareOptions()), "time_unit": "seconds",
    }  # fmt: skip
    save_model(folder, Saved(model, "hstu", "softmax", {}, Catalogue(list(range(size.items)), None, {}), training))
    return model


def encoder(model: Model, asked: list[list[int]], windows: int, length: int) -> Callable[[int], None]:
    """Encodes some windows of these histories, as if their last item were the one that is asked about."""
    items = torch.tensor(asked)[:, -length:]
    times = torch.arange(items.shape[1], dtype=torch.float64).expand(windows, -1) * 600
    last = torch.full((windows, 1), items.shape[1] - 1)

    def run(number: int) -> None:
        some = items[torch.arange(number, number + windows) % len(items)]
        with torch.inference_mode():
            model.encode(Windows(some, last, times, times[:, -1:] + 60))

    return run


async def in_turn(server: Server, work: Callable[[int], None], seconds: float) -> tuple[float, int]:
    """CPU seconds of some work in this process, in turn with empty requests, and how often it ran."""
    connection, load, until, spent = Connection(server.port), Load(), time.perf_counter() + seconds, 0.0
    while time.perf_counter() < until:
        await connection.ask(message("GET", "/health"), load)
        began = time.thread_time()
        work(load.done)
        spent += time.thread_time() - began
    connection.close()
    return spent, load.done


async def store(server: Server, asked: list[list[int]]) -> None:
    """The histories, as events of users."""
    connection, load = Connection(server.port), Load()

    async def send() -> None:
        for user, history in enumerate(asked):
            events = [{"user": f"u{user}", "item": x, "time": 1e9 + 600 * i} for i, x in enumerate(history)]
            await connection.ask(message("POST", "/events", {"events": events}), load)

    await timed(server, load, send)
    connection.close()
    assert not load.failures, load.failures[0]


def measure(size: Size, rounds: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Requests and the encoder, in turn; medians over the rounds."""
    model, asked = write_model(folder / "model", size), histories(size, USERS)  # type: ignore[arg-type]
    requests = [message("GET", f"/users/u{user}/recommendations") for user in range(USERS)]
    works = {
        "encoder": (encoder(model, asked, 1, size.history), 1),
        "encoder_batched": (encoder(model, asked, CLIENTS, size.history), CLIENTS),
        "one": (encoder(model, asked, 1, 1), 1),
        "one_batched": (encoder(model, asked, CLIENTS, 1), CLIENTS),
    }
    found: list[dict[str, float]] = []
    with served(folder / "model", "--store", str(folder / "events.db")) as server:
        asyncio.run(store(server, asked))
        for _ in range(rounds + 1):  # the first one is a warm-up
            one: dict[str, float] = {}
            for name, clients in (("request", 1), ("request_batched", CLIENTS)):
                load = asyncio.run(saturate(server, requests, clients, seconds))
                assert not load.failures, load.failures[0]
                one[name] = 1000 * load.cpu / load.done
            for name, (work, windows) in works.items():
                spent, times = asyncio.run(in_turn(server, work, seconds / 2))
                one[name] = 1000 * spent / times / windows
            found.append(one)
    middle = {name: statistics.median(one[name] for one in found[1:]) for name in found[0]}
    shares = {
        f"saved{kind}": statistics.median(
            (one[f"encoder{kind}"] - one[f"one{kind}"]) / one[f"request{kind}"] for one in found[1:]
        )
        for kind in ("", "_batched")
    }
    return {**asdict(size), "cpu_ms": middle, "share": shares, "rounds": found[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    results = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(size, given.rounds, given.seconds, Path(folder)))
        print(json.dumps({key: value for key, value in results[-1].items() if key != "rounds"}), flush=True)
    if given.json:
        facts = {"torch": torch.__version__, "processor": processor(), "commit": commit(), "clients": CLIENTS}
        Path(given.json).write_text(json.dumps({**facts, "results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What the server costs and stands: throughput with and without batching, CPU per request, latency, a long run.

    python benchmarks/serve.py --json serve.json                    # short
    python benchmarks/serve.py --seconds 30 --minutes 10 --store postgresql://… --restart 'pg_ctl …' --json serve.json

Two servers run side by side, one that batches and one that does not, and are loaded in turn, several times over, with
single requests from a client in this process. CPU time is that of the server's process. `alone` is one client that asks
one thing after another; `inside` is `recommend` called in this process on the same histories, in turn with `empty`, GET
/health. The long run sends at half of the saturating load, with reloads every 20 seconds, events when there is a store,
and one restart of its database half-way through.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

import abaca
from abaca.data.catalogue import Catalogue
from abaca.data.prepare import PrepareOptions
from abaca.nn.build import make_model
from abaca.study.environment import commit, processor
from abaca.training.checkpoint import Saved, save_model
from abaca.training.trainer import TrainingOptions


@dataclass(frozen=True)
class Size:
    """What is measured."""

    items: int = 50_000
    history: int = 50
    clients: int = 32
    seconds: float = 5.0
    rounds: int = 3
    minutes: float = 0.0


def write_model(folder: Path, size: Size, seed: int = 0) -> None:
    """SASRec with CPR:100+Mi and random weights: what it answers is of no use, what it costs is the same."""
    torch.manual_seed(seed)
    output, sizes = "softmax+CPR:100+Mi", {"window": size.history}
    model = make_model("sasrec", output, size.items, **sizes).eval()
    catalogue = Catalogue(list(range(size.items)), None, {"title": [f"Item {item}" for item in range(size.items)]})
    training = {
        "encoder_options": sizes, "options": asdict(TrainingOptions(window=size.history)), "everything": False,
        "fingerprint": "random", "best": None, "best_epoch": None, "records": [], "split": {},
        "prepared": asdict(PrepareOptions()),
    }  # fmt: skip
    save_model(folder, Saved(model, "sasrec", output, sizes, catalogue, training))


def histories(size: Size, many: int = 500) -> list[list[int]]:
    """Histories with repeats, some items often."""
    rng = random.Random(0)
    return [[int(rng.random() ** 3 * size.items) for _ in range(size.history)] for _ in range(many)]


@dataclass
class Server:
    """A server process and its address."""

    process: subprocess.Popen[str]
    port: int

    @property
    def cpu(self) -> float:
        """CPU seconds it has used, with its workers."""
        used = 0.0
        for one in self._processes():
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                used += times.user + times.system
        return used

    @property
    def resident(self) -> int:
        """Bytes of memory it holds, with its workers."""
        held = 0
        for one in self._processes():
            with suppress(psutil.NoSuchProcess):
                held += int(one.memory_info().rss)
        return held

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children()]


@contextmanager
def served(model: Path, *options: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "abaca", "serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield Server(process, int(process.stdout.readline().strip().rsplit(":", 1)[1]))
    finally:
        process.terminate()
        process.wait()


def message(method: str, path: str, body: Any = None) -> bytes:
    """A request, ready to send."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + content


class Failure(NamedTuple):
    """A request that was not answered with 200."""

    path: str
    how: str  # the status, or what happened to the connection
    sent: float  # by the clock of `time.perf_counter`


@dataclass
class Load:
    """What came of some requests."""

    latencies: list[float] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def done(self) -> int:
        return len(self.latencies)

    def quantile(self, share: float) -> float:
        return sorted(self.latencies)[min(int(share * self.done), self.done - 1)]

    def to_json(self) -> dict[str, Any]:
        return {
            "requests": self.done,
            "failures": len(self.failures),
            "kinds_of_failure": dict(Counter(f"{path} {how}" for path, how, _ in self.failures)),
            "per_second": self.done / self.seconds,
            "cpu_ms": 1000 * self.cpu / max(self.done, 1),
            "p50_ms": 1000 * self.quantile(0.5),
            "p99_ms": 1000 * self.quantile(0.99),
        }


class Connection:
    """One client that keeps its connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes, load: Load) -> None:
        began = time.perf_counter()
        try:
            if self.streams is None or self.streams[0].at_eof():  # closed by the server while it was idle
                self.streams = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self.streams
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            status = head.split(b" ", 2)[1].decode()
        except (OSError, asyncio.IncompleteReadError) as error:
            status, self.streams = type(error).__name__, None
        if status == "200":
            load.latencies.append(time.perf_counter() - began)
        else:
            load.failures.append(Failure(request.split(b" ", 2)[1].decode(), status, began))

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


async def saturate(server: Server, requests: list[bytes], clients: int, seconds: float) -> Load:
    """Clients that ask again as soon as they are answered."""
    load, until = Load(), time.perf_counter() + seconds

    async def client(number: int) -> None:
        connection, place = Connection(server.port), number
        while time.perf_counter() < until:
            await connection.ask(requests[place % len(requests)], load)
            place += clients
        connection.close()

    return await timed(server, load, lambda: asyncio.gather(*(client(number) for number in range(clients))))


async def arrive(server: Server, requests: list[bytes], rate: float, seconds: float) -> Load:
    """Requests that come at random moments, whether or not earlier ones were answered."""
    load, free, rng = Load(), [], random.Random(0)
    tasks: set[asyncio.Task[None]] = set()

    async def one(request: bytes) -> None:
        connection = free.pop() if free else Connection(server.port)
        await connection.ask(request, load)
        free.append(connection)

    async def all_of_them() -> None:
        due = began = time.perf_counter()
        while due < began + seconds:
            due += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(one(rng.choice(requests)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    found = await timed(server, load, all_of_them)
    for connection in free:
        connection.close()
    return found


async def timed(server: Server, load: Load, work: Callable[[], Awaitable[Any]]) -> Load:
    began, cpu = time.perf_counter(), server.cpu
    await work()
    load.seconds, load.cpu = time.perf_counter() - began, server.cpu - cpu
    return load


async def apart(server: Server, recommend: Callable[[int], Any], seconds: float) -> Load:
    """Empty requests to the server, in turn with `recommend` in this process, whose CPU time is added to the server's.

    In turn, since a tight loop would keep the item table in the nearest cache, which no server's does.
    """
    connection, load, until, spent = Connection(server.port), Load(), time.perf_counter() + seconds, 0.0

    async def both() -> None:
        nonlocal spent
        while time.perf_counter() < until:
            await connection.ask(EMPTY, load)
            began = time.thread_time()
            recommend(load.done)
            spent += time.thread_time() - began

    await timed(server, load, both)
    connection.close()
    load.cpu += spent
    return load


def one_by_one(
    server: Server, requests: list[bytes], recommend: Callable[[int], Any], seconds: float
) -> dict[str, float]:
    """CPU milliseconds of a request that comes alone, and of what it is made of, in short slices, in turn."""
    loads: dict[str, list[Load]] = {"alone_cpu_ms": [], "inside_and_empty_cpu_ms": []}
    for _ in range(SLICES):
        loads["alone_cpu_ms"].append(asyncio.run(saturate(server, requests, 1, seconds / SLICES)))
        loads["inside_and_empty_cpu_ms"].append(asyncio.run(apart(server, recommend, seconds / SLICES)))
    return {name: 1000 * sum(x.cpu for x in some) / sum(x.done for x in some) for name, some in loads.items()}


def compare(model: Path, size: Size) -> dict[str, Any]:
    """Both servers in turn; then latency at half of what the batching one can do."""
    asked = histories(size)
    requests = [message("POST", "/recommend", {"history": history}) for history in asked]
    rounds: list[dict[str, Any]] = []
    recommender = abaca.load(model)

    def recommend(number: int) -> Any:
        return recommender.recommend(asked[number % len(asked)], 10)

    with ExitStack() as opened:
        servers = {name: opened.enter_context(served(model, "--batch", batch)) for name, batch in BATCHES.items()}
        for server in servers.values():
            asyncio.run(saturate(server, requests, size.clients, 1))
        for _ in range(size.rounds):
            found: dict[str, Any] = {
                name: asyncio.run(saturate(server, requests, size.clients, size.seconds)).to_json()
                for name, server in servers.items()
            }
            rounds.append({**found, **one_by_one(servers["single"], requests, recommend, 2 * size.seconds)})
        most = statistics.median(one["batched"]["per_second"] for one in rounds)
        half = asyncio.run(arrive(servers["batched"], requests, most / 2, max(30, 2 * size.seconds))).to_json()
    return {"rounds": rounds, "half_load": half, "claims": claims(rounds, half)}


SLICES = 16
EMPTY = message("GET", "/health")
BATCHES = {"batched": "64", "single": "1"}


def claims(rounds: list[dict[str, Any]], half: dict[str, Any]) -> dict[str, float]:
    """Ratios within each round, and their medians."""
    return {
        "throughput_of_batching": statistics.median(
            one["batched"]["per_second"] / one["single"]["per_second"] for one in rounds
        ),
        "cpu_of_batching": statistics.median(one["batched"]["cpu_ms"] / one["single"]["cpu_ms"] for one in rounds),
        "cpu_to_inside_plus_empty": statistics.median(
            one["alone_cpu_ms"] / one["inside_and_empty_cpu_ms"] for one in rounds
        ),
        "p99_to_p50_at_half_load": half["p99_ms"] / half["p50_ms"],
    }


def endure(model: Path, size: Size, rate: float, store: str | None, restart: str | None) -> dict[str, Any]:
    """The long run: reloads every 20 seconds, a restart of the database half-way; memory each ten seconds."""
    asked = histories(size)
    requests = [message("POST", "/recommend", {"history": history}) for history in asked]
    if store:
        people = range(len(asked) // 10)
        requests += [message("POST", "/events", {"events": [{"user": f"u{i}", "item": asked[i][0]}]}) for i in people]
        requests += [message("GET", f"/users/u{i}/recommendations") for i in people]
    seconds = size.minutes * 60
    with served(model, *(["--store", store] if store else [])) as server:

        async def both() -> tuple[Load, list[int], list[list[float]]]:
            began = time.perf_counter()
            load = asyncio.create_task(arrive(server, requests, rate, seconds))
            memory: list[int] = []
            restarts: list[list[float]] = []
            while not load.done():
                await asyncio.sleep(10)
                memory.append(server.resident)
                if len(memory) % 2 == 0:
                    server.process.send_signal(signal.SIGHUP)
                if restart and not restarts and time.perf_counter() - began > seconds / 2:
                    away = time.perf_counter() - began
                    await asyncio.to_thread(subprocess.run, restart, shell=True, check=True)
                    restarts.append([away, time.perf_counter() - began])
            for failure in load.result().failures:
                failed.append((failure.path, failure.how, failure.sent - began))
            return load.result(), memory, restarts

        failed: list[tuple[str, str, float]] = []
        load, memory, restarts = asyncio.run(both())
    return {
        "rate": rate, "seconds": seconds, **load.to_json(), "reloads": len(memory) // 2, "restart_seconds": restarts,
        "failed": failed, "resident_mib": [size >> 20 for size in memory],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    for key, value in asdict(Size()).items():
        parser.add_argument(f"--{key}", type=type(value), default=value)
    parser.add_argument("--store", help="where the long run keeps events")
    parser.add_argument("--restart", help="a command that restarts the store's database")
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    size = Size(**{key: getattr(arguments, key) for key in asdict(Size())})
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        write_model(model, size)
        results: dict[str, Any] = {
            "size": asdict(size), "torch": torch.__version__, "processor": processor(), "commit": commit(),
            "load_before": os.getloadavg(),
        }  # fmt: skip
        results |= compare(model, size)
        if size.minutes:
            rate = statistics.median(one["batched"]["per_second"] for one in results["rounds"]) / 2
            results["long_run"] = endure(model, size, rate, arguments.store, arguments.restart)
    text = json.dumps(results, indent=1)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

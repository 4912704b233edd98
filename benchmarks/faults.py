"""What the server stands: mixed load at half of what it can do, with everything going wrong at once.

    python benchmarks/faults.py --minutes 10 --json faults.json     # the whole run
    python benchmarks/faults.py --minutes 1 --items 2000 --every 4  # a short one

A PostgreSQL server of its own is frozen twice and restarted once. Models are reloaded every 20 seconds, every fifth
time from a broken directory: in turn with weights that are damaged, and with weights that are not finite. Slow clients
send heads one byte at a time; others send heads and bodies that make no sense. Everything listens at 127.0.0.1 and ends
after the given time.

Claims of the result: no status of 500 or above but 503 while the database is away or just back, no acknowledged event
lost, every /health within a second, every good reload taken and every broken one refused. The growth of memory is the
largest value of the last third divided by the largest of the middle third.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import torch

from abaca.study.environment import commit, processor
from serve import Connection, Load, Server, Size, histories, message, saturate, served, write_model

ROOT = Path(__file__).parents[1]
BACK_SECONDS = 2.0
"""Within this time after its return the database must be in use again."""


def of_tests(path: str) -> Any:
    """A module of the tests."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "tests" / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cluster() -> Any:
    """The PostgreSQL server that the tests use."""
    databases = of_tests("serve/databases.py")
    programs = databases.pg_bin()
    assert programs is not None, "PostgreSQL is not installed"
    return databases.Cluster(programs)


@dataclass
class Run:
    """One run and what was seen."""

    server: Server
    seconds: float
    began: float = field(default_factory=time.perf_counter)
    statuses: list[tuple[str, str, float, float]] = field(default_factory=list)
    """Path, status, and the moments of sending and of the answer, in seconds since the beginning."""
    acknowledged: set[str] = field(default_factory=set)
    health: list[tuple[float, float, float]] = field(default_factory=list)
    """Seconds until /health answered, the moment of asking, and how late the probe itself was woken up after it."""
    fuzzed: Counter[str] = field(default_factory=Counter)
    closed: int = 0
    """Slow clients that the server closed."""
    memory: list[int] = field(default_factory=list)
    cores: list[tuple[float, float]] = field(default_factory=list)
    """Cores that the server used between two reloads, and all processes of the machine."""
    away: list[tuple[float, float]] = field(default_factory=list)
    reloads: Counter[str] = field(default_factory=Counter)

    @property
    def now(self) -> float:
        return time.perf_counter() - self.began

    @property
    def over(self) -> bool:
        return self.now > self.seconds


def requests_of(size: Size, seed: int) -> Iterator[tuple[str, bytes, str | None]]:
    """Recommendations, events and recommendations of stored users: the path, the request, the id of the event."""
    rng, asked = random.Random(seed), histories(size)
    for number in itertools.count():
        drawn, user = rng.random(), f"u{number % 500}"
        if drawn < 0.7:
            yield "/recommend", message("POST", "/recommend", {"history": rng.choice(asked)}), None
        elif drawn < 0.85:
            event = {"user": user, "item": number % size.items, "id": f"event-{seed}-{number}"}
            yield "/events", message("POST", "/events", {"events": [event]}), event["id"]
        else:
            yield "/users", message("GET", f"/users/{user}/recommendations"), None


async def arrivals(run: Run, rate: float, size: Size) -> None:
    """Requests at random moments."""
    rng, free = random.Random(1), []
    tasks: set[asyncio.Task[None]] = set()

    async def one(path: str, request: bytes, event: str | None) -> None:
        connection, load, sent = free.pop() if free else Connection(run.server.port), Load(), run.now
        await connection.ask(request, load)
        free.append(connection)
        status = load.failures[0].how if load.failures else "200"
        run.statuses.append((path, status, sent, run.now))
        if event is not None and status == "200":
            run.acknowledged.add(event)

    due = run.now
    for path, request, event in requests_of(size, seed=1):
        due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, due - run.now))
        if run.over:
            break
        task = asyncio.create_task(one(path, request, event))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    for connection in free:
        connection.close()


async def slow_client(run: Run, number: int) -> None:
    """Sends a head, a byte each second, and begins again when it is closed."""
    head = b"POST /recommend HTTP/1.1\r\nhost: localhost\r\nx-slow: " + b"s" * 100_000
    await asyncio.sleep(number % 50 / 10)
    while not run.over:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", run.server.port)
            for place in range(len(head)):
                if run.over or reader.at_eof():
                    break
                writer.write(head[place : place + 1])
                await writer.drain()
                await asyncio.sleep(1)
            writer.close()
        except OSError:
            pass
        run.closed += not run.over
        await asyncio.sleep(0.5)


def mutated(rng: random.Random) -> bytes:
    """A request with some bytes changed."""
    made = bytearray(message("POST", rng.choice(("/recommend", "/events")), {"history": [1, 2, 3], "n": 5}))
    for _ in range(rng.randint(1, 8)):
        made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made) + b"\r\n\r\n"


def nonsense(rng: random.Random) -> list[bytes]:
    """Requests that are wrong in their heads or their bodies."""
    head = b"host: localhost\r\ncontent-type: application/json\r\n"
    bodies = [b"{", b"[" * 50_000, b'{"history": [' + b"1," * 200_000 + b"1]}", b'{"f":1,' * 3, rng.randbytes(2000)]
    bodies.append(json.dumps({f"f{number}": 1 for number in range(50_000)}).encode())
    heads = [
        *(rng.randbytes(rng.randrange(1, 4000)) + b"\r\n\r\n" for _ in range(5)),
        *(b"GET /" + b"x" * rng.randrange(1, 60_000) + b" HTTP/1.1\r\nhost: localhost\r\n\r\n" for _ in range(3)),
        b"GET /items?" + b"&".join(b"p%d" % number for number in range(2000)) + b" HTTP/1.1\r\n" + head + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000,
    ]
    posts = (
        b"POST /recommend HTTP/1.1\r\n" + head + b"content-length: %d\r\n\r\n" % len(body) + body for body in bodies
    )
    chunked = b"POST /events HTTP/1.1\r\n" + head + b"transfer-encoding: chunked\r\n\r\nzz\r\n"
    made = [*heads, *posts, chunked, *(mutated(rng) for _ in range(20))]
    rng.shuffle(made)
    return made


async def fuzz(run: Run) -> None:
    rng = random.Random(2)
    for request in itertools.chain.from_iterable(nonsense(rng) for _ in itertools.count()):
        if run.over:
            return
        status = "closed"
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", run.server.port)
                with contextlib.suppress(OSError):
                    writer.write(request)
                    await writer.drain()
                    line = await reader.readline()
                    status = line.split(b" ")[1].decode() if line.startswith(b"HTTP/1.1 ") else "closed"
                writer.close()
        run.fuzzed[status] += 1
        await asyncio.sleep(0.1)


PROBE = """
import json, socket, sys, time
port, until, found = int(sys.argv[1]), time.perf_counter() + float(sys.argv[2]), []
first = time.perf_counter()
while (began := time.perf_counter()) < until:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET /health HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n")
            answered = connection.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        answered = False
    took = time.perf_counter() - began
    time.sleep(0.2)
    found.append((took if answered else 1e9, began - first, time.perf_counter() - began - took - 0.2))
print(json.dumps(found))
"""


async def probe(run: Run) -> None:
    """Ask for /health as a load balancer does, from a process of its own, so that the load of this one is not measured.

    How late the machine wakes that process up shows how much of a delay is not the server's.
    """
    command = sys.executable, "-c", PROBE, str(run.server.port), str(run.seconds)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    run.health = json.loads(printed)


async def reload(run: Run, every: float, model: Path, good: list[Path], infinite: Path) -> None:
    """Publish another version every few seconds; each fifth is broken."""
    for number in itertools.count(1):
        psutil.cpu_percent()
        used, began = run.server.cpu, run.now
        await asyncio.sleep(every)
        run.cores.append(((run.server.cpu - used) / (run.now - began), psutil.cpu_percent() / 100 * psutil.cpu_count()))
        if run.over:
            return
        run.memory.append(run.server.resident)
        broken = number % 5 == 0
        publish(infinite if number % 10 == 0 else good[number % 2], model)
        if number % 10 == 5:
            for weights in model.glob("weights-*"):
                weights.unlink()
                weights.write_bytes(b"broken")
        run.server.process.send_signal(signal.SIGHUP)
        run.reloads["broken" if broken else "good"] += 1


def publish(version: Path, model: Path) -> None:
    """Put a version in place as a save does: its files first, then `model.json` in one step."""
    for file in version.iterdir():
        draft = shutil.copy(file, model / "draft")
        os.replace(draft, model / (f"new-{file.name}" if file.name == "model.json" else file.name))
    os.replace(model / "new-model.json", model / "model.json")


async def disturb(run: Run, database: Any) -> None:
    """Freeze the database at a quarter and at half of the time, and restart it at three quarters."""
    for share, how in ((0.25, "freeze"), (0.5, "freeze"), (0.75, "restart")):
        await asyncio.sleep(max(0.0, share * run.seconds - run.now))
        began = run.now
        if how == "freeze":
            database.freeze()
            await asyncio.sleep(min(10.0, run.seconds / 10))
            database.thaw()
        else:
            await asyncio.to_thread(database.stop)
            await asyncio.to_thread(database.start)
        run.away.append((began, run.now))


def excused(run: Run, sent: float, answered: float) -> bool:
    """Whether a request ran while the database was away, or just after."""
    return any(sent < end + BACK_SECONDS and answered > begin for begin, end in run.away)


def result(run: Run, address: str, rate: float, metrics: str) -> dict[str, Any]:
    with psycopg.connect(address) as connection:
        stored = {row[0] for row in connection.execute("SELECT id FROM abaca_events")}
    bad = [one for one in run.statuses if one[1] != "200"]
    wrong = [
        one for one in bad if one[1] != "503" or one[0] == "/recommend" or not excused(run, one[2], one[3])
    ]  # fmt: skip
    counted = dict(re.findall(r'abaca_reloads_total{result="(\w+)"} (\d+)', metrics))
    taken = {"good": int(counted["done"]), "broken": int(counted["refused"])}
    third = len(run.memory) // 3
    middle, last = run.memory[third : 2 * third] or [1], run.memory[2 * third :] or [1]
    lost = sorted(run.acknowledged - stored)
    return {
        "rate": rate, "seconds": run.seconds, "requests": len(run.statuses),
        "statuses": dict(Counter(f"{path} {status}" for path, status, *_ in run.statuses)),
        "wrong": wrong[:50], "fuzzed": dict(run.fuzzed), "slow_clients_closed": run.closed, "away": run.away,
        "reloads": dict(run.reloads), "acknowledged": len(run.acknowledged), "lost": lost[:50],
        "health": {
            "probes": len(run.health), "longest": sorted(run.health, reverse=True)[:10],
            "p99_seconds": sorted(run.health)[len(run.health) * 99 // 100][0],
            "latest_wake_up_of_the_probe": max(late for *_, late in run.health),
        },
        "cores_of_server_and_machine": [[round(one, 2) for one in pair] for pair in run.cores],
        "resident_mib": [size >> 20 for size in run.memory],
        "claims": {
            "only_503_while_the_database_is_away": not wrong,
            "no_5xx_for_nonsense": not any(status.startswith("5") for status in run.fuzzed if status != "503"),
            "nothing_acknowledged_is_lost": not lost,
            "health_within_a_second": max(run.health)[0] < 1,
            "good_reloads_taken_and_broken_ones_refused": taken == {"good": 0, "broken": 0} | run.reloads,
            "growth_of_memory": max(last) / max(middle),
        },
    }  # fmt: skip


async def load(run: Run, rate: float, size: Size, reloads: Awaitable[None], database: Any, slow: int) -> None:
    run.began = time.perf_counter()
    await asyncio.gather(
        arrivals(run, rate, size),
        *(slow_client(run, number) for number in range(slow)),
        fuzz(run),
        probe(run),
        reloads,
        disturb(run, database),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--slow", type=int, default=200, help="slow clients")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between reloads")
    parser.add_argument("--rate", type=float, help="requests a second; half of the saturating rate by default")
    parser.add_argument("--options", default="", help="further options of `abaca serve`, such as '--workers 2'")
    parser.add_argument("--json", help="write the result to this file")
    arguments = parser.parse_args()
    size = Size(items=arguments.items)
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    database = cluster()
    try:
        with tempfile.TemporaryDirectory() as folder:
            versions = [Path(folder) / name / "model" for name in ("a", "b", "infinite")]
            for number, path in enumerate(versions):
                write_model(path, size, seed=number)
            *good, infinite = versions
            of_tests("forged.py").forge_weights(infinite, lambda tensors: tensors["items.weight"].fill_(torch.inf))
            model = Path(folder) / "served" / "model"
            shutil.copytree(good[0], model)
            address = database.database("faults")
            with served(model, "--store", address, *arguments.options.split()) as server:
                drawn = requests_of(size, seed=0)
                for seconds in (2, 10):  # the first time warms up
                    requests = [request for _, request, _ in itertools.islice(drawn, 10_000)]
                    most = asyncio.run(saturate(server, requests, size.clients, seconds)).to_json()["per_second"]
                rate = arguments.rate or most / 2
                run = Run(server, 60 * arguments.minutes)
                reloads = reload(run, arguments.every, model, good, infinite)
                asyncio.run(load(run, rate, size, reloads, database, arguments.slow))
                with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
                    found = result(run, address, rate, answer.read().decode())
    finally:
        database.thaw()
        database.remove()
    environment = {"processor": processor(), "commit": commit(), "torch": torch.__version__, "size": asdict(size)}
    environment["load"] = os.getloadavg()
    text = json.dumps({**environment, "options": arguments.options, **found}, indent=1)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

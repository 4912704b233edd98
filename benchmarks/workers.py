"""How much more two workers carry than one, and what the death of one costs.

    python benchmarks/workers.py --json workers.json
    python benchmarks/workers.py --seconds 2 --rounds 1 --items 2000    # short

Servers with one and with several workers are loaded in turn, several times over, by a client in this process. Then one
of the workers is killed under load: at most the requests that it was answering may fail. Everything listens at
127.0.0.1. On a machine with as many cores as workers the client takes its part of them, so the result has two factors:
of the requests a second, and of the requests for each second of CPU of the server, times the cores that it could use.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch
import uvloop

from abaca.study.environment import commit, processor
from serve import Load, Server, Size, histories, message, saturate, served, write_model

BACK_SECONDS = 120.0
"""Longest time until a killed worker is back."""


def loaded(server: Server, requests: list[bytes], size: Size) -> dict[str, Any]:
    """What a server answers to clients that never pause, the cores that it uses, and what the client costs."""
    began = time.process_time()
    load = uvloop.run(saturate(server, requests, size.clients, size.seconds))
    own = 1000 * (time.process_time() - began) / load.done
    return {**load.to_json(), "cores": load.cpu / load.seconds, "client_cpu_ms": own}


def factor(one: Server, several: Server, workers: int, requests: list[bytes], size: Size) -> dict[str, Any]:
    rounds = [
        {"one": loaded(one, requests, size), "several": loaded(several, requests, size)} for _ in range(size.rounds)
    ]
    ratios = [each["several"]["per_second"] / each["one"]["per_second"] for each in rounds]
    alone = [workers * each["one"]["cpu_ms"] / each["several"]["cpu_ms"] / each["one"]["cores"] for each in rounds]
    return {"rounds": rounds, "factor": statistics.median(ratios), "factor_by_cpu": statistics.median(alone)}


def workers_of(server: Server) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children()


def killed(server: Server, requests: list[bytes], size: Size) -> dict[str, Any]:
    """Kill a worker under load; how many requests failed, and how long until it was back."""
    before = {one.pid for one in workers_of(server)}
    victim = workers_of(server)[0]

    async def both() -> tuple[Load, float]:
        load = asyncio.create_task(saturate(server, requests, size.clients, max(size.seconds, 4)))
        await asyncio.sleep(max(size.seconds, 4) / 2)
        victim.kill()
        return await load, time.perf_counter()

    load, _ = asyncio.run(both())
    began = time.perf_counter()
    while len({one.pid for one in workers_of(server)} - before) < 1 and time.perf_counter() - began < BACK_SECONDS:
        time.sleep(0.05)
    return {
        "answered": load.done,
        "failed": len(load.failures),
        "how": dict(Counter(failure.how for failure in load.failures)),
        "clients": size.clients,
        "workers_after": len(workers_of(server)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    for key, value in asdict(Size()).items():
        if key != "minutes":
            parser.add_argument(f"--{key}", type=type(value), default=value)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    size = Size(**{key: getattr(arguments, key) for key in asdict(Size()) if key != "minutes"})
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        write_model(model, size)
        requests = [message("POST", "/recommend", {"history": history}) for history in histories(size)]
        with served(model) as one, served(model, "--workers", str(arguments.workers)) as several:
            for server in (one, several):
                asyncio.run(saturate(server, requests, size.clients, 1))
            found = factor(one, several, arguments.workers, requests, size)
            results = {**found, "killed": killed(several, requests, size)}
    claims = {
        "at_least_1.6_times": results["factor"] >= 1.6,
        "at_least_1.6_times_by_cpu": results["factor_by_cpu"] >= 1.6,
        "only_requests_in_flight": results["killed"]["failed"] <= size.clients,
    }
    environment = {
        "size": asdict(size), "workers": arguments.workers, "torch": torch.__version__, "processor": processor(),
        "commit": commit(), "load": os.getloadavg(),
    }  # fmt: skip
    text = json.dumps({**environment, **results, "claims": claims}, indent=1)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

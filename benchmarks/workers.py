"""How much more two workers carry than one, and what the death of one costs.

    python benchmarks/workers.py --json workers.json
    python benchmarks/workers.py --seconds 2 --rounds 1 --items 2000    # short

Servers with one and with several workers are loaded in turn, several times over, by a client in this process. Then one
of the workers is killed under load: at most the requests that it was answering may fail. The client needs a core for a
part of the time, so the factor is below the number of cores. Everything listens at 127.0.0.1.
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

from abaca.study.environment import commit, processor
from serve import Load, Server, Size, histories, message, saturate, served, write_model

BACK_SECONDS = 120.0
"""Longest time until a killed worker is back."""


def factor(one: Server, several: Server, requests: list[bytes], size: Size) -> dict[str, Any]:
    rounds = [
        {
            "one": asyncio.run(saturate(one, requests, size.clients, size.seconds)).to_json(),
            "several": asyncio.run(saturate(several, requests, size.clients, size.seconds)).to_json(),
        }
        for _ in range(size.rounds)
    ]
    ratios = [each["several"]["per_second"] / each["one"]["per_second"] for each in rounds]
    return {"rounds": rounds, "factor": statistics.median(ratios)}


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
            results = {**factor(one, several, requests, size), "killed": killed(several, requests, size)}
    claims = {
        "at_least_1.6_times": results["factor"] >= 1.6,
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

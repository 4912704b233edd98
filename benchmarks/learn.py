"""What learning while serving costs: a server with --learn beside one without, loaded in turn.

    python benchmarks/learn.py --json learn.json

Both store events in SQLite files of their own. Clients send recommendations and events in turn, as soon as they are
answered. A share of the events is of new items. CPU time is that of the server's process. Ratios are within a round.
`visible_seconds` is the time from the acknowledgement of events, in which people take a new item after an old one, to
the first list after the old item that holds the new one.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abaca.data.catalogue import Catalogue
from abaca.data.prepare import PrepareOptions
from abaca.evidence.evidence import Evidence, Weights
from abaca.evidence.habits import Clock
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories
from abaca.nn.build import make_model
from abaca.study.environment import commit, processor
from abaca.training.checkpoint import Saved, save_model
from abaca.training.trainer import TrainingOptions
from serve import Server, Size, histories, message, saturate, served

USERS = 5_000
NEW, NEW_ITEMS = 0.002, 100
"""Share of events that are of a new item, and the number of those."""
TAKERS, FRESH, LONGEST = 30, 20, 15.0
"""Users who take each new item, new items whose lists are awaited, and the seconds that one is awaited at most."""


def write_model(folder: Path, size: Size) -> None:
    """SASRec with CP and followers, random weights, and the counts of random rows."""
    torch.manual_seed(0)
    output, sizes = "softmax+CP+followers", {"window": size.history}
    model = make_model("sasrec", output, size.items, **sizes).eval()
    rng = np.random.default_rng(0)
    rows = Histories.of([(rng.random(50) ** 3 * size.items).astype(np.int64) for _ in range(USERS)])
    counts = Transitions.count(rows, size.items)
    weights = {"order": Weights(followers=0.8, own_followers=0.3, sharpness=5.0)}
    evidence = Evidence(("followers",), size.history, Clock(0.0, 0.0), counts, weights)
    training = {
        "encoder_options": sizes, "options": asdict(TrainingOptions(window=size.history)), "everything": False,
        "fingerprint": "random", "best": None, "best_epoch": None, "records": [], "split": {},
        "prepared": asdict(PrepareOptions()),
    }  # fmt: skip
    catalogue = Catalogue(list(range(size.items)))
    save_model(folder, Saved(model, "sasrec", output, sizes, catalogue, training, evidence=evidence))


def requests(size: Size) -> list[bytes]:
    """Recommendations and events in turn."""
    rng, found = random.Random(1), []
    for history in histories(size, 2000):
        found.append(message("POST", "/recommend", {"history": history}))
        item = size.items + rng.randrange(NEW_ITEMS) if rng.random() < NEW else rng.choice(history)
        found.append(message("POST", "/events", {"events": [{"user": f"u{rng.randrange(USERS)}", "item": item}]}))
    return found


def visible(server: Server, size: Size) -> list[float]:
    """Seconds until each of some new items is recommended after the item before it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)

    def post(path: str, body: Any) -> Any:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"the server answered {answer.status}: {content[:200]!r}")
        return json.loads(content)

    found = []
    for number in range(FRESH):
        source, fresh = size.items - 1 - number, size.items + NEW_ITEMS + number
        events = [{"user": f"v{number}-{user}", "item": item} for user in range(TAKERS) for item in (source, fresh)]
        post("/events", {"events": events})
        began = time.perf_counter()
        while fresh not in [each["id"] for each in post("/recommend", {"history": [source]})["answers"][0]["items"]]:
            if time.perf_counter() - began > LONGEST:
                raise SystemExit(f"item {fresh} was not recommended within {LONGEST:g} seconds")
        found.append(round(time.perf_counter() - began, 4))
    connection.close()
    return found


def measure(folder: Path, size: Size) -> dict[str, Any]:
    """Rounds of both servers in turn, each first in every second round."""
    model, sent = folder / "model", requests(size)
    write_model(model, size)
    rounds: list[dict[str, Any]] = []
    with ExitStack() as open_servers:
        servers = {
            name: open_servers.enter_context(served(model, "--store", str(folder / f"{name}.db"), *more))
            for name, more in (("off", ()), ("on", ("--learn",)))
        }
        for number in range(size.rounds + 1):
            order = list(servers) if number % 2 else list(servers)[::-1]
            found = {name: asyncio.run(saturate(servers[name], sent, size.clients, size.seconds)) for name in order}
            if number:  # the first round warms up
                rounds.append({name: load.to_json() for name, load in found.items()})
        seconds = visible(servers["on"], size)
    ratios = {
        f"{name}_on_to_off": [one["on"][name] / one["off"][name] for one in rounds] for name in ("per_second", "cpu_ms")
    }
    medians = {name: statistics.median(values) for name, values in ratios.items()}
    return {"rounds": rounds, **medians, "visible_seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    for key, value in asdict(Size(rounds=6)).items():
        parser.add_argument(f"--{key}", type=type(value), default=value)
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    size = Size(**{key: getattr(arguments, key) for key in asdict(Size())})
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        facts = {"size": asdict(size), "processor": processor(), "commit": commit(), "load_before": os.getloadavg()}
        results = facts | measure(Path(folder), size)
    text = json.dumps(results, indent=1)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

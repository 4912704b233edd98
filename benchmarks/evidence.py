"""What evidence costs: its fit beside an epoch of training, and its share of a served request's CPU time.

    python benchmarks/evidence.py FOLDER ml-1m gowalla-1k --json benchmarks/results/evidence.json

The log is FOLDER/NAME/inter.parquet. The default of `abaca train` is trained for one epoch, with and without evidence.
Two servers then answer the same requests in turn: whole histories of users, with times and *now* where the log has
them, one request after another. CPU time is that of the server's process. The share is what a request with evidence
costs more than one without, of the one with.
"""

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abaca.auto import Shape
from abaca.data.sequences import Sequences
from abaca.memory import keep_memory
from abaca.options import DEFAULT_OUTPUT
from abaca.recommender import Recommender
from abaca.study.environment import environment
from abaca.training.evidence import fit_evidence
from serve import Server, served

OUTPUTS = {"with": DEFAULT_OUTPUT, "without": DEFAULT_OUTPUT.removesuffix("+habits+followers")}


def requests(sequences: Sequences, many: int) -> list[bytes]:
    """Bodies of requests with the histories of test targets, as evaluation reads them."""
    chosen = np.random.default_rng(0).permutation(len(sequences.test.users))[:many]
    users, positions = (np.asarray(part)[chosen] for part in sequences.test)
    histories = sequences.histories(users, positions)
    ids = np.asarray(sequences.catalogue.ids)
    found = []
    for number in range(len(histories)):
        one = histories.take(np.array([number]))
        body: dict[str, Any] = {"history": ids[one.items].tolist(), "n": 10}
        if one.times is not None:
            body |= {"times": one.times.tolist(), "now": float(one.times[-1])}
        found.append(json.dumps(body).encode())
    return found


def asked(server: Server, bodies: list[bytes]) -> float:
    """CPU milliseconds of the server for each request."""
    before = server.cpu
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for body in bodies:
        connection.request("POST", "/recommend", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"the server answered {answer.status}: {content[:200]!r}")
    connection.close()
    return 1000 * (server.cpu - before) / len(bodies)


def compare(log: Path, min_item: int, rounds: int, many: int) -> dict[str, Any]:
    """The cost of the fit, and of requests, on one log."""
    with tempfile.TemporaryDirectory(prefix="abaca-bench-") as temporary:
        folders, trained = {name: Path(temporary) / name for name in OUTPUTS}, {}
        for name, output in OUTPUTS.items():
            trained[name] = Recommender(output=output, epochs=1, seed=0, min_item=min_item)
            trained[name].fit(log, folder=folders[name], progress=False)
        fitted = trained["with"]
        sequences = fitted.sequences
        assert sequences is not None
        assert fitted.saved is not None
        began = time.process_time()
        fit_evidence(fitted.ranker().model, sequences, fitted.training)
        fit = time.process_time() - began
        bodies = requests(sequences, many)
        spent: dict[str, list[float]] = {name: [] for name in OUTPUTS}
        with served(folders["with"]) as first, served(folders["without"]) as second:
            servers = {"with": first, "without": second}
            for server in servers.values():
                asked(server, bodies)
            for _ in range(rounds):
                for name, server in servers.items():
                    spent[name].append(asked(server, bodies))
        shares = [1 - less / more for more, less in zip(spent["with"], spent["without"], strict=True)]
        return {
            "encoder": fitted.encoder, "users": Shape.of(sequences).users, "items": sequences.catalogue.size,
            "fit_cpu_s": round(fit, 2), "epoch_s": fitted.saved.training["records"][0]["seconds"],
            "request_ms": {name: round(statistics.median(each), 3) for name, each in spent.items()},
            "share": round(statistics.median(shares), 3), "shares": [round(share, 3) for share in shares],
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the logs")
    parser.add_argument("names", nargs="+", help="logs: FOLDER/NAME/inter.parquet")
    parser.add_argument("--min-item", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=300, help="requests of a round")
    parser.add_argument("--json", type=Path, required=True, help="file of the results; those of other logs stay")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    for name in given.names:
        log = given.folder / name / "inter.parquet"
        found = compare(log, given.min_item, given.rounds, given.requests)
        results = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
        results[name] = {**found, "load": os.getloadavg(), "machine": environment()}
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

"""What rules cost: requests with every rule of a policy beside plain ones, in turn.

    python benchmarks/rules.py --json benchmarks/results/rules.json

SASRec with random weights answers histories of 50 items with times. Each round measures the CPU time of a plain answer
and of one under all rules, for one history at a time, for batches of 64, and over HTTP within this process.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastapi.testclient import TestClient

import abaca
from abaca.data.catalogue import Catalogue
from abaca.data.prepare import PrepareOptions
from abaca.nn.build import make_model
from abaca.policy import Policy
from abaca.serve.app import make_app
from abaca.serve.metrics import Metrics
from abaca.serve.service import Service
from abaca.study.environment import commit, processor
from abaca.training.checkpoint import Saved, save_model
from abaca.training.trainer import TrainingOptions

NOW = 1_700_000_000
OUTPUT = "softmax+CPR:100+Mi"


@dataclass(frozen=True)
class Size:
    """What is measured."""

    items: int = 50_000
    history: int = 50
    brands: int = 500
    departments: int = 20
    batch: int = 64
    rounds: int = 40


def write_model(folder: Path, size: Size) -> None:
    """Random weights: what it answers is of no use, what it costs is the same."""
    torch.manual_seed(0)
    rng, options = np.random.default_rng(0), {"window": size.history}
    model = make_model("sasrec", OUTPUT, size.items, **options).eval()
    columns = {
        "brand": [f"brand {number}" for number in rng.integers(0, size.brands, size.items)],
        "department": [f"department {number}" for number in rng.integers(0, size.departments, size.items)],
    }
    training = {
        "encoder_options": options, "options": asdict(TrainingOptions(window=size.history)), "everything": False,
        "fingerprint": "random", "best": None, "best_epoch": None, "records": [], "split": {},
        "prepared": asdict(PrepareOptions()), "time_unit": "seconds",
    }  # fmt: skip
    catalogue = Catalogue(list(range(size.items)), None, columns)
    save_model(folder, Saved(model, "sasrec", OUTPUT, options, catalogue, training))


def all_rules(size: Size) -> dict[str, Any]:
    """Every rule that a policy has; two thirds of the catalogue are excluded or not in stock."""
    return {
        "max_repeats": 3,
        "min_new": 5,
        "exclude": list(range(0, size.items, 5))[:2000],
        "candidates": list(range(0, size.items, 3))[:9000],
        "cooldown": ["7 days", "5 items"],
        "at_most": {"brand": 2, "department": {"department 3": 1}},
        "at_least": {"department": {"department 7": 2}},
        "boost": {str(item): 0.2 for item in range(0, 60, 3)},
        "boost_category": {"brand": {"brand 1": 0.3, "brand 2": -0.5}},
        "diversity": 0.3,
    }


def questions(size: Size, many: int) -> tuple[list[list[int]], list[list[float]]]:
    """Histories with repeats, an item every third of a day."""
    rng = np.random.default_rng(1)
    histories = (rng.random((many, size.history)) ** 3 * size.items).astype(int).tolist()
    times = [[NOW - 28800.0 * ago for ago in range(size.history, 0, -1)]] * many
    return histories, times


def measure(ways: dict[str, Callable[[int], None]], rounds: int) -> dict[str, Any]:
    """The CPU milliseconds of each way, in turn, and their ratio."""
    for way in ways.values():
        way(0)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            began = time.process_time()
            way(number)
            found[name].append(1000 * (time.process_time() - began))
    median = {f"{name}_ms": statistics.median(each) for name, each in found.items()}
    ratios = [all_of / plain for plain, all_of in zip(*found.values(), strict=True)]
    return {**median, "ratio": statistics.median(ratios)}


def run(size: Size) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        write_model(folder, size)
        rec, rules = abaca.load(folder), all_rules(size)
        histories, times = questions(size, max(size.batch, size.rounds))
        policies = {"plain": Policy(), "filters": Policy(exclude=rules["exclude"], candidates=rules["candidates"]),
                    "rules": Policy(**{k: v for k, v in rules.items() if k not in ("exclude", "candidates")}),
                    "all": Policy(**rules)}  # fmt: skip

        def alone(name: str) -> Callable[[int], Any]:
            policy = policies[name]
            return lambda at: rec.recommend_many([histories[at]], policy=policy, times=[times[at]], now=[NOW])

        def batch(name: str) -> Callable[[int], Any]:
            some, policy = slice(size.batch), policies[name]
            return lambda _: rec.recommend_many(
                histories[some], policy=policy, times=times[some], now=[NOW] * size.batch
            )

        with TestClient(make_app(Service([folder]), Metrics()), "http://localhost") as client:

            def http(given: dict[str, Any]) -> Callable[[int], Any]:
                return lambda at: client.post(
                    "/recommend", json={"history": histories[at], "times": times[at], "now": NOW, **given}
                ).raise_for_status()

            served = measure({"plain": http({}), "all": http(rules)}, size.rounds)
        return {
            "one": measure({name: alone(name) for name in ("plain", "all")}, size.rounds),
            "one_without_lists": measure({name: alone(name) for name in ("plain", "rules")}, size.rounds),
            "one_lists_only": measure({name: alone(name) for name in ("plain", "filters")}, size.rounds),
            "batch": measure({name: batch(name) for name in ("plain", "all")}, max(3, size.rounds // 4)),
            "http": served,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--items", type=int, default=Size.items)
    parser.add_argument("--rounds", type=int, default=Size.rounds)
    given = parser.parse_args()
    torch.set_num_threads(1)
    size = Size(items=given.items, rounds=given.rounds)
    document = {
        "size": asdict(size), "torch": torch.__version__, "processor": processor(), "commit": commit(),
        "load_before": os.getloadavg(), **run(size),
    }  # fmt: skip
    text = json.dumps(document, indent=1) + "\n"
    if given.json is not None:
        given.json.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

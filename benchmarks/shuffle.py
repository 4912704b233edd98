"""What it costs in quality that a large log is shuffled in blocks: the same training with smaller and smaller blocks.

    python benchmarks/shuffle.py --json shuffle.json
    python benchmarks/shuffle.py purchases.parquet --user customer --item sku --time ts

A log with fewer windows than `abaca.data.batches.BLOCK` is one block. Here blocks are a share of this log, made of 32
segments, or of a single one: neighbouring users alone, the worst that can happen. Every arm has the same seeds.

Without a log it is one whose neighbouring users are alike: sixty groups, each with thirty of 620 items of its own.
"""

import argparse
import json
from typing import Any

import numpy as np
import pyarrow

from abaca import read_log
from abaca.data import batches
from abaca.recommender import Recommender

ARMS = ((1, 32), (8, 32), (64, 32), (64, 1))
"""Blocks of an epoch, and segments of a block."""
MODEL: dict[str, Any] = {
    "encoder": "gru4rec", "output": "softmax+CP", "dim": 16, "hidden": 32, "start": "random", "share": 1.0, "lr": 0.01,
    "average": 0.9, "dropout": 0.1, "batch_targets": 150, "warmup": 50,
}  # fmt: skip
GROUPS, EACH, LENGTH, RANGE = 60, 40, 16, 30


def alike() -> pyarrow.Table:
    """Users of a group follow each other; an item is followed by one of the next three of the group's items."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(GROUPS), EACH)[:, None]
    place = rng.integers(RANGE, size=group.shape) + rng.integers(1, 4, size=(len(group), LENGTH)).cumsum(1)
    users = np.repeat(np.arange(len(group)), LENGTH)
    items = 10 * group + place % RANGE
    return pyarrow.table({"user": users, "item": items.ravel(), "time": np.tile(np.arange(LENGTH), len(group))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", nargs="?")
    for column in ("user", "item", "time"):
        parser.add_argument(f"--{column}")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json")
    given = parser.parse_args()
    log = read_log(given.log or alike(), user=given.user, item=given.item, time=given.time)
    sequences, rows = Recommender().open(log), []
    windows = sequences.users + sequences.training_targets // 25
    for seed in range(given.seeds):
        for blocks, segments in ARMS:
            batches.BLOCK = 1 << 30 if blocks == 1 else windows // blocks
            batches.SEGMENT = max(1, sequences.users // (blocks * segments))
            fitted = Recommender(**MODEL, epochs=given.epochs, patience=0, seed=seed).fit(sequences, progress=False)
            assert fitted.saved is not None
            found = [record["ndcg@10"] for record in fitted.saved.training["records"]]
            rows.append({"blocks": blocks, "segments": segments, "seed": seed, "ndcg@10": found})
            print(json.dumps(rows[-1]), flush=True)
    if given.json:
        facts = {"users": sequences.users, "items": sequences.catalogue.size, "interactions": len(sequences.items)}
        with open(given.json, "w") as file:
            json.dump({**facts, "model": MODEL, "epochs": given.epochs, "runs": rows}, file, indent=1)


if __name__ == "__main__":
    main()

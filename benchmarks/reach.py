"""CPU time until a model validates as well as the default of 0.1 at its best, one thread.

    python benchmarks/reach.py FOLDER amazon-beauty-5core ml-1m --json reach.json

The log is FOLDER/NAME/inter.parquet. The default of 0.1, SASRec with softmax+CPR:100+Mi and fixed options, is trained
to its end. Then the default of today is trained until its validation figure is as high. This is the figure of the
network alone: evidence would raise it. The time of validation counts on both sides; the time of today's start vectors
counts too.
"""

import argparse
import json
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import torch

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.memory import keep_memory
from abaca.recommender import Recommender
from abaca.study.environment import environment
from abaca.training.callbacks import Callback
from abaca.types import Record

BEFORE: dict[str, Any] = {"encoder": "sasrec", "output": "softmax+CPR:100+Mi", "options": "fixed"}
STUDY = Path(__file__).parents[1] / "studies/twelve/study.toml"
"""It says of which logs rare items are dropped."""

Point = tuple[float, float]


class Curve(Callback):
    """The CPU seconds and the validation figure after each epoch; ends at a figure."""

    def __init__(self, enough: float | None = None) -> None:
        self.enough = enough
        self.points: list[Point] = []
        self.began = time.process_time()

    def on_epoch(self, record: Record) -> None:
        self.points.append((round(time.process_time() - self.began, 1), record["ndcg@10"]))
        print(json.dumps(self.points[-1]), flush=True)

    @property
    def stops(self) -> bool:
        return self.enough is not None and self.points[-1][1] >= self.enough


def reached(points: list[Point], enough: float) -> float | None:
    """The CPU seconds until a figure was reached; None where it never was."""
    return next((seconds for seconds, figure in points if figure >= enough), None)


def compare(sequences: Sequences, seed: int) -> dict[str, Any]:
    """Both sides on one log."""
    before = Curve()
    Recommender(**BEFORE, seed=seed).fit(sequences, callback=before)
    best = max(figure for _, figure in before.points)
    now = Curve(best)
    fitted = Recommender(seed=seed).fit(sequences, callback=now)
    seconds = reached(before.points, best), reached(now.points, best)
    share = None if seconds[0] is None or seconds[1] is None else round(seconds[1] / seconds[0], 3)
    chosen = {"encoder": fitted.encoder, "output": fitted.output, **fitted.chosen}
    return {
        "best": best,
        "seconds": seconds,
        "share": share,
        "before": before.points,
        "now": now.points,
        "model": chosen,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the logs")
    parser.add_argument("names", nargs="+", help="logs: FOLDER/NAME/inter.parquet")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True, help="file of the results; those of other logs stay")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    fewest = {each["name"]: each.get("min_item", 1) for each in tomllib.loads(STUDY.read_text("utf-8"))["data"]}
    for name in given.names:
        with tempfile.TemporaryDirectory(prefix="abaca-bench-") as folder:
            with read_log(given.folder / name / "inter.parquet") as log:
                sequences = prepare(log, Path(folder) / "sequences", options=PrepareOptions(min_item=fewest[name]))
            found = compare(sequences, given.seed)
        print(name, f"{found['best']:.4f}", found["seconds"], found["share"], flush=True)
        results = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
        results[name] = {**found, "seed": given.seed, "machine": environment()}
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""CPU time until a model validates as well as the default of 0.1 at its best, one thread.

    python benchmarks/reach.py FOLDER amazon-beauty-5core ml-1m --json reach.json

The log is FOLDER/NAME/inter.parquet. The default of 0.1, SASRec with softmax+CPR:100+Mi and fixed options, is trained
to its end and validated after each epoch. Then the default of today is trained until it validates as well: after its
first step, after parts of an epoch, and after epochs. The time is that of training, with the start vectors and the fit
of evidence at that point. Validation is on top of it and shown apart: for today's default the fits to both halves of
the validation targets, each of which ranks the other.
"""

import argparse
import json
import tempfile
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from race import default

from abaca.bench.step import Enough
from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.evidence.fit import choose_strength, fitted
from abaca.memory import keep_memory
from abaca.nn.model import swapped
from abaca.recommender import Recommender
from abaca.study.environment import environment
from abaca.training.callbacks import Callback, Step
from abaca.training.evidence import count_evidence, fit_evidence, known_targets, read_targets
from abaca.training.trainer import Trainer
from abaca.types import Record

BEFORE: dict[str, Any] = {"encoder": "sasrec", "output": "softmax+CPR:100+Mi", "options": "fixed"}
EPOCHS = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
"""After which today's default is validated; 0 is its first step."""
STUDY = Path(__file__).parents[1] / "studies/twelve/study.toml"
"""It says of which logs rare items are dropped."""

Point = dict[str, float]


class Before(Callback):
    """The CPU seconds of training and of validation up to each point, and its figure."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.trained, self.validated, self.latest = 0.0, 0.0, time.process_time()

    def passed(self) -> float:
        """The CPU seconds since this was asked last."""
        before, self.latest = self.latest, time.process_time()
        return self.latest - before

    def add(self, epochs: float, training: float, validation: float, figure: float) -> None:
        seconds = {"training": round(training, 1), "validation": round(validation, 1)}
        self.points.append({"epochs": round(epochs, 3), **seconds, "figure": figure})
        print(json.dumps(self.points[-1]), flush=True)

    def on_step(self, step: Step) -> None:
        self.trained += self.passed()

    def on_epoch(self, record: Record) -> None:
        self.validated += self.passed()
        self.add(record["epoch"] + 1, self.trained, self.validated, record["ndcg@10"])


class Now(Before):
    """The same for a model with evidence, which ends training at a figure."""

    def __init__(self, enough: float) -> None:
        super().__init__()
        self.enough = enough
        self.trainer: Trainer | None = None

    def on_step(self, step: Step) -> None:
        super().on_step(step)
        epochs = step.epoch + step.step / step.steps
        if len(self.points) < len(EPOCHS) and epochs >= EPOCHS[len(self.points)]:
            self.measure(epochs)
        self.passed()

    def on_epoch(self, record: Record) -> None:
        self.passed()

    def measure(self, epochs: float) -> None:
        """Fit the evidence, whose time is that of training, and then validate."""
        trainer = self.trainer
        assert trainer is not None
        model, sequences, options = trainer.model, trainer.sequences, trainer.options
        self.passed()
        with swapped(trainer.weights, trainer.average), torch.no_grad():
            model.eval()
            counted = count_evidence(model, sequences, options, None)
            read = read_targets(counted, model, sequences, known_targets(model, sequences), options.window)
            fitted(counted, read, choose_strength(read, counted.parts))
            fit = self.passed()
            figure = fit_evidence(model, sequences, options)[1]["with_evidence"]
            validation = self.passed() - fit
        model.train()
        self.add(epochs, self.trained + fit, validation, figure)
        if figure >= self.enough:
            raise Enough


def compare(sequences: Sequences, seed: int, before: list[Point]) -> dict[str, Any]:
    """Both sides on one log; that of 0.1 if its points are not known yet."""
    if not before:
        old = Before()
        Recommender(**BEFORE, seed=seed).fit(sequences, callback=old, progress=False)
        before = old.points
    best = max(before, key=lambda point: point["figure"])
    now = Now(best["figure"])
    now.trainer, chosen = default(sequences, seed)
    with suppress(Enough):
        now.trainer.run(now)
    last, both = now.points[-1], ("training", "validation")
    share = {"training": last["training"] / best["training"]}
    share["with validation"] = sum(last[part] for part in both) / sum(best[part] for part in both)
    found = {name: round(value, 3) if last["figure"] >= best["figure"] else None for name, value in share.items()}
    return {"best": best, "reached": last, "share": found, "before": before, "now": now.points, "model": chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the logs")
    parser.add_argument("names", nargs="+", help="logs: FOLDER/NAME/inter.parquet")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json", type=Path, required=True, help="file of the results; those of other logs stay, and the points of 0.1"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    fewest = {each["name"]: each.get("min_item", 1) for each in tomllib.loads(STUDY.read_text("utf-8"))["data"]}
    for name in given.names:
        with tempfile.TemporaryDirectory(prefix="abaca-bench-") as folder:
            with read_log(given.folder / name / "inter.parquet") as log:
                sequences = prepare(log, Path(folder) / "sequences", options=PrepareOptions(min_item=fewest[name]))
            results = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
            found = compare(sequences, given.seed, results.get(name, {}).get("before", []))
        print(name, found["best"], found["reached"], found["share"], flush=True)
        results[name] = {**found, "seed": given.seed, "machine": environment()}
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

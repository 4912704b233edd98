"""What each process of a test runs: steps of training in float64, whose losses are noted.

As a program: `python together.py OUT CASE=FOLDER …`, in every process of a group. A test can call `steps_of` itself.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from abaca.data.sequences import Sequences
from abaca.evaluation import evaluate
from abaca.nn.build import make_model
from abaca.nn.features import Described
from abaca.nn.item_columns import ItemFeatures
from abaca.nn.model import Model
from abaca.options import TrainingOptions
from abaca.training.callbacks import Callback, Step
from abaca.training.group import joined
from abaca.training.trainer import Trainer

STEPS = 50
evaluate.CHUNK = 16  # so that all processes have validation targets
OPTIONS: dict[str, Any] = {
    "epochs": 3, "lr": 0.01, "warmup": 5, "batch_targets": 70, "targets": 6, "overlap": 5, "window": 10,
    "average": 0.9, "patience": 0, "clip": 1.0,
}  # fmt: skip
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "softmax": ("gru4rec", "softmax", {}),
    "cpr": ("sasrec", "softmax+CPR:20,100,500+Mi", {}),
    "default": ("gru4rec", "softmax+CP+habits+followers", {}),
    "sampled": ("gru4rec", "softmax+CP", {"share": 0.3}),
    "types": ("gru4rec", "softmax+C", {"event_weights": "view=0.2,cart=0.5,buy=1"}),
    "features": ("gru4rec", "softmax+C", {"features": "kind", "feature_dropout": 0.3}),
    "sampled features": ("gru4rec", "softmax+C", {"share": 0.4, "features": "kind", "feature_dropout": 0.3}),
    "few windows": ("gru4rec", "softmax+C", {"batch_targets": 7}),
}
"""Encoder, output layer, and options of training."""


SIZES: dict[str, dict[str, Any]] = {"sasrec": {"window": 11, "attention_dropout": 0.0}, "gru4rec": {"hidden": 8}}


class Enough(Exception):
    pass


class Count(Callback):
    """Ends training after some steps."""

    def __init__(self) -> None:
        self.left = STEPS

    def on_step(self, step: Step) -> None:
        self.left -= 1
        if not self.left:
            raise Enough


def make(case: str, sequences: Sequences) -> Model:
    """A fresh model in float64 without dropout."""
    encoder, output, more = CASES[case]
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"dim": 8, "dropout": 0.0} | SIZES[encoder]
    catalogue, described = sequences.catalogue.known(), None
    if "features" in more:
        found = ItemFeatures.of("kind", catalogue.columns, catalogue.size)
        entries = found.entries(catalogue.columns, catalogue.size)
        described = Described(found, entries, catalogue.size, more["feature_dropout"])
    return make_model(encoder, output, catalogue.size, described, types=sequences.types, **sizes).double()


def steps_of(case: str, folder: Path) -> dict[str, Any]:
    """The loss and the number of targets of each step, and the validation figures after the last."""
    sequences = Sequences.open(folder)
    trainer = Trainer(make(case, sequences), sequences, TrainingOptions(**OPTIONS | CASES[case][2]))
    steps, step = [], trainer._step
    trainer._step = lambda batch: steps.append(step(batch)) or steps[-1]  # type: ignore[method-assign, func-returns-value]
    trainer.validates = False  # ranking is in float32, as is the check of the weights
    trainer._check = lambda: None  # type: ignore[method-assign]
    try:
        trainer.run(Count())
    except Enough:
        trainer.model.float()
        figures = trainer.validate()
        total = sum(float(weight.detach().sum()) for weight in trainer.weights.values())
        return {
            "losses": [loss for loss, _ in steps],
            "targets": [n for _, n in steps],
            "figures": figures,
            "sum": total,
        }
    raise AssertionError(f"{case}: the run has less than {STEPS} steps")


def main() -> None:
    out, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    with joined() as group:
        found = {case: steps_of(case, Path(folder)) for case, folder in (each.split("=") for each in cases)}
    Path(out, f"{group.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()

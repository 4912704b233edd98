"""The whole training step on a log: batches, encoder, output layer, loss, gradients, optimizer."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from abaca.bench.measure import Contender, Spent
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.nn.build import make_model
from abaca.nn.encoders import ENCODERS
from abaca.nn.model import Model
from abaca.options import TrainingOptions
from abaca.training.callbacks import Callback, Step
from abaca.training.trainer import Trainer

OUTPUTS = ("softmax", "softmax+Mi", "softmax+CP", "softmax+CPR:100+Mi", "softmax+CPR:20,100,500+Mi")
REFERENCES = ("softmax", "softmax+Mi")


class Enough(Exception):
    """Raised by a callback to end training."""


class Burst(Callback):
    """Ends training after some steps and holds their cost; the first step is a warm-up."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.marks: list[tuple[float, float, int]] = []

    def on_step(self, step: Step) -> None:
        if step.step in (1, self.steps + 1):
            self.marks.append((time.process_time(), time.perf_counter(), step.targets))
        if step.step > self.steps:
            raise Enough

    @property
    def spent(self) -> Spent:
        (cpu, wall, targets), end = self.marks
        return Spent(end[0] - cpu, end[1] - wall, end[2] - targets)


def burst(model: Model, sequences: Sequences, options: TrainingOptions, steps: int) -> Spent:
    """The cost of some training steps at the beginning of an epoch."""
    trainer = Trainer(model, sequences, options)
    if trainer.steps_per_epoch <= steps:
        raise SpecError(
            f"{sequences.path} has {trainer.steps_per_epoch} steps an epoch, too few to measure {steps} of them after "
            "the first; take a longer log, fewer --steps or fewer --batch-targets"
        )
    callback = Burst(steps)
    try:
        trainer.run(callback)
    except Enough:
        return callback.spent
    raise AssertionError("a burst ends before its epoch")


@dataclass(frozen=True)
class StepBench:
    """Training steps of each encoder with each output layer, on one prepared log."""

    sequences: Path
    encoders: tuple[str, ...] = tuple(ENCODERS)
    outputs: tuple[str, ...] = OUTPUTS
    targets: int = TrainingOptions.targets
    overlap: int = TrainingOptions.overlap
    batch_targets: int = 800
    steps: int = 10

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise SpecError(f"steps must be above 0, got {self.steps}")

    @property
    def title(self) -> str:
        return f"Training step of {self.batch_targets:,} targets, overlap {self.overlap}, default sizes"

    def references(self, name: str) -> Mapping[str, str]:
        """Each output layer is compared with softmax on the same encoder."""
        encoder, _ = name.split(" ")
        return {output: f"{encoder} {output}" for output in REFERENCES}

    def contenders(self) -> Mapping[str, Contender]:
        sequences = Sequences.open(self.sequences)
        options = TrainingOptions(targets=self.targets, overlap=self.overlap, batch_targets=self.batch_targets)

        def run(encoder: str, output: str) -> Spent:
            name = f"{encoder} {output}"
            if name not in models:
                models[name] = make_model(encoder, output, sequences.catalogue.size)
            return burst(models[name], sequences, options, self.steps)

        models: dict[str, Model] = {}
        return {f"{e} {o}": partial(run, e, o) for e in self.encoders for o in self.outputs}

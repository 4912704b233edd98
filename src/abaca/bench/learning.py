"""What training is worth: the validation figure against the CPU time spent on training, here and in RecBole."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from abaca.bench.evaluate import METRICS
from abaca.bench.peer import Peer
from abaca.bench.peers import PAIRS, Pair
from abaca.bench.sizes import paper_sizes
from abaca.bench.step import Enough
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.nn.model import make_model
from abaca.options import TrainingOptions
from abaca.study.draw import Look, Sheet
from abaca.training.trainer import Callback, Step, Trainer
from abaca.types import Record

METRIC = METRICS[0]
LOOKS = (Look("red", "o", "-"), Look("blue", "s", "--"))


class Point(NamedTuple):
    """How good a model is after so much training; validation itself is not counted."""

    cpu_seconds: float
    targets: int
    value: float


class Curve(Callback):
    """Validates at equal distances of CPU time and stops training when the time is over."""

    def __init__(
        self, validate: Callable[[], float], seconds: float, points: int, told: Callable[[Point], None],
        clock: Callable[[], float] = time.process_time,
    ) -> None:  # fmt: skip
        self.validate, self.seconds, self.every, self.told, self.clock = (
            validate,
            seconds,
            seconds / points,
            told,
            clock,
        )
        self.points: list[Point] = []
        self.spent, self.latest = 0.0, clock()
        self.epochs, self.targets = 0, 0  # targets of the epochs before, and of this one

    def on_step(self, step: Step) -> None:
        self.spent += self.clock() - self.latest
        self.targets = step.targets
        if self.spent >= self.every * (len(self.points) + 1):
            self.points.append(Point(self.spent, self.epochs + self.targets, self.validate()))
            self.told(self.points[-1])
        if self.spent >= self.seconds:
            raise Enough
        self.latest = self.clock()

    def on_epoch(self, record: Record) -> None:
        """What the trainer did since its last step, it did to validate."""
        self.epochs, self.targets = self.epochs + self.targets, 0
        self.latest = self.clock()


def pair_of(model: str) -> Pair:
    """The pair of a model of RecBole."""
    found = next((pair for pair in PAIRS if pair.peer == model), None)
    if found is None:
        raise SpecError(f"there is no peer {model}; there are {', '.join(pair.peer for pair in PAIRS)}")
    return found


def learn(
    pair: Pair, sequences: Sequences, options: TrainingOptions, seconds: float, points: int,
    told: Callable[[Point], None],
) -> list[Point]:  # fmt: skip
    """Train ours for so much CPU time."""
    model = make_model(pair.encoder, pair.output, sequences.catalogue.size, **paper_sizes(pair.encoder))
    trainer = Trainer(model, sequences, options)
    callback = Curve(lambda: trainer.validate()[METRIC], seconds, points, told)
    with suppress(Enough):
        trainer.run(callback)
    return callback.points


def learn_peer(pair: Pair, peer: Peer, seconds: float, points: int, told: Callable[[Point], None]) -> list[Point]:
    """Train RecBole's for so much CPU time, a batch at a time."""
    found: list[Point] = []
    spent, targets = 0.0, 0
    while spent < seconds:
        burst = peer.spend("train", model=pair.peer, batches=1)
        spent, targets = spent + burst.cpu, targets + burst.targets
        if spent >= seconds / points * (len(found) + 1):
            found.append(Point(spent, targets, peer.ask("validate", model=pair.peer)[METRIC]))
            told(found[-1])
    return found


def figure(title: str, curves: Mapping[str, list[Point]]) -> str:
    """One line a side."""
    sheet = Sheet("learning", title, panel=(6.2, 3.5))
    (panel,) = sheet.panels
    for (name, points), look in zip(curves.items(), LOOKS, strict=True):
        sheet.line(panel, name, [(point.cpu_seconds / 60, point.value) for point in points], look)
    sheet.title(panel, title, "minutes of CPU time spent on training", f"validation {METRIC.upper()}")
    sheet.legend(columns=2)
    return sheet.svg(alone=True)


def table(title: str, curves: Mapping[str, list[Point]]) -> str:
    """Each side's points."""
    lines = [f"# {title}", "", f"| | CPU s | targets | {METRIC.upper()} |", "|---|--:|--:|--:|"]
    for name, points in curves.items():
        lines += [f"| {name} | {p.cpu_seconds:,.0f} | {p.targets:,} | {p.value:.4f} |" for p in points]
    return "\n".join(lines) + "\n"

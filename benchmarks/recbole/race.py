"""The same models here and in RecBole 1.2.1, one thread each: speed in turns, or quality against CPU time.

    benchmarks/recbole/setup.sh recbole
    python benchmarks/recbole/race.py speed SEQUENCES --peer recbole/bin/python --to benchmarks/results/recbole
    python benchmarks/recbole/race.py learning SEQUENCES --peer recbole/bin/python --model GRU4RecCPR

SEQUENCES is a folder made by `abaca prepare`. RecBole leaves autograd's anomaly detection on, which slows it
down: training is measured with and without it.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from peer import Peer

from abaca.bench.evaluate import GIVEN, WHOLE, Ranking
from abaca.bench.measure import LEAST_REPETITIONS, Contender, Measurement, compared, rounds
from abaca.bench.report import machine
from abaca.bench.step import Enough, burst
from abaca.data.sequences import Sequences
from abaca.evaluation import metrics
from abaca.nn.build import make_model
from abaca.nn.model import Model
from abaca.options import TrainingOptions, training_defaults
from abaca.study.draw import Figure, Style
from abaca.study.environment import environment
from abaca.training.checkpoint import load_model
from abaca.training.trainer import Callback, Step, Trainer
from abaca.types import Record

THEIR_METRICS = {"ndcg@10": "ndcg@10", "hr@10": "hit@10", "mrr@10": "mrr@10"}
LEARNED_BATCHES = 100
"""RecBole's batches before its scores are ranked on both sides: an untrained model ranks too few targets high."""


class Pair(NamedTuple):
    """A model of RecBole and the same one here."""

    peer: str
    encoder: str
    output: str

    @property
    def name(self) -> str:
        return f"{self.encoder} {self.output}"

    def model(self, items: int) -> Model:
        """An untrained model with the paper's sizes."""
        sizes = {"hidden": 64} if self.encoder == "gru4rec" else {}
        return make_model(self.encoder, self.output, items, dropout=0.1, **sizes)


PAIRS = {
    pair.peer: pair
    for pair in (
        Pair("SASRecCPR", "sasrec", "softmax+CPR:100+Mi"),
        Pair("GRU4RecCPR", "gru4rec", "softmax+CPR:100+Mi"),
        Pair("SASRec", "sasrec", "softmax"),
        Pair("GRU4Rec", "gru4rec", "softmax"),
        Pair("RepeatNet", "gru4rec", "repeatnet"),
    )
}


def training(pair: Pair, model: Model, sequences: Sequences, peer: Peer, args: Any) -> dict[str, Contender]:
    """Training steps with windows that overlap as by default, or not at all."""
    found: dict[str, Contender] = {}
    for targets, overlap in ((50, 0), (TrainingOptions.targets, TrainingOptions.overlap)):
        options = TrainingOptions(targets=targets, overlap=overlap, batch_targets=args.batch_targets)
        found[f"{pair.name}, training, overlap {overlap}"] = partial(burst, model, sequences, options, args.steps)
    for label, anomaly in (("RecBole", False), ("RecBole with anomaly detection", True)):
        request = {"model": pair.peer, "batches": args.peer_batches, "anomaly": anomaly}
        found[f"{label}: {pair.peer}, training"] = partial(peer.spend, "train", **request)
    return found


def evaluation(pair: Pair, model: Model, sequences: Sequences, peer: Peer) -> dict[str, Contender]:
    """Full ranking of the test targets, in all and given the encoder's states."""
    ranking = Ranking(model, sequences)
    found: dict[str, Contender] = {}
    for part in (WHOLE,) if pair.output == "repeatnet" else (WHOLE, GIVEN):
        found[f"{pair.name}, {part}"] = partial(ranking.spend, part)
        request = {"model": pair.peer, "given_states": part == GIVEN}
        found[f"RecBole: {pair.peer}, {part}"] = partial(peer.spend, "evaluate", **request)
    return found


def references(name: str) -> dict[str, str]:
    """A model here is compared with the same work in RecBole."""
    model, work = name.split(", ", 1)
    peer = next((pair.peer for pair in PAIRS.values() if pair.name == model), None)
    there = work.split(",")[0]
    return {} if peer is None else {kind: f"{kind}: {peer}, {there}" for kind in KINDS}


KINDS = ("RecBole", "RecBole with anomaly detection")


def same_scores(pair: Pair, peer: Peer) -> dict[str, tuple[float, float]]:
    """Each metric of the test targets as computed here and by RecBole, both from RecBole's scores."""
    peer.spend("train", model=pair.peer, batches=LEARNED_BATCHES)
    scores, targets, theirs = peer.scores(pair.peer)
    own = scores[np.arange(len(targets)), targets]
    rank = np.concatenate([(scores[i : i + 256] >= own[i : i + 256, None]).sum(1) for i in range(0, len(own), 256)])
    return {ours: (float(metrics.gains(rank, ours).mean()), theirs[name]) for ours, name in THEIR_METRICS.items()}


def speed(args: Any) -> None:
    """Race training and evaluation in turns."""
    sequences, peer = opened(args)
    trained = {f"{saved.encoder} {saved.output}": saved.model for saved in map(load_model, args.trained)}
    contenders: dict[str, Contender] = {}
    for pair in (PAIRS[name] for name in args.model or PAIRS):
        model = pair.model(sequences.catalogue.size)
        if "training" in args.work:
            contenders |= training(pair, model, sequences, peer, args)
        if "evaluation" in args.work:
            contenders |= evaluation(pair, trained.get(pair.name, model), sequences, peer)
    found = compared(rounds(contenders, args.repetitions, lambda done: None), references)
    same = {name: same_scores(PAIRS[name], peer) for name in args.model or PAIRS} if "evaluation" in args.work else {}
    lines = ["| | CPU s | targets/s | times RecBole | with anomaly detection |", "|---|--:|--:|--:|--:|"]
    lines += [speed_line(one) for one in found]
    results = [replace(one, ratios={}).to_json() | {"times_faster": faster(one)} for one in found]
    document = {"machine": environment(), "peer": peer.facts, "same_scores": same, "results": results}
    publish(args.to, "speed", f"# The same work here and in RecBole 1.2.1\n\n{machine()}\n", lines, document)


def faster(one: Measurement) -> dict[str, float]:
    """How many times faster a model here is than each kind of RecBole."""
    return {kind: round(1 / ratio, 2) for kind, ratio in one.ratios.items()}


def speed_line(one: Measurement) -> str:
    times = [str(faster(one).get(kind, "")) for kind in KINDS]
    return f"| {one.name} | {one.cpu:.3f} | {one.targets_per_second:,.0f} | {' | '.join(times)} |"


class Point(NamedTuple):
    """The validation figure after some training; validation itself is not counted."""

    cpu_seconds: float
    targets: int
    value: float


class Curve(Callback):
    """Validates at equal distances of CPU time, and ends training when the time is spent."""

    def __init__(self, validate: Callable[[], float], seconds: float, points: int) -> None:
        self.validate, self.seconds, self.every = validate, seconds, seconds / points
        self.points: list[Point] = []
        self.spent, self.latest = 0.0, time.process_time()
        self.before, self.targets = 0, 0  # targets of earlier epochs, and of this one

    def on_step(self, step: Step) -> None:
        self.spent += time.process_time() - self.latest
        self.targets = step.targets
        if self.spent >= self.every * (len(self.points) + 1):
            self.points.append(Point(self.spent, self.before + self.targets, self.validate()))
            print("abaca", self.points[-1], flush=True)
        if self.spent >= self.seconds:
            raise Enough
        self.latest = time.process_time()

    def on_epoch(self, record: Record) -> None:
        """The trainer's own validation is not counted either."""
        self.before, self.targets = self.before + self.targets, 0
        self.latest = time.process_time()


def learn(pair: Pair, sequences: Sequences, seconds: float, points: int) -> list[Point]:
    """The learning curve here, with the options of `abaca train`."""
    trainer = Trainer(pair.model(sequences.catalogue.size), sequences, training_defaults(pair.encoder))
    curve = Curve(lambda: trainer.validate()["ndcg@10"], seconds, points)
    with suppress(Enough):
        trainer.run(curve)
    return curve.points


def learn_peer(pair: Pair, peer: Peer, seconds: float, points: int) -> Iterator[Point]:
    """The learning curve in RecBole, trained a batch at a time."""
    spent, targets, found = 0.0, 0, 0
    while spent < seconds:
        batch = peer.spend("train", model=pair.peer, batches=1)
        spent, targets = spent + batch.cpu, targets + batch.targets
        if spent >= seconds / points * (found + 1):
            found += 1
            yield Point(spent, targets, peer.ask("validate", model=pair.peer)["ndcg@10"])


def learning(args: Any) -> None:
    """Both sides train at the same time for the same CPU time."""
    sequences, peer = opened(args)
    pair = PAIRS[(args.model or ["SASRecCPR"])[0]]
    with ThreadPoolExecutor(1) as beside:  # RecBole has a process of its own
        theirs = beside.submit(lambda: list(learn_peer(pair, peer, args.seconds, args.points)))
        ours = learn(pair, sequences, args.seconds, args.points)
        curves = {f"abaca {pair.name}": ours, f"RecBole {pair.peer}": theirs.result()}
    lines = ["| | CPU s | targets | NDCG@10 |", "|---|--:|--:|--:|"]
    lines += [f"| {n} | {p.cpu_seconds:,.0f} | {p.targets:,} | {p.value:.4f} |" for n, ps in curves.items() for p in ps]
    results = [{"name": name, **point._asdict()} for name, points in curves.items() for point in points]
    document = {"machine": environment(), "peer": peer.facts, "results": results}
    title = "Validation NDCG@10 against CPU time"
    publish(args.to, "learning", f"# {title}\n\n{machine()}\n", lines, document)
    if args.to is not None:
        drawn = Figure("learning", title, panel=(6.2, 3.5))
        for (name, points), style in zip(
            curves.items(), (Style("red", "o", "-"), Style("blue", "s", "--")), strict=True
        ):
            drawn.line(drawn.panels[0], name, [(point.cpu_seconds / 60, point.value) for point in points], style)
        drawn.title(drawn.panels[0], title, "minutes of CPU time spent on training", "validation NDCG@10")
        drawn.legend(columns=2)
        (args.to / "learning.svg").write_text(drawn.svg(alone=True) + "\n", encoding="utf-8")


def opened(args: Any) -> tuple[Sequences, Peer]:
    """The prepared log, here and in RecBole."""
    torch.set_num_threads(1)
    sequences = Sequences.open(args.sequences)
    return sequences, Peer(args.peer, sequences, dropout=0.1, train_batch=128)


def publish(to: Path | None, name: str, head: str, lines: list[str], document: dict[str, Any]) -> None:
    """Print the table, and write it with the JSON where a folder is given."""
    text = head + "\n" + "\n".join(lines) + "\n"
    print(text)
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
        (to / f"{name}.md").write_text(text, encoding="utf-8")
        (to / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, do in (("speed", speed), ("learning", learning)):
        command = commands.add_parser(name, help=do.__doc__)
        command.set_defaults(do=do)
        command.add_argument("sequences", type=Path)
        command.add_argument("--peer", type=Path, required=True, help="a Python that has RecBole 1.2.1")
        command.add_argument("--model", action="append", choices=PAIRS, help="a model of RecBole; several times")
        command.add_argument("--to", type=Path, help="folder for the results")
        if name == "learning":
            command.add_argument("--seconds", type=float, default=1200, help="CPU time of training on each side")
            command.add_argument("--points", type=int, default=20, help="number of validations")
            continue
        command.add_argument(
            "--work", nargs="+", choices=("training", "evaluation"), default=("training", "evaluation")
        )
        command.add_argument("--trained", type=Path, nargs="*", default=(), help="trained models to evaluate")
        command.add_argument("--repetitions", type=int, default=LEAST_REPETITIONS)
        command.add_argument("--steps", type=int, default=10, help="steps of a run here")
        command.add_argument("--batch-targets", type=int, default=800, help="targets of a step here")
        command.add_argument("--peer-batches", type=int, default=2, help="batches of a run in RecBole")
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()

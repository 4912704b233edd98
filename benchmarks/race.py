"""The default of `abaca train` beside RecTools' SASRec and HSTU: validation NDCG@10 against CPU time, one thread each.

    benchmarks/rectools/setup.sh rectools
    python benchmarks/race.py run FOLDER ml-1m abaca --to RESULTS
    python benchmarks/race.py run FOLDER ml-1m hstu-tutorial --peer rectools/bin/python --to RESULTS
    python benchmarks/race.py report RESULTS

The log is FOLDER/ml-1m/inter.parquet. Both sides train on the same rows, in the same order, and rank the same
validation targets against all items. Each run writes RESULTS/NAME-MODEL.json; `report` makes a table and a figure.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abaca.auto import Shape, suited, suited_encoder
from abaca.bench.step import Enough
from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.memory import keep_memory
from abaca.nn.build import make_model
from abaca.nn.encoders import encoder_class
from abaca.nn.model import swapped
from abaca.nn.outputs import make_output
from abaca.options import DEFAULT_OUTPUT
from abaca.recommender import Recommender
from abaca.study.draw import Figure, Style
from abaca.study.environment import environment
from abaca.training.callbacks import Callback, Step
from abaca.training.evidence import fit_evidence
from abaca.training.start import start_from_counts
from abaca.training.trainer import Trainer
from abaca.types import Record

PROGRAM = Path(__file__).parent / "rectools/rectools_side.py"
THEIRS = ("sasrec", "sasrec-small", "hstu", "hstu-tutorial")
MARKS = (1, 2, 5, 10, 20)
"""CPU minutes after which the validation targets are ranked."""
SHOWN = (1, 5, 20)
"""CPU minutes in the table."""
SLACK = 1.15
"""A point is after its mark by the rest of a step, and here by the fit of evidence."""
STYLES = [Style("red", "o", "-", 2.0), Style("blue", "s", "--"), Style("green", "^", "-."), Style("violet", "D", ":"),
          Style("brown", "v", "--")]  # fmt: skip

KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 30)}
"""glibc reuses freed memory, as `abaca` has it do: without this RecTools spends a third of its time on page faults."""

Point = dict[str, float]


class Curve(Callback):
    """Measures at each mark of CPU time, and ends training at the last."""

    def __init__(self, trainer: Trainer, marks: list[float]) -> None:
        self.trainer, self.marks = trainer, marks
        self.points: list[Point] = []
        self.spent, self.latest = 0.0, time.process_time()
        self.cost = 0.0  # of the last fit of evidence, which belongs to the time up to a mark

    def on_step(self, step: Step) -> None:
        self.spent += time.process_time() - self.latest
        if self.spent + self.cost >= self.marks[len(self.points)]:
            with swapped(self.trainer.weights, self.trainer.average):
                self.measure(step.epoch + step.step / step.steps)
            self.trainer.model.train()
        if len(self.points) == len(self.marks):
            raise Enough
        self.latest = time.process_time()

    def on_epoch(self, record: Record) -> None:
        """The trainer's own validation is not counted, as RecTools' is not."""
        self.latest = time.process_time()

    def measure(self, epochs: float) -> None:
        """Fit the evidence, whose CPU time counts, and add its validation figure."""
        began = time.process_time()
        figure = fit_evidence(self.trainer.model.eval(), self.trainer.sequences, self.trainer.options)[1]
        self.cost = time.process_time() - began
        self.points.append(
            {"cpu_seconds": self.spent + self.cost, "epochs": round(epochs, 3), "unmasked": figure["with_evidence"]}
        )
        print(json.dumps(self.points[-1]), flush=True)


def default(sequences: Sequences, seed: int) -> tuple[Trainer, dict[str, Any]]:
    """What trains the default of `abaca train`, and its options."""
    shape = Shape.of(sequences)
    encoder = suited_encoder(shape)
    chosen = suited(encoder, shape, sampled=make_output(DEFAULT_OUTPUT).can_sample)
    made = Recommender(encoder, options="fixed", seed=seed, **chosen)
    options = made.training
    torch.manual_seed(seed)
    longest = max(options.window, options.targets + options.overlap)
    sizes = encoder_class(made.encoder).sized(made.encoder_options, longest)
    model = make_model(made.encoder, made.output, sequences.catalogue.size, **sizes)
    start_from_counts(model, sequences.training(), seed)
    return Trainer(model, sequences, options), {"encoder": made.encoder, "output": made.output, **chosen}


def ours(sequences: Sequences, marks: list[float], seed: int) -> dict[str, Any]:
    """Train the default."""
    began = time.process_time()
    trainer, chosen = default(sequences, seed)
    curve = Curve(trainer, [marks[0] / 2, *marks])  # the first measures the cost of evidence
    curve.latest = began
    with suppress(Enough):
        trainer.run(curve)
        curve.measure(trainer.progress["epoch"])  # the end of the schedule, with the best epoch
    return {"system": f"Abaca, {chosen['encoder']} {chosen['output']}", "options": chosen, "points": curve.points}


def theirs(sequences: Sequences, marks: list[float], args: Any) -> dict[str, Any]:
    """Train a model of RecTools in its own environment."""
    if args.peer is None or shutil.which(args.peer) is None:
        raise SpecError(f"--peer {args.peer} cannot be run; benchmarks/rectools/setup.sh makes a Python with RecTools")
    with tempfile.TemporaryDirectory(prefix="abaca-bench-") as folder:
        log, to = Path(folder) / "log.npz", Path(folder) / "run.json"
        write_log(sequences, log)
        marked = ["--marks", *map(str, marks), "--seed", str(args.seed), "--to", str(to)]
        one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HOME": folder, "PATH": os.environ["PATH"], **KEPT}
        subprocess.run([args.peer.absolute(), PROGRAM, log, args.model, *marked], check=True, cwd=folder, env=one)
        document: dict[str, Any] = json.loads(to.read_text(encoding="utf-8"))
        return document


def write_log(sequences: Sequences, path: Path) -> None:
    """The training rows and the validation targets, for RecTools."""
    users = np.repeat(np.arange(sequences.users), np.diff(sequences.offsets))
    place = np.arange(len(sequences.items))
    times = place if sequences.times is None else np.asarray(sequences.times)
    kept = place < np.asarray(sequences.train_end)[users]
    valid = np.asarray(sequences.valid.positions)
    np.savez(
        path,
        users=users[kept], items=np.asarray(sequences.items)[kept], times=times[kept],
        valid_users=np.asarray(sequences.valid.users), valid_items=np.asarray(sequences.items)[valid],
        valid_times=times[valid],
    )  # fmt: skip


def run(args: Any) -> None:
    """One model on one log."""
    torch.set_num_threads(1)
    keep_memory()
    marks = [60.0 * mark for mark in MARKS if mark <= args.minutes]
    if not marks:
        raise SpecError(f"--minutes {args.minutes:g}: the first mark is at {MARKS[0]:g} minutes")
    with tempfile.TemporaryDirectory(prefix="abaca-bench-") as folder:
        with read_log(args.folder / args.name / "inter.parquet") as log:
            sequences = prepare(log, Path(folder) / "sequences")
        found = ours(sequences, marks, args.seed) if args.model == "abaca" else theirs(sequences, marks, args)
    document = {"data": args.name, "model": args.model, **found, "minutes": args.minutes, "machine": environment()}
    args.to.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1) + "\n"
    (args.to / f"{args.name}-{args.model}.json").write_text(text, encoding="utf-8")


def best_until(points: list[Point], minutes: float, figure: str) -> float | None:
    """The best figure of the points up to some CPU minutes; None where there is none yet, or no such figure."""
    known = [point[figure] for point in points if figure in point and point["cpu_seconds"] <= 60 * SLACK * minutes]
    return max(known, default=None)


def report(args: Any) -> None:
    """A table and a figure of every run in a folder."""
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(args.results.glob("*-*.json"))]
    if not runs:
        raise SpecError(f"{args.results} has no runs; `race.py run` writes them")
    heads = [f"{minutes} min" for minutes in SHOWN]
    lines = [f"| data set | system | history | {' | '.join(heads)} |", "|---|---|---|" + "--:|" * len(SHOWN)]
    for each in runs:
        for figure in ("unmasked", "masked"):
            if figure in each["points"][0]:
                values = (best_until(each["points"], m if m <= each["minutes"] else 0, figure) for m in SHOWN)
                cells = " | ".join("–" if value is None else f"{100 * value:.2f}" for value in values)
                lines.append(f"| {each['data']} | {each['system']} | {figure} | {cells} |")
    caption = (
        "Validation NDCG@10 (%), the best so far, after CPU minutes of training on one thread. Validation is not "
        "counted. Masked: items of the history are not recommended, RecTools' default."
    )
    text = "\n".join(["# Beside RecTools", "", caption, "", *lines, ""])
    print(text)
    (args.results / "table.md").write_text(text, encoding="utf-8")
    (args.results / "learning.svg").write_text(drawn(runs) + "\n", encoding="utf-8")


def drawn(runs: list[dict[str, Any]]) -> str:
    """The learning curves; of RecTools those with masked histories, which are the higher ones."""
    by_data = {name: list(group) for name, group in groupby(runs, key=lambda each: each["data"])}
    shown_as = {each["system"]: "Abaca, default" if each["model"] == "abaca" else each["system"] for each in runs}
    systems = list(dict.fromkeys(shown_as.values()))
    figure = Figure("learning", "Validation NDCG@10 against CPU time", (1, len(by_data)), panel=(4.4, 3.4))
    for panel, group in zip(figure.panels, by_data.values(), strict=True):
        for each in group:
            shown = "masked" if "masked" in each["points"][0] else "unmasked"
            points = [(point["cpu_seconds"] / 60, point[shown]) for point in each["points"]]
            system = shown_as[each["system"]]
            figure.line(panel, system, points, STYLES[systems.index(system)])
    figure.titles(list(by_data), "CPU minutes of training", "validation NDCG@10")
    figure.legend(columns=2)
    return figure.svg(alone=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help=run.__doc__)
    command.set_defaults(do=run)
    command.add_argument("folder", type=Path, help="the folder of the logs")
    command.add_argument("name", help="a log: FOLDER/NAME/inter.parquet")
    command.add_argument("model", choices=("abaca", *THEIRS))
    command.add_argument("--peer", type=Path, help="a Python that has RecTools")
    command.add_argument("--minutes", type=float, default=20, help="CPU minutes of training")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--to", type=Path, required=True, help="folder for the results")
    command = commands.add_parser("report", help=report.__doc__)
    command.set_defaults(do=report)
    command.add_argument("results", type=Path, help="the folder of the runs")
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()

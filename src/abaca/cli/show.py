"""How things look on a terminal: tables, progress, numbers."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from abaca.checkpoint import Record
from abaca.evaluation import GROUPS, Evaluation
from abaca.recommendation import Recommendations
from abaca.training import Step, Watch

COLOURS = {"copy": "magenta", "rerank": "cyan", "explore": "green", "popular": "yellow"}


def console() -> Console:
    """Where results go."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 180)


def errors_to() -> Console:
    """Where progress and errors go."""
    return Console(stderr=True, highlight=False, emoji=False, width=None if sys.stderr.isatty() else 140)


def as_json(value: Any) -> None:
    """For a program to read."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


class Bar(Watch):
    """Training as a bar: epoch, loss, best validation figure, speed, time left."""

    def __init__(self, epochs: int, metric: str) -> None:
        self.epochs, self.metric = epochs, metric
        self.console = errors_to()
        self.progress = Progress(
            TextColumn("[bold]epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]:,.0f} targets/s"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task: TaskID | None = None

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def step(self, step: Step) -> None:
        if self.task is None:
            self.task = self.progress.add_task("", total=step.steps, epoch=1, epochs=self.epochs, loss=0.0, speed=0.0)
        speed = step.targets / max(step.seconds, 1e-9)
        self.progress.update(
            self.task, completed=step.step, total=step.steps, epoch=step.epoch + 1, loss=step.loss, speed=speed
        )

    def epoch(self, record: Record) -> None:
        if self.task is not None:
            self.progress.remove_task(self.task)
            self.task = None
        figure = f"  validation {self.metric} [bold]{record[self.metric]:.4f}[/]" if self.metric in record else ""
        speed = record["targets"] / max(record["seconds"], 1e-9)
        left = (self.epochs - record["epoch"] - 1) * (record["seconds"] + record.get("validation_seconds", 0))
        self.console.print(
            f"epoch {record['epoch'] + 1:>3}/{self.epochs}  loss {record['loss']:.4f}{figure}  "
            f"{record['seconds']:.1f} s  {speed:,.0f} targets/s  at most {duration(left)} left"
        )


@contextmanager
def counting(what: str) -> Iterator[Any]:
    """A bar for work with a known number of parts; yields `advance(done, total)`."""
    with Progress(
        TextColumn(escape(what)),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=errors_to(),
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def evaluations(results: list[Evaluation], title: str) -> Table:
    """Rankers by metrics: all targets, repeats, new."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    shown.add_column("")
    groups = [group for group in GROUPS if results[0].mask(group).any()]
    names = [name for name in results[0].metric_names if not name.startswith("mrr")]
    for group in groups:
        count = int(results[0].mask(group).sum())
        for name in names:
            shown.add_column(f"{group} ({count:,})\n{name.upper()}", justify="right")
    cutoff = max(results[0].cutoffs)
    shown.add_column(f"repeats\nin top {cutoff}", justify="right")
    best = {(g, n): max(r.mean(n, g) for r in results) for g in groups for n in names}
    for result in results:
        cells = []
        for group in groups:
            for name in names:
                value = result.mean(name, group)
                cells.append(f"[bold]{value:.4f}[/]" if value == best[group, name] else f"{value:.4f}")
        share = result.top_repeat[result.top >= 0].mean() if (result.top >= 0).any() else 0.0
        shown.add_row(escape(result.name), *cells, f"{share:.0%}")
    return shown


def recommendations(answer: Recommendations, title: str) -> Table:
    """One answer, best first, with reasons."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    shown.add_column("", justify="right")
    shown.add_column("item")
    shown.add_column("name")
    shown.add_column("probability\n(estimated)" if answer.estimated else "probability", justify="right")
    shown.add_column("reason")
    for place, item in enumerate(answer.items, 1):
        probability = "" if item.probability is None else f"{item.probability:.2%}"
        colour = COLOURS[item.partition]
        shown.add_row(str(place), escape(str(item.id)), escape(item.name), probability, f"[{colour}]{item.reason}[/]")
    return shown


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

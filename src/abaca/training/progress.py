"""Training as a progress bar, in a terminal or a notebook."""

import sys
from collections.abc import Sequence

from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from abaca.display import duration
from abaca.training.callbacks import Callback, End, Start, Step
from abaca.training.group import current
from abaca.types import Record


def is_interactive() -> bool:
    """Whether progress is visible: standard error is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or get_console().is_jupyter


class ProgressBar(Callback):
    """Epoch, loss, best validation figure, speed and time left; a line per epoch stays."""

    def __init__(self) -> None:
        width = None if is_interactive() else 140
        self.console = get_console() if get_console().is_jupyter else Console(stderr=True, highlight=False, width=width)
        self.progress = Progress(
            TextColumn("[bold]epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]:,.0f} targets/s"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not is_interactive(),
        )
        self.task: TaskID | None = None
        self.epochs, self.metric = 0, ""

    def on_start(self, start: Start) -> None:
        self.epochs, self.metric = start.epochs, start.options.get("metric", "")
        self.progress.start()

    def on_end(self, end: End) -> None:
        self.progress.stop()

    def on_step(self, step: Step) -> None:
        if self.task is None:
            self.task = self.progress.add_task("", total=step.steps, epoch=1, epochs=self.epochs, loss=0.0, speed=0.0)
        speed = step.targets / max(step.seconds, 1e-9)
        self.progress.update(
            self.task, completed=step.step, total=step.steps, epoch=step.epoch + 1, loss=step.loss, speed=speed
        )

    def on_trial(self, trial: Record) -> None:
        options = ", ".join(f"{name} {value:g}" for name, value in trial["options"].items())
        epochs = f"{trial['epochs']} epoch{'' if trial['epochs'] == 1 else 's'}"
        what = f"{trial['encoder']}, {options}, {epochs}"
        value = trial["figure"]
        figure = trial["error"] if value is None else f"validation {trial['metric']} [bold]{value:.4f}[/]"
        self.console.print(f"trial {what}: {figure}  {duration(trial['seconds'])}")

    def on_epoch(self, record: Record) -> None:
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


def with_progress(given: Callback | Sequence[Callback] | None, progress: bool | None) -> list[Callback]:
    """The callbacks that were given, after a progress bar where one is wanted; of a group, the first process's."""
    if current().rank:
        return []
    callbacks = [given] if isinstance(given, Callback) else list(given or ())
    if progress or (progress is None and not callbacks and is_interactive()):
        callbacks.insert(0, ProgressBar())
    return callbacks

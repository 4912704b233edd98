"""Training as a bar on a terminal; apart from `show`, because it loads torch."""

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from abaca.cli.show import duration, errors_to
from abaca.training.trainer import Callback, Step
from abaca.types import Record


class Bar(Callback):
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

    def on_step(self, step: Step) -> None:
        if self.task is None:
            self.task = self.progress.add_task("", total=step.steps, epoch=1, epochs=self.epochs, loss=0.0, speed=0.0)
        speed = step.targets / max(step.seconds, 1e-9)
        self.progress.update(
            self.task, completed=step.step, total=step.steps, epoch=step.epoch + 1, loss=step.loss, speed=speed
        )

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

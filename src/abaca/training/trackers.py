"""Experiment trackers as callbacks: TensorBoard, MLflow, Weights & Biases. Each package is an extra.

A tracker logs the options of a run at its start, the figures of each epoch, and how the run ended. Epochs count from 1.
"""

import os
import re
from pathlib import Path
from typing import Any, ClassVar

from abaca.errors import SpecError, TrainingError
from abaca.extra import needs
from abaca.training.callbacks import Callback, End, Start
from abaca.types import Record


class TensorBoard(Callback):
    """Writes event files that TensorBoard shows, in a folder for each run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.package = needs("tensorboardX", "tensorboard")
        self.writer: Any = None
        self.epochs = 0

    def on_start(self, start: Start) -> None:
        self.epochs = len(start.records)
        folder = run_folder(self.folder, start.name, resumed=bool(start.records))
        own = {"filename_suffix": f".{self.epochs}", "purge_step": self.epochs + 1}  # resumed within a second, too
        self.writer = self.package.SummaryWriter(str(folder), **own)
        rows = "".join(f"| {name} | {value} |\n" for name, value in settings(start).items())
        self.writer.add_text("options", f"| option | value |\n|---|---|\n{rows}", 0)

    def on_epoch(self, record: Record) -> None:
        self.epochs = record["epoch"] + 1
        for name, value in figures(record).items():
            self.writer.add_scalar(name, value, self.epochs)
        self.writer.flush()

    def on_end(self, end: End) -> None:
        for name, value in end.figures.items():
            self.writer.add_scalar(f"end/{name}", value, self.epochs)
        self.writer.close()


class MLflow(Callback):
    """Logs runs to an MLflow server, or to a database in a folder.

    The experiment has the name in MLFLOW_EXPERIMENT_NAME, or else abaca.
    """

    STATUS: ClassVar = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

    def __init__(self, place: str) -> None:
        self.package = needs("mlflow", "mlflow")
        self.place, self.artifacts = place, None
        if "://" not in place and place != "databricks":
            needs("sqlalchemy", "mlflow")
            folder = Path(place).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            self.place, self.artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
        self.client: Any = None
        self.run = ""

    def on_start(self, start: Start) -> None:
        try:
            self.client = self.package.MlflowClient(tracking_uri=self.place)
            self.run = self.client.create_run(self._experiment(), run_name=start.name).info.run_id
            for name, value in settings(start).items():
                self.client.log_param(self.run, name, value)
        except self.package.exceptions.MlflowException as error:
            raise TrainingError(f"MLflow at {self.place} cannot be used ({error}); check the address") from error
        for record in start.records:
            self.on_epoch(record)

    def _experiment(self) -> str:
        """The id of the experiment, which is made if it is not there."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "abaca")
        found = self.client.get_experiment_by_name(name)
        made = self.client.create_experiment(name, self.artifacts) if found is None else found.experiment_id
        return str(made)

    def on_epoch(self, record: Record) -> None:
        for name, value in figures(record).items():
            self.client.log_metric(self.run, name, value, step=record["epoch"] + 1)

    def on_end(self, end: End) -> None:
        for name, value in end.figures.items():
            self.client.log_metric(self.run, f"end/{name}", value)
        self.client.set_terminated(self.run, self.STATUS[end.status])


class WeightsAndBiases(Callback):
    """Logs runs to a project of Weights & Biases; on this machine only, unless WANDB_MODE is online."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.package = needs("wandb", "wandb")
        self.run: Any = None

    def on_start(self, start: Start) -> None:
        self.run = self.package.init(
            project=self.project,
            name=start.name,
            config=settings(start),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=self.package.Settings(silent=True, console="off"),
        )
        for record in start.records:
            self.on_epoch(record)

    def on_epoch(self, record: Record) -> None:
        self.run.log(figures(record), step=record["epoch"] + 1)

    def on_end(self, end: End) -> None:
        self.run.summary.update({f"end/{name}": value for name, value in end.figures.items()})
        self.run.finish(exit_code=0 if end.status == "finished" else 1)


TRACKERS: dict[str, Any] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WeightsAndBiases}


def tracker(words: str) -> Callback:
    """The tracker of words such as `tensorboard:runs/`, `mlflow:FOLDER` or `wandb:PROJECT`."""
    kind, _, place = words.partition(":")
    if kind not in TRACKERS or not place:
        examples = "tensorboard:FOLDER, mlflow:FOLDER, mlflow:ADDRESS or wandb:PROJECT"
        raise SpecError(f"`track` takes {examples}, got '{words}'")
    made: Callback = TRACKERS[kind](place)
    return made


def settings(start: Start) -> dict[str, Any]:
    """What a run is made of, for the table that a tracker shows."""
    data = {f"data/{name}": value for name, value in start.data.items()}
    return {"encoder": start.encoder, "output": start.output, **start.options, **data}


def figures(record: Record) -> dict[str, float]:
    """The numbers of an epoch, such as training/loss and validation/ndcg_at_10: not every tracker allows an @."""
    groups = {name: "validation" if "@" in name or "validation" in name else "training" for name in record}
    return {
        f"{groups[name]}/{name.removeprefix('validation_').replace('@', '_at_')}": value
        for name, value in record.items()
        if name != "epoch"
    }


def run_folder(folder: Path, name: str, *, resumed: bool) -> Path:
    """The folder of a run: its name, with a number where earlier runs have it; a resumed run has the latest."""
    first = folder / re.sub(r"[^\w.+-]", "_", name)
    latest, number = first, 2
    while (following := folder / f"{first.name}-{number}").exists():
        latest, number = following, number + 1
    return latest if resumed or not latest.exists() else following

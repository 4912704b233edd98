"""Callbacks: what a run calls when it starts, after each step and each epoch, and when it ends."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from abaca.types import Record

Status = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Start:
    """The run that starts."""

    encoder: str
    """The name of the encoder; "rule" for a baseline."""
    output: str
    """The output layer, or the name of the baseline."""
    options: dict[str, Any]
    """The options of training and of the encoder."""
    data: dict[str, Any]
    """The size of the log: users, items, interactions, and the training targets of an epoch."""
    epochs: int
    """Epochs at most; 0 for a baseline."""
    folder: Path | None = None
    """Where the model is saved."""
    records: tuple[Record, ...] = ()
    """Epochs of an earlier process, where a run is resumed."""

    @property
    def name(self) -> str:
        """The name of the folder; without one, encoder and output layer."""
        return f"{self.encoder} {self.output}" if self.folder is None else self.folder.resolve().name


class Step(NamedTuple):
    """The state of training after a step."""

    epoch: int  # from 0
    step: int  # of this epoch, from 1
    steps: int  # of this epoch
    loss: float  # mean of the epoch so far
    targets: int  # trained in this epoch so far by this process
    seconds: float  # spent on them


@dataclass(frozen=True)
class End:
    """How a run ended."""

    status: Status
    """finished; stopped by Ctrl-C; or failed with an error."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Of a finished run: the best validation figure, its epoch, and the figure of the whole model."""


class Callback:
    """Called during training. Subclasses override what they need; this one does nothing.

    An exception in a callback ends the run. A run in a folder can be resumed after that.
    """

    @property
    def stops(self) -> bool:
        """Whether training ends after this epoch; the best epoch is kept."""
        return False

    def on_trial(self, trial: Record) -> None:
        """Called after each trial of a search within a budget. The other methods are called for the last training."""

    def on_start(self, start: Start) -> None:
        """Called once, before the first step."""

    def on_step(self, step: Step) -> None:
        """Called after each training step."""

    def on_epoch(self, record: Record) -> None:
        """Called after each epoch with its line of `training.jsonl`: epoch, loss, seconds, validation figures."""

    def on_end(self, end: End) -> None:
        """Called once when the run ends, also after an error, if `on_start` succeeded."""


class Callbacks(Callback):
    """Several callbacks, called in their order. As a context manager it calls `on_end`, however the block ends."""

    def __init__(self, every: Iterable[Callback]) -> None:
        self.every = tuple(every)
        self.started: list[Callback] = []
        self.figures: dict[str, Any] = {}

    @property
    def stops(self) -> bool:
        return any(each.stops for each in self.every)

    def on_trial(self, trial: Record) -> None:
        for each in self.every:
            each.on_trial(trial)

    def on_start(self, start: Start) -> None:
        for each in self.every:
            each.on_start(start)
            self.started.append(each)

    def on_step(self, step: Step) -> None:
        for each in self.every:
            each.on_step(step)

    def on_epoch(self, record: Record) -> None:
        for each in self.every:
            each.on_epoch(record)

    def on_end(self, end: End) -> None:
        with ExitStack() as stack:  # an error in one does not keep the others from ending
            for each in reversed(self.started):
                stack.callback(each.on_end, end)
            self.started = []

    def __enter__(self) -> "Callbacks":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.on_end(End("finished", self.figures))
        else:
            self.on_end(End("stopped" if issubclass(kind, KeyboardInterrupt) else "failed"))

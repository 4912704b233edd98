"""The training loop: full softmax over windows, early stopping on validation, resume to the bit."""

import contextlib
import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abaca.data.batches import Batch, Epochs, Replay
from abaca.data.sequences import Sequences, Targets
from abaca.errors import DivergedError, SequencesError, SpecError
from abaca.evaluation.evaluate import dealt, evaluate
from abaca.evaluation.metrics import GAINS, gains_or_zero
from abaca.evaluation.ranker import ModelRanker
from abaca.evaluation.sound import fault_of
from abaca.nn.model import Model, swapped
from abaca.options import TrainingOptions
from abaca.training.callbacks import Callback, Step
from abaca.training.eventweights import type_weights
from abaca.training.gradients import set_gradients
from abaca.training.group import current
from abaca.training.state import load_state, save_state
from abaca.types import Record

log = logging.getLogger(__name__)

LONGEST_WARMUP = 2
"""The warm-up takes at most 1 / LONGEST_WARMUP of all steps: a short run must train too."""


class Trainer:
    """Trains one model on one set of sequences; its state can be saved and resumed at any step.

    Processes of a group share out the windows of each step, and have the same weights and progress.
    """

    def __init__(
        self,
        model: Model,
        sequences: Sequences,
        options: TrainingOptions,
        *,
        everything: bool = False,
        replay: Replay | None = None,
    ) -> None:
        if options.share < 1 and not model.output.can_sample:
            raise SpecError(f"the loss of {model.output.spec} reads all items: leave out share, now {options.share:g}")
        self.group = current()
        self.group.copy_first(model.parameters())
        self.model = model
        self.device = model.device
        self.sequences = sequences
        self.options = options
        end = sequences.offsets[1:] if everything else sequences.train_end
        self.epochs = Epochs(
            sequences.items,
            sequences.times,
            np.asarray(sequences.offsets[:-1]),
            np.asarray(end),
            options.targets,
            options.overlap,
            options.batch_targets,
            options.seed,
            sequences.events,
            type_weights(sequences, options.event_weights, everything=everything),
            replay,
            options.ahead,
        )
        if self.epochs.type_weights is not None and not model.output.can_weigh:
            raise SpecError(f"the loss of {model.output.spec} has no weights: leave out event_weights and targets_of")
        self.validates = not everything and len(sequences.valid.users) > 0
        self.steps_per_epoch = self.epochs.steps(0)
        if not self.steps_per_epoch:
            raise SequencesError(
                f"{sequences.source} has nothing to train on: no user has a training target after another interaction; "
                "prepare a longer log"
            )
        tables = [table.weight for table in (model.items, *model.output.item_tables)]
        rest = [weight for weight in model.parameters() if not any(weight is table for table in tables)]
        groups = [{"params": tables, "weight_decay": options.weight_decay}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.lr, fused=True)
        self.weights = dict(model.named_parameters())
        self.average = (
            {name: weight.detach().clone() for name, weight in self.weights.items()} if options.average else None
        )
        self.best: dict[str, Tensor] | None = None
        self.progress: dict[str, Any] = {
            "epoch": 0, "step": 0, "taken": 0, "loss_sum": 0.0, "count": 0, "seconds": 0.0,
            "best": None, "best_epoch": None, "records": [], "processes": self.group.size,
        }  # fmt: skip

    def run(self, callback: Callback, save_to: Path | None = None) -> None:
        """Train to the end, or until validation has not improved for `patience` epochs; the best weights stay."""
        self.model.train()
        last = min(self.options.stop_after or self.options.epochs, self.options.epochs)
        with _threads(self.progress.setdefault("threads", torch.get_num_threads())):
            while self.progress["epoch"] < last and not self.exhausted and not self._stopped(callback):
                try:
                    self._epoch(callback, save_to)
                    self._finish_epoch(callback)
                except DivergedError as error:
                    self._keep_best(error)
                    break
                if save_to is not None:
                    save_state(save_to, self.state(), self.progress)
        final = self.best or self.average
        if final is not None:
            with torch.no_grad():
                for name, weight in self.weights.items():
                    weight.copy_(final[name])
        self.model.eval()

    def _keep_best(self, error: DivergedError) -> None:
        """End with the best epoch before training diverged; where there is none, nothing can be kept."""
        if self.best is None:
            raise error
        epoch = self.progress["best_epoch"] + 1
        self.progress["diverged"] = f"{error}. The model is that of epoch {epoch}, the best before"
        if not self.group.rank:
            log.warning(self.progress["diverged"])

    def _stopped(self, callback: Callback) -> bool:
        """Whether a callback of the first process ends training after an epoch."""
        return self.group.first(lambda: bool(self.progress["epoch"] and callback.stops))

    @property
    def exhausted(self) -> bool:
        """Whether validation has not improved for long enough."""
        best = self.progress["best_epoch"]
        patience = self.options.patience
        return bool(patience and best is not None and self.progress["epoch"] - 1 - best >= patience)

    def _epoch(self, callback: Callback, save_to: Path | None) -> None:
        progress, began = self.progress, time.perf_counter()
        spent, saved = progress["seconds"], time.monotonic()
        trained = 0
        steps = self.epochs.steps(progress["epoch"])
        for batch in self.epochs.batches(progress["epoch"], progress["step"], self.group.rank, self.group.size):
            loss, count = self._step(batch)
            trained += count
            progress["loss_sum"] += loss
            progress["count"] += count
            progress["step"] += 1
            progress["taken"] += 1
            seconds = time.perf_counter() - began
            progress["seconds"] = spent + seconds
            mean = progress["loss_sum"] / progress["count"]
            callback.on_step(Step(progress["epoch"], progress["step"], steps, mean, trained, seconds))
            if save_to is not None and time.monotonic() - saved > 60 * self.options.checkpoint_minutes:
                save_state(save_to, self.state(), progress)
                saved = time.monotonic()

    def _step(self, batch: Batch) -> tuple[float, int]:
        """One step of the optimizer; the loss summed over the batch's targets in all processes, and their number."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.lr * self._rate()
        self.optimizer.zero_grad()  # before the loss makes new gradients
        step = self.options.seed, self.progress["taken"]
        loss = set_gradients(self.model, batch, self.options.share, self.group, step)
        if not math.isfinite(loss):
            raise self._diverged(f"the loss is {loss}")
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.optimizer.step()
        if self.average is not None:
            taken = self.progress["taken"] + 1
            decay = min(self.options.average, (1 + taken) / (10 + taken))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.values()), list(self.weights.values()), 1 - decay)
        return loss, batch.total

    def _diverged(self, fault: str) -> DivergedError:
        return DivergedError(
            f"{fault} in epoch {self.progress['epoch'] + 1}, step {self.progress['step'] + 1}: "
            f"training diverged; lower lr (now {self.options.lr:g}) or set clip, such as 1"
        )

    def _check(self) -> None:
        """Refuse weights that cannot answer before they are validated: numbers that are not finite rank anyhow."""
        with swapped(self.weights, self.average):
            fault = fault_of(self.model, self.options.window)
        self.model.train()
        if fault is not None:
            raise self._diverged(fault)

    def _rate(self) -> float:
        """The learning rate's share of its highest at this step."""
        taken = self.progress["taken"]
        total = self.steps_per_epoch * self.options.epochs
        warmup = min(self.options.warmup, total // LONGEST_WARMUP)
        rise = min(1.0, (taken + 1) / warmup) if warmup else 1.0
        done = min(1.0, taken / total)
        if self.options.schedule == "cosine":
            return rise * 0.5 * (1 + math.cos(math.pi * done))
        return rise * (1 - done) if self.options.schedule == "linear" else rise

    def _finish_epoch(self, callback: Callback) -> None:
        """Validate, keep the weights if they are the best so far, and write the record."""
        progress = self.progress
        self._check()
        record: Record = {
            "epoch": progress["epoch"],
            "loss": progress["loss_sum"] / max(progress["count"], 1),
            "targets": progress["count"],
            "seconds": round(progress["seconds"], 3),
            "lr": self.options.lr * self._rate(),
        }
        if self.validates:
            began = time.perf_counter()
            record.update(self.validate())
            record["validation_seconds"] = round(time.perf_counter() - began, 3)
            if progress["best"] is None or record[self.options.metric] > progress["best"]:
                progress["best"], progress["best_epoch"] = record[self.options.metric], progress["epoch"]
                self.best = {name: weight.detach().clone() for name, weight in self.kept().items()}
        progress["records"].append(record)
        progress.update(epoch=progress["epoch"] + 1, step=0, loss_sum=0.0, count=0, seconds=0.0)
        callback.on_epoch(record)

    def kept(self) -> dict[str, Tensor]:
        """The weights that are validated and kept: the running average where there is one."""
        return self.average or dict(self.weights)

    def validate(self) -> dict[str, float]:
        """The metrics of the validation targets, which processes share out, under the weights that are kept."""
        (users, positions), cutoff = self.sequences.valid, int(self.options.metric.split("@")[1])
        mine = dealt(self.sequences, self.sequences.valid, self.group.rank, self.group.size)
        ranks = torch.zeros(len(users), dtype=torch.int64)
        if len(mine):
            with swapped(self.weights, self.average):
                ranker = ModelRanker(self.model, self.options.window)
                found = evaluate(ranker, self.sequences, Targets(users[mine], positions[mine]), (cutoff,))
            self.model.train()
            ranks[mine] = torch.from_numpy(found.rank)
        self.group.add([ranks])
        names = [f"{name}@{cutoff}" for name in GAINS]
        return {name: float(gains_or_zero(ranks.numpy(), self.model.catalogue, name).mean()) for name in names}

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the rest of the run depends on."""
        tensors = {f"weights.{name}": weight.detach() for name, weight in self.weights.items()}
        tensors |= {f"average.{name}": weight for name, weight in (self.average or {}).items()}
        tensors |= {f"best.{name}": weight for name, weight in (self.best or {}).items()}
        for name, weight in self.weights.items():
            tensors |= {f"adam.{key}.{name}": value for key, value in self.optimizer.state[weight].items()}
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return tensors | {"random": torch.get_rng_state()}

    def resume(self, path: Path | None) -> None:
        """Resume from a saved state, which only the first process reads; the others have no path."""
        tensors, progress = load_state(path) if path is not None else ({}, {})
        tensors, progress = self.group.first_tensors(tensors), self.group.first(lambda: progress)
        if progress.get("processes", 1) != self.group.size:
            progress.pop("threads", None)  # a run keeps its threads, unless more or fewer processes share the cores
        random = {name: tensors.pop(name) for name in ("random", "random.cuda") if name in tensors}
        tensors = {name: tensor.to(self.device, copy=True) for name, tensor in tensors.items()}
        self.progress = progress | {"processes": self.group.size}
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(tensors[f"weights.{name}"])
                keys = ("step", "exp_avg", "exp_avg_sq")
                self.optimizer.state[weight] = {key: tensors[f"adam.{key}.{name}"] for key in keys}
        if self.average is not None:
            self.average = {name: tensors[f"average.{name}"] for name in self.weights}
        if progress["best_epoch"] is not None:
            self.best = {name: tensors[f"best.{name}"] for name in self.weights}
        torch.set_rng_state(random["random"])
        if self.device.type == "cuda" and "random.cuda" in random:
            torch.cuda.set_rng_state(random["random.cuda"], self.device)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch have as many CPU threads as a run began with: the order of its sums depends on them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""The best model within a time: successive halving over runs, validation deciding.

Every candidate is trained for a few epochs, to the end of a short schedule. The better third of them is trained again
for three times as many, while half of the time lasts. The best one is then trained for as many epochs as the rest of
the time allows, again to the end of its schedule.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from abaca.data.sequences import Sequences
from abaca.errors import ModelError, SpecError, TrainingError
from abaca.training.budget import Clock, Deadline, seconds_of_epoch
from abaca.training.callbacks import Callback, Callbacks
from abaca.training.checkpoint import MODEL, Saved, load_model, save_model
from abaca.training.group import current
from abaca.training.run import Run
from abaca.training.state import STATE, TRIALS, write_record
from abaca.training.trials import Notes, Trial

SEARCHED = 0.5
"""The share of the time in which candidates are compared."""
KEPT = 3
"""One candidate of KEPT goes on to the next round, with KEPT times as many epochs."""
FIRST = 8
"""The first round has 1 / FIRST of the epochs of a whole run."""
LONGEST = 40
"""Epochs of the last training at most, where none are given."""
SLACK = 1.05
"""Epochs may take that much longer than they took in a trial."""
SHOWN = ("lr", "dropout", "dim")
"""The options that a trial reports; candidates differ in them."""


@dataclass(frozen=True)
class Search:
    """Candidates, the first of them the most promising, and how long the last training may be."""

    candidates: tuple[Run, ...]
    longest: int = LONGEST

    def train(
        self,
        sequences: Sequences,
        device: torch.device,
        clock: Clock,
        folder: Path | None = None,
        *,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Saved:
        """The best model that is found in the time; it is also written to the folder, if there is one."""
        if not len(sequences.valid.users):
            raise SpecError("a budget needs validation targets to choose by; prepare a log with more interactions")
        notes, group = Notes(folder, self._identity(sequences, clock.seconds)), current()
        done = group.first(lambda: self._begin(folder, notes, clock, resume))
        if done is not None:
            return done
        notes.trials, notes.plan = group.first(lambda: (notes.trials, notes.plan))
        work = _Work(self, sequences, device, clock, notes, callbacks)
        saved = work.final(work.search(), folder)
        trials = [asdict(trial) for trial in notes.trials]
        saved.training["budget"] = {"seconds": clock.seconds, "spent": round(clock.spent, 1), "trials": trials}
        if folder is not None:
            save_model(folder, saved)
            write_record(folder, saved.training["records"])
            (folder / STATE).unlink(missing_ok=True)
        notes.end()
        return saved

    def _begin(self, folder: Path | None, notes: Notes, clock: Clock, resume: bool) -> Saved | None:
        """Begin a search in a folder, or resume the one that is there; its model, if it is complete already."""
        if folder is not None:
            done = self._done(folder, notes) if resume else None
            if done is not None:
                return done
            if resume:
                notes.resume(clock)
            elif (folder / STATE).exists():
                (folder / STATE).unlink()
        notes.begin()
        return None

    def _done(self, folder: Path, notes: Notes) -> Saved | None:
        """The model of a search that is complete already."""
        if not (folder / MODEL).exists() or (folder / TRIALS).exists() or (folder / STATE).exists():
            return None
        saved = load_model(folder)
        same = saved.training.get("budget", {}).get("seconds") == notes.identity["seconds"]
        if not same or saved.training["fingerprint"] != notes.identity["fingerprint"]:
            raise ModelError(f"{folder} holds a model of another run; `overwrite=True` replaces it")
        return saved

    def _identity(self, sequences: Sequences, seconds: float) -> dict[str, Any]:
        """What makes two searches the same search."""
        text = json.dumps([run.identity(sequences) for run in self.candidates], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return {"seconds": seconds, "fingerprint": sequences.fingerprint, "candidates": digest}

    def is_in(self, folder: Path, sequences: Sequences) -> bool:
        """Whether a folder holds this very search, unfinished; of any budget."""
        begun = Notes(folder, {}).begun
        return begun is not None and begun == self._identity(sequences, begun["seconds"])

    def rounds(self) -> list[int]:
        """The epochs of each round."""
        whole = self.candidates[0].options.epochs
        first = max(1, whole // FIRST)
        return [epochs for epochs in (first, KEPT * first, KEPT * KEPT * first) if epochs <= max(first, whole)]


class _Work:
    """The trials of a search, and the best model so far."""

    def __init__(
        self,
        plan: Search,
        sequences: Sequences,
        device: torch.device,
        clock: Clock,
        notes: Notes,
        callbacks: Sequence[Callback],
    ) -> None:
        self.candidates, self.longest, self.rounds = plan.candidates, plan.longest, plan.rounds()
        self.sequences, self.device = sequences, device
        self.clock, self.notes, self.callbacks = clock, notes, callbacks
        self.best: Saved | None = None
        self.group = current()

    def search(self) -> Trial:
        """Compare candidates in rounds; the last trial of the best."""
        standing = list(range(len(self.candidates)))
        winner: Trial | None = None
        for place, epochs in enumerate(self.rounds):
            until = SEARCHED * self.clock.seconds * (place + 1) / len(self.rounds)
            tried = self._round(standing, epochs, until)
            ranked = sorted(tried, key=lambda trial: -trial.rank)
            if ranked and ranked[0].figure is not None:
                winner = ranked[0]
            standing = [trial.candidate for trial in ranked[: len(ranked) // KEPT]]
            if len(standing) < 2:
                break
        if winner is None:
            raise TrainingError(f"no model could be trained within the budget: {self.notes.trials[-1].error}")
        return winner

    def _round(self, standing: list[int], epochs: int, until: float) -> list[Trial]:
        """Train candidates while the time of the round lasts; those of an interrupted search are not repeated."""
        known = {(trial.candidate, trial.epochs): trial for trial in self.notes.trials}
        found: list[Trial] = []
        for candidate in standing:
            trial = known.get((candidate, epochs))
            if trial is None:
                if self.group.first(lambda one=candidate: self._is_late(one, epochs, until)):  # type: ignore[misc]
                    break
                trial = self._trial(candidate, epochs)
            found.append(trial)
        return found

    def _is_late(self, candidate: int, epochs: int, until: float) -> bool:
        """Whether a further trial would take longer than its round; one trial must succeed."""
        failed = all(each.figure is None for each in self.notes.trials)
        return not failed and self.clock.spent + self._expected(candidate, epochs) > until

    def _expected(self, candidate: int, epochs: int) -> float:
        """Seconds of a trial, by the slowest one that is like it."""
        return max(trial.seconds_per_epoch * epochs + trial.overhead for trial in self._alike(candidate))

    def _alike(self, candidate: int) -> list[Trial]:
        """Trials with the same encoder, or else of any."""
        known = [trial for trial in self.notes.trials if trial.figure is not None]
        return [trial for trial in known if trial.encoder == self.candidates[candidate].encoder] or known

    def _trial(self, candidate: int, epochs: int) -> Trial:
        run = self.candidates[candidate]
        values = {**asdict(run.options), **run.encoder_options}
        what = (candidate, run.encoder, {name: values[name] for name in SHOWN if name in values})
        reserve = max((trial.overhead for trial in self._alike(candidate)), default=None)
        began = self.clock.spent
        try:
            deadline = Deadline(self.clock, reserve)
            saved = _lasting(run, epochs).train(self.sequences, self.device, callbacks=[deadline])
        except (TrainingError, SpecError) as error:
            trial = Trial(*what, epochs, None, self.clock.spent - began, 0.0, 0.0, str(error))
        else:
            times, seconds = [*map(seconds_of_epoch, saved.training["records"])], self.clock.spent - began
            trial = Trial(*what, epochs, saved.figure, seconds, mean(times), max(0.0, seconds - sum(times)))
            if self.best is None or (saved.figure or 0.0) > (self.best.figure or 0.0):
                self.best = saved
        trial = self.group.first(lambda: trial)
        self.notes.trials.append(trial)
        self.notes.add(self.clock, trial=asdict(trial))
        Callbacks(self.callbacks).on_trial({**asdict(trial), "metric": run.options.metric})
        return trial

    def final(self, winner: Trial, folder: Path | None) -> Saved:
        """Train the winner with the time that is left, unless a trial had as many epochs; the better of the two."""
        planned = self.group.first(lambda: self._epochs_left(winner))
        plan = self.notes.plan or {"candidate": winner.candidate, "epochs": planned}
        if self.best is not None and self.notes.plan is None and plan["epochs"] <= winner.epochs:
            return self._told(self.best, _lasting(self.candidates[winner.candidate], winner.epochs), folder)
        if self.notes.plan is None:
            self.notes.add(self.clock, plan=plan)
        run = _lasting(self.candidates[plan["candidate"]], plan["epochs"])
        noted = _Noted(self.clock, winner.overhead, self.notes)
        begun = self.group.first(lambda: folder is not None and (folder / STATE).exists())
        saved = run.train(self.sequences, self.device, folder, resume=begun, callbacks=[*self.callbacks, noted])
        better = self.best is not None and (self.best.figure or 0.0) > (saved.figure or 0.0)
        return self.best if better and self.best is not None else saved

    def _told(self, saved: Saved, run: Run, folder: Path | None) -> Saved:
        """A trial that is the result: callbacks get its start with its epochs, and its end."""
        with Callbacks(self.callbacks) as called:
            called.on_start(run.started(self.sequences, folder, saved.training["records"]))
            called.figures = {"best": saved.training["best"], "best_epoch": saved.training["best_epoch"]}
        return saved

    def _epochs_left(self, winner: Trial) -> int:
        """Epochs that fit into the time that is left; one at least."""
        epochs = int((self.clock.left - winner.overhead) / (SLACK * max(winner.seconds_per_epoch, 1e-6)))
        return max(1, min(epochs, self.longest))


class _Noted(Deadline):
    """Notes the time after each epoch, so that a resumed run goes on counting."""

    def __init__(self, clock: Clock, reserve: float, notes: Notes) -> None:
        super().__init__(clock, reserve)
        self.notes = notes

    def on_epoch(self, record: dict[str, Any]) -> None:
        self.notes.add(self.clock)
        super().on_epoch(record)


def leave_search(folder: Path, *, resume: bool) -> None:
    """A run without a budget replaces a search that was stopped, and cannot resume it."""
    if (folder / TRIALS).exists():
        if resume:
            raise ModelError(f"{folder} holds a search within a budget that was stopped; resume with the same budget")
        (folder / TRIALS).unlink()


def _lasting(run: Run, epochs: int) -> Run:
    """The run with a schedule of so many epochs."""
    return replace(run, options=replace(run.options, epochs=epochs))

"""Searching good options with Optuna: chosen on validation NDCG@10, within a budget, and taken up after a kill."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abaca.data.sequences import Sequences
from abaca.durable import locked, write_text
from abaca.errors import SpecError, TrainingError
from abaca.recommender import Recommender
from abaca.study.extra import needs
from abaca.study.plan import PREPARE, Options, Study
from abaca.study.runs import FIGURES, check_validation, digest
from abaca.study.toml import TomlTable, read_toml
from abaca.training.trainer import Callback
from abaca.types import Record

METRIC = FIGURES[0]
BEST, TRIALS = "best.toml", "trials.db"
WHY = "why"
"""Under this name a trial that has no figure says why."""
SPACE: Options = {
    "lr": {"low": 5e-4, "high": 1e-2, "log": True},
    "batch_targets": [200, 400, 800, 1600],
    "dropout": {"low": 0.0, "high": 0.5},
    "size": [32, 64, 128],
}
"""What is searched if nothing else is asked for: a range, or a list of values."""


@dataclass(frozen=True)
class Search:
    """What is searched: a model, the options that stay, and the space of those that do not."""

    encoder: str
    output: str
    fixed: Options
    space: Options

    def __post_init__(self) -> None:
        for name, values in self.space.items():
            if isinstance(values, list):
                if not values:
                    raise SpecError(f"space: {name} has no values to try")
                continue
            table = TomlTable(values, f"space: {name}", ("low", "high", "log", "step"))
            low, high = table.values.get("low"), table.values.get("high")
            if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
                raise SpecError(f"space: {name} must be a list of values or a range {{ low = …, high = … }}")
            if table.take("log", bool, False) and low <= 0:
                raise SpecError(f"space: {name} cannot begin at {low:g} with log = true; begin above 0")
            step = table.values.get("step")
            if step is not None and (table.values.get("log") or not isinstance(step, int | float) or step <= 0):
                raise SpecError(f"space: {name} has step = {step!r}; it is a number above 0, and goes without log")
            if isinstance(step, float) and isinstance(low, int) and isinstance(high, int):
                raise SpecError(
                    f"space: {name} goes from {low} to {high} by {step:g}; write the ends as {low}.0, {high}.0"
                )
        for name in {*self.fixed, *self.space} & {*PREPARE, "metric"}:
            raise SpecError(f"'{name}' cannot be set or searched here; prepare the log before, figures are {METRIC}")
        first = {name: _end(values, 0) for name, values in self.space.items()}
        for name, values in self.space.items():
            for value in values if isinstance(values, list) else (values["low"], values["high"]):
                self.recommender({**first, name: value})

    def options(self, chosen: Options) -> Options:
        """All options of a trial."""
        return Study.merged(self.encoder, self.fixed, chosen)

    def recommender(self, chosen: Options) -> Recommender:
        """What trains a trial."""
        return Recommender(self.encoder, self.output, **self.options(chosen))


@dataclass(frozen=True)
class Found:
    """The best options so far."""

    trials: int
    pruned: int
    figure: float
    options: Options


Tell = Callable[[str], None]


class Tuning:
    """A search in a folder: trials in an SQLite file, the training of each in a folder of its own while it runs."""

    def __init__(self, search: Search, sequences: Sequences, folder: Path, seed: int = 0) -> None:
        self.search, self.sequences, self.folder = search, sequences, folder
        check_validation(sequences)
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        self.optuna = needs("optuna", "study")
        self.optuna.logging.set_verbosity(self.optuna.logging.ERROR)
        name = digest([search.encoder, search.output, search.fixed, search.space, sequences.fingerprint])
        epochs = search.recommender({key: _end(values, 0) for key, values in search.space.items()}).training.epochs
        with locked(folder / "trials.lock"):
            self.study = self.optuna.create_study(
                storage=f"sqlite:///{folder / TRIALS}",
                study_name=name,
                direction="maximize",
                load_if_exists=True,
                pruner=self.optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=max(1, epochs // 4)),
            )
            self._take_up()
        self.study.sampler = self.optuna.samplers.TPESampler(seed=(seed + len(self.study.trials)) % 2**32)

    @property
    def finished(self) -> int:
        """How many trials came to an end."""
        ends = (self.optuna.trial.TrialState.COMPLETE, self.optuna.trial.TrialState.PRUNED)
        return len(self.study.get_trials(deepcopy=False, states=ends))

    def run(self, trials: int, minutes: float, tell: Tell, callback: Callback) -> Found:
        """Search until so many trials are finished in all, or no trial may begin any more; write the best options."""
        left = trials - self.finished

        def said(study: Any, trial: Any) -> None:
            done = trial.state == self.optuna.trial.TrialState.COMPLETE
            why = trial.user_attrs.get(WHY, "stopped early, behind the others")
            figure = f"validation {METRIC.upper()} {trial.value:.4f}" if done else why
            values = ", ".join(f"{name} {_shown(value)}" for name, value in trial.params.items())
            tell(f"trial {trial.number + 1}: {figure} with {values}")

        if left > 0:
            timeout = 60 * minutes if minutes else None
            ends = (self.optuna.trial.TrialState.COMPLETE, self.optuna.trial.TrialState.PRUNED)
            enough = self.optuna.study.MaxTrialsCallback(trials, states=ends)  # others may search beside this process
            self.study.optimize(lambda trial: self._trial(trial, callback), left, timeout, callbacks=[said, enough])
        return self.best()

    def best(self) -> Found:
        """The best trial's options, written for `abaca train --config`."""
        complete = self.optuna.trial.TrialState.COMPLETE
        done = self.study.get_trials(deepcopy=False, states=(complete,))
        if not done:
            raise TrainingError(f"no trial in {self.folder} came to an end; search again with a larger budget")
        best = max(done, key=lambda trial: trial.value)
        found = Found(self.finished, self.finished - len(done), best.value, self.search.options(best.params))
        lines = [f"# The best of {found.trials} trials on validation {METRIC.upper()}: {found.figure:.4f}."]
        options = {"encoder": self.search.encoder, "output": self.search.output, **found.options}
        lines += [f"{name} = {json.dumps(value)}" for name, value in options.items()]
        with locked(self.folder / "trials.lock"):
            write_text(self.folder / BEST, "\n".join(lines) + "\n")
        return found

    def _trial(self, trial: Any, callback: Callback) -> float:
        with locked(self._lock_of(trial)):
            chosen = {name: _suggest(trial, name, values) for name, values in self.search.space.items()}
            folder = self.folder / "runs" / digest([self.study.study_name, self.search.options(chosen)])
            with locked(Path(f"{folder}.lock")):  # another searcher may try the same
                known = Path(f"{folder}.figure")
                if not known.exists():
                    try:
                        write_text(known, repr(self._figure(trial, chosen, folder, callback)))
                    except KeyboardInterrupt:
                        self.study.enqueue_trial(trial.params)  # the next search goes on with it
                        raise
                return float(known.read_text(encoding="utf-8"))

    def _figure(self, trial: Any, chosen: Options, folder: Path, callback: Callback) -> float:
        """Train, in a folder that is gone afterwards; the best validation figure."""
        try:
            recommender = self.search.recommender(chosen)
            recommender.fit(self.sequences, folder=folder, resume=True, callback=_Pruning(self.optuna, trial, callback))
        except (TrainingError, SpecError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            trial.set_user_attr(WHY, str(error))
            raise self.optuna.TrialPruned from error
        except self.optuna.TrialPruned:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        assert recommender.saved is not None
        figure: float = recommender.saved.training["best"]
        shutil.rmtree(folder)
        return figure

    def _take_up(self) -> None:
        """Trials whose process was killed begin again: their training goes on where it was saved."""
        state = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(state.RUNNING,)):
            with locked(self._lock_of(trial), wait=False) as alone:
                if alone:
                    self.study.tell(trial.number, state=state.FAIL)
                if alone and trial.params:
                    self.study.enqueue_trial(trial.params)

    def _lock_of(self, trial: Any) -> Path:
        """Held while a trial runs; several searches may share the folder."""
        return self.folder / "runs" / f"{self.study.study_name}-{trial.number}.lock"


class _Pruning(Callback):
    """Tells Optuna each epoch's figure, and stops a trial that is behind the others."""

    def __init__(self, optuna: Any, trial: Any, callback: Callback) -> None:
        self.optuna, self.trial, self.callback = optuna, trial, callback

    def on_step(self, step: Any) -> None:
        self.callback.on_step(step)

    def on_epoch(self, record: Record) -> None:
        if METRIC in record:
            self.trial.report(record[METRIC], record["epoch"])
        self.callback.on_epoch(record)
        if self.trial.should_prune():
            raise self.optuna.TrialPruned


def read_space(path: Path | None) -> Options:
    """The space of a TOML file; without one, the usual."""
    return SPACE if path is None else read_toml(path, "a space is a TOML file such as: dropout = [0.0, 0.5]")


def _suggest(trial: Any, name: str, values: Any) -> Any:
    if isinstance(values, list):
        return trial.suggest_categorical(name, values)
    kind = trial.suggest_int if isinstance(values["low"], int) and isinstance(values["high"], int) else None
    steps = {key: values[key] for key in ("log", "step") if key in values}
    return (kind or trial.suggest_float)(name, values["low"], values["high"], **steps)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _end(values: Any, end: int) -> Any:
    """The first or last value of a list or range."""
    return values[end] if isinstance(values, list) else values["low" if end == 0 else "high"]

"""Search for good options with Optuna, by validation NDCG@10, within a budget; resumable after a kill."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abaca.data.sequences import Sequences
from abaca.durable import locked, write_text
from abaca.errors import SpecError, TrainingError
from abaca.extra import needs
from abaca.recommender import Recommender
from abaca.study.plan import PREPARE, Options, Study
from abaca.study.runs import METRICS, check_validation, digest
from abaca.study.toml import TomlTable, read_toml
from abaca.training.callbacks import Callback
from abaca.types import Record

METRIC = METRICS[0]
BEST, TRIALS = "best.toml", "trials.db"
WHY = "why"
"""The attribute of a failed trial that holds the error."""
SPACE: Options = {
    "lr": {"low": 5e-4, "high": 1e-2, "log": True},
    "batch_targets": [200, 400, 800, 1600],
    "dropout": {"low": 0.0, "high": 0.5},
    "size": [32, 64, 128],
}
"""The default search space: ranges, or lists of values."""


@dataclass(frozen=True)
class Search:
    """A model, its fixed options, and the space of the searched ones."""

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
        first = {name: _first(values) for name, values in self.space.items()}
        for name, values in self.space.items():
            for value in values if isinstance(values, list) else (values["low"], values["high"]):
                self.recommender({**first, name: value})

    def options(self, chosen: Options) -> Options:
        """All options of a trial."""
        return Study.merged(self.encoder, self.fixed, chosen)

    def recommender(self, chosen: Options) -> Recommender:
        """The recommender of a trial."""
        return Recommender(self.encoder, self.output, options="fixed", **self.options(chosen))


@dataclass(frozen=True)
class Found:
    """The best options so far."""

    trials: int
    pruned: int
    value: float
    options: Options


Report = Callable[[str], None]


class Tuning:
    """A search in a folder: trials in an SQLite file, and a folder for each training while it runs."""

    def __init__(self, search: Search, sequences: Sequences, folder: Path, seed: int = 0) -> None:
        self.search, self.sequences, self.folder = search, sequences, folder
        check_validation(sequences)
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        self.optuna = needs("optuna", "study")
        self.optuna.logging.set_verbosity(self.optuna.logging.ERROR)
        self.states = self.optuna.trial.TrialState
        self.ends = (self.states.COMPLETE, self.states.PRUNED)
        name = digest([search.encoder, search.output, search.fixed, search.space, sequences.fingerprint])
        epochs = search.recommender({key: _first(values) for key, values in search.space.items()}).training.epochs
        with locked(folder / "trials.lock"):
            self.study = self.optuna.create_study(
                storage=f"sqlite:///{folder / TRIALS}",
                study_name=name,
                direction="maximize",
                load_if_exists=True,
                pruner=self.optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=max(1, epochs // 4)),
            )
            self._requeue()
        self.study.sampler = self.optuna.samplers.TPESampler(seed=(seed + len(self.study.trials)) % 2**32)

    @property
    def finished(self) -> int:
        """The number of finished trials."""
        return len(self.study.get_trials(deepcopy=False, states=self.ends))

    def run(self, trials: int, minutes: float, report: Report, callback: Callback) -> Found:
        """Search until `trials` are finished in all or the time is over; write the best options."""
        left = trials - self.finished

        def finished(study: Any, trial: Any) -> None:
            done = trial.state == self.states.COMPLETE
            why = trial.user_attrs.get(WHY, "stopped early, behind the others")
            figure = f"validation {METRIC.upper()} {trial.value:.4f}" if done else why
            values = ", ".join(f"{name} {_shown(value)}" for name, value in trial.params.items())
            report(f"trial {trial.number + 1}: {figure} with {values}")

        if left > 0:
            timeout = 60 * minutes if minutes else None
            enough = self.optuna.study.MaxTrialsCallback(trials, states=self.ends)
            self.study.optimize(lambda trial: self._trial(trial, callback), left, timeout, callbacks=[finished, enough])
        return self.best()

    def best(self) -> Found:
        """The best trial's options; also written for `abaca train --config`."""
        done = self.study.get_trials(deepcopy=False, states=(self.states.COMPLETE,))
        if not done:
            raise TrainingError(f"no trial in {self.folder} is finished; search again with a larger budget")
        best = max(done, key=lambda trial: trial.value)
        found = Found(self.finished, self.finished - len(done), best.value, self.search.options(best.params))
        lines = [f"# The best of {found.trials} trials on validation {METRIC.upper()}: {found.value:.4f}."]
        options = {"encoder": self.search.encoder, "output": self.search.output, "options": "fixed", **found.options}
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
                        self.study.enqueue_trial(trial.params)  # the next search resumes it
                        raise
                return float(known.read_text(encoding="utf-8"))

    def _figure(self, trial: Any, chosen: Options, folder: Path, callback: Callback) -> float:
        """Train in a temporary folder; the best validation metric."""
        try:
            recommender = self.search.recommender(chosen)
            called = [callback, _Pruning(self.optuna, trial)]
            recommender.fit(self.sequences, folder=folder, resume=True, callback=called)
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

    def _requeue(self) -> None:
        """Queue the trials of killed processes again; their training resumes."""
        for trial in self.study.get_trials(deepcopy=False, states=(self.states.RUNNING,)):
            with locked(self._lock_of(trial), wait=False) as alone:
                if alone:
                    self.study.tell(trial.number, state=self.states.FAIL)
                if alone and trial.params:
                    self.study.enqueue_trial(trial.params)

    def _lock_of(self, trial: Any) -> Path:
        """The lock of a running trial; several searches may share the folder."""
        return self.folder / "runs" / f"{self.study.study_name}-{trial.number}.lock"


class _Pruning(Callback):
    """Reports each epoch to Optuna, and ends a trial that is behind the others."""

    def __init__(self, optuna: Any, trial: Any) -> None:
        self.optuna, self.trial = optuna, trial

    def on_epoch(self, record: Record) -> None:
        if METRIC in record:
            self.trial.report(record[METRIC], record["epoch"])
        if self.trial.should_prune():
            raise self.optuna.TrialPruned


def read_space(path: Path | None) -> Options:
    """The space of a TOML file, or the default space."""
    return SPACE if path is None else read_toml(path, "a space is a TOML file such as: dropout = [0.0, 0.5]")


def _suggest(trial: Any, name: str, values: Any) -> Any:
    if isinstance(values, list):
        return trial.suggest_categorical(name, values)
    kind = trial.suggest_int if isinstance(values["low"], int) and isinstance(values["high"], int) else None
    steps = {key: values[key] for key in ("log", "step") if key in values}
    return (kind or trial.suggest_float)(name, values["low"], values["high"], **steps)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _first(values: Any) -> Any:
    """The first value of a list or range."""
    return values[0] if isinstance(values, list) else values["low"]

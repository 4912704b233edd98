"""The work of a study: pending tasks, locked one by one so that any number of processes share them.

The system releases a lock when its process ends, however it ends. Finished tasks are in the results.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from abaca.data.sequences import Sequences
from abaca.durable import locked
from abaca.errors import SpecError, TrainingError
from abaca.evaluation.evaluate import Evaluation
from abaca.study.cases import make_cases
from abaca.study.datasets import census
from abaca.study.plan import DataSet, RowKey, Study
from abaca.study.repetition import repetition
from abaca.study.results import Entry, Results
from abaca.study.runs import METRICS, Run, Workspace, check_validation, failed_values, run_values
from abaca.study.significance import compared, margin
from abaca.study.state import StudyState
from abaca.study.statistics import choose_users, repeats
from abaca.training.callbacks import Callback, Step

RESULTS, WORKSPACE = "results.jsonl", "work"
WAIT = 0.5
"""Seconds between checks of the results of others, and between reports of a step."""
MOST_EARLIER = 20
"""Earlier items that an example needs at least, or the median length where that is shorter."""


class Message(NamedTuple):
    """A worker's progress: began, step or done; the task, the finished share of it, and details."""

    kind: str
    task: str
    share: float = 0.0
    details: str = ""
    worker: int = 0


Report = Callable[[Message], None]


class Task(NamedTuple):
    """Work that is done once; its values become an entry of the results."""

    kind: str
    id: str
    words: str
    do: Callable[[Callback], dict[str, Any]]


class Work:
    """A study in a folder: the results file, the workspace, and the pending tasks."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self.folder = study, folder
        self.workspace = Workspace(folder / WORKSPACE)
        self.results = Results(folder / RESULTS, self.workspace.path / "results.lock")
        self.state = StudyState(study, self.results)

    def prepare(self, report: Report) -> None:
        """Prepare every data set and record its statistics."""
        for data in self.study.data:
            report(Message("began", f"preparing {data.name}"))
            sequences = self.workspace.sequences(data)
            check_validation(sequences, f"data '{data.name}': ")
            self.results.refresh()
            current, id = self.state.data.get(data.name), _data_id(data, sequences)
            if current is None or current["id"] != id:
                self.results.append("data", id, **_data_values(data, sequences))
        self.state.check_defaults()

    def share(self, report: Report) -> None:
        """Do tasks that no other process has locked, until none is pending."""
        while True:
            self.results.refresh()
            todo = list(self.pending())
            if not todo:
                return
            if not any(self._locked(task, len(todo) - 1, report) for task in todo):
                time.sleep(WAIT)

    def pending(self) -> Iterator[Task]:
        """Tasks that can be done now: runs, tests of chosen runs and their comparisons, examples, last the sweep."""
        for data in self.study.data:
            yield from self._baselines(data)
        for row in self.study.rows():
            yield from self._runs([*self.state.searched(row), *self.state.seeds(row)])
            yield from self._tests(row)
            yield from self._comparison(row)
            yield from self._margin(row)
        for data in self.study.data:
            yield from self._examples(data)
        for row in self.study.rows():
            yield from self._runs([swept.run for swept in self.state.swept(row)])

    def _locked(self, task: Task, left: int, report: Report) -> bool:
        """Do a task unless it is done; False if another process has locked it."""
        lock = self.workspace.path / "locks" / f"{task.kind}-{task.id}.lock"
        lock.parent.mkdir(exist_ok=True)
        with locked(lock, wait=False) as alone:
            if not alone:
                return False
            self.results.refresh()
            if self.results.get(task.kind, task.id) is not None:
                return True
            report(Message("began", task.words))
            began = time.perf_counter()
            values = task.do(Progress(task.words, report))
            self.results.append(task.kind, task.id, **values)
            details = f"{_details(values)}{time.perf_counter() - began:.1f} s; at least {left} tasks pending"
            report(Message("done", task.words, 1.0, details))
            return True

    def _baselines(self, data: DataSet) -> Iterator[Task]:
        for name in self.study.baselines:
            if self.state.baseline(data.name, name) is None:

                def do(callback: Callback, name: str = name) -> dict[str, Any]:
                    return {"data": data.name, "name": name} | _tested(self._baseline(name, data.name))

                yield Task("baseline", self.state.baseline_id(data.name, name), f"{data.name}: {name}", do)

    def _runs(self, found: list[Run]) -> Iterator[Task]:
        for run in {run.id: run for run in found if self.results.get("run", run.id) is None}.values():

            def do(callback: Callback, run: Run = run) -> dict[str, Any]:
                try:
                    return run_values(run, self.workspace.train(run, self._sequences(*run.origin), callback))
                except TrainingError as error:
                    return failed_values(run, error)

            yield Task("run", run.id, _words(run), do)

    def _tests(self, row: RowKey) -> Iterator[Task]:
        for run in self.state.seeds(row):
            trained = self.results.get("run", run.id)
            if trained is None or trained["best"] is None or self.results.get("test", run.id):
                continue

            def do(callback: Callback, run: Run = run) -> dict[str, Any]:
                result, seconds = self.workspace.test(run, self._sequences(*run.origin), callback)
                return {**run.row._asdict(), "seed": run.seed, "seconds": round(seconds, 3)} | _tested(result)

            yield Task("test", run.id, f"testing {_words(run)}", do)

    def _comparison(self, row: RowKey) -> Iterator[Task]:
        reference = self.state.reference(row)
        if row == reference or reference not in self.study.rows():
            return
        if self.state.tests(row) and self.state.tests(reference) and self.state.comparison(row) is None:

            def do(callback: Callback) -> dict[str, Any]:
                mine, other = (self._ranked(each, callback) for each in (row, reference))
                return {
                    **row._asdict(),
                    "against": self.study.against,
                    "metrics": compared(mine, other, len(self.study.rows_beside(row))),
                }

            yield Task("comparison", self.state.comparison_id(row), f"comparing {' '.join(row)}", do)

    def _margin(self, row: RowKey) -> Iterator[Task]:
        """The row against the best baselines, where the ranks of its targets are still in the workspace."""
        if not self.state.tests(row) or not (best := self.state.best_baselines(row.data)):
            return
        if self.state.margin(row) is None and all(map(self.workspace.is_tested, self.state.seeds(row))):

            def do(callback: Callback) -> dict[str, Any]:
                made = {name: self._baseline(name, row.data) for name in set(best.values())}
                beside = {group: made[name] for group, name in best.items()}
                tests = margin(self._ranked(row, callback), beside, len(self.study.rows_beside(row)))
                return {**row._asdict(), "metric": METRICS[0], "groups": tests}

            yield Task("margin", self.state.margin_id(row), f"{' '.join(row)} beside the best baseline", do)

    def _examples(self, data: DataSet) -> Iterator[Task]:
        rows = self.state.example_rows(data.name)
        if not rows or not all(self.state.tests(row) for row in rows):
            return
        if self.results.get("example", self.state.example_id(data.name)) is None:

            def do(callback: Callback) -> dict[str, Any]:
                sequences = self._sequences(data.name)
                chosen = choose_users(sequences, sequences.test, least_earlier(sequences))
                results = [self._ranked(row, callback)[0] for row in rows]
                cases = make_cases(sequences, chosen, results)
                return {"data": data.name, "cases": [asdict(case) for case in cases]}

            yield Task("example", self.state.example_id(data.name), f"examples of {data.name}", do)

    def _ranked(self, row: RowKey, callback: Callback) -> list[Evaluation]:
        return [self.workspace.test(run, self._sequences(*run.origin), callback)[0] for run in self.state.seeds(row)]

    def _baseline(self, name: str, data: str) -> Evaluation:
        return self.workspace.baseline(name, self._sequences(data))

    def _sequences(self, name: str, fingerprint: str | None = None) -> Sequences:
        """A data set's sequences; refused if their fingerprint is not the one of the results."""
        sequences = self.workspace.sequences(self.study.data_set(name))
        if sequences.fingerprint != (fingerprint or self.state.data[name]["fingerprint"]):
            raise SpecError(
                f"data '{name}': its log or its options have changed since this command began; start it again"
            )
        return sequences


class Progress(Callback):
    """Reports the progress of a training, at most every WAIT seconds."""

    def __init__(self, words: str, report: Report) -> None:
        self.words, self.report = words, report
        self.last = 0.0

    def on_step(self, step: Step) -> None:
        if time.monotonic() - self.last >= WAIT:
            self.last = time.monotonic()
            details = f"epoch {step.epoch + 1}, loss {step.loss:.3f}"
            self.report(Message("step", self.words, step.step / step.steps, details))


def least_earlier(sequences: Sequences) -> int:
    """The number of earlier items that an example needs at least."""
    lengths = np.asarray(sequences.test.positions) - np.asarray(sequences.offsets)[np.asarray(sequences.test.users)]
    return int(min(MOST_EARLIER, np.median(lengths)))


def _tested(result: Evaluation) -> Entry:
    """The summary of an evaluation."""
    return {key: value for key, value in result.to_json().items() if key not in ("name", "split")}


def _data_id(data: DataSet, sequences: Sequences) -> str:
    titles = _titles(sequences)
    return f"{data.name}-{sequences.fingerprint[:12]}" + (f"-{titles}" if titles else "")


def _titles(sequences: Sequences) -> str | None:
    """A checksum of the item table, if there is one; the fingerprint does not depend on it."""
    file = sequences.manifest["files"]["catalogue.parquet"]
    return str(file["sha256"][:12]) if sequences.catalogue.columns else None


def _data_values(data: DataSet, sequences: Sequences) -> Entry:
    counts = {key: value for key, value in sequences.manifest["counts"].items() if isinstance(value, int)}
    return {
        "name": data.name,
        "fingerprint": sequences.fingerprint,
        "titles": _titles(sequences),
        "repeats": round(float(repeats(sequences).mean()), 4),
        "census": asdict(census(sequences, data.name)),
        "repetition": asdict(repetition(sequences)),
        "catalogue": sequences.catalogue.size,
        "counts": counts,
        "split": sequences.manifest["split"]["rule"],
        "prepared": sequences.manifest["options"],
    }


def _words(run: Run) -> str:
    data, encoder, output = run.row
    return f"{data}: {encoder} {output}, seed {run.seed}, {run.id}"


def _details(values: Entry) -> str:
    figure = values.get("best")
    return "diverged; " if "error" in values else "" if figure is None else f"validation NDCG@10 {figure:.4f}; "

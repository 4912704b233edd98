"""The work of a study: what is still to do, claimed task by task so that any number of processes share it.

A claim is a lock that the system takes back when its process ends, however it ends. What is done is in the results.
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
from abaca.evaluation import metrics
from abaca.evaluation.evaluate import Evaluation
from abaca.study.cases import make_cases
from abaca.study.datasets import census
from abaca.study.plan import DataSet, RowKey, Study
from abaca.study.repetition import repetition
from abaca.study.results import Entry, Results
from abaca.study.runs import FIGURES, Run, Workshop, baseline, check_validation, failed_values, run_values
from abaca.study.standing import Standing
from abaca.study.statistics import choose_users, repeats
from abaca.training.trainer import Callback, Step

RESULTS, WORKSHOP = "results.jsonl", "work"
WAIT = 0.5
"""Seconds between looks at what others do, and between words about a step."""
FLIPS_PER_ROW = 200
"""Of a permutation test, for each row of an encoder: p < 0.01 stays possible after correcting for all of them."""
MOST_EARLIER = 20
"""Earlier items that an example's user needs, where half of the users have so many."""


class Message(NamedTuple):
    """What a worker tells: began, step or done, with the task in words, its share that is done, and news."""

    kind: str
    task: str
    share: float = 0.0
    news: str = ""
    worker: int = 0


Tell = Callable[[Message], None]


class Task(NamedTuple):
    """Something to do once; what it gives becomes an entry of the results."""

    kind: str
    id: str
    words: str
    do: Callable[[Callback], dict[str, Any]]


class Work:
    """A study in a folder: the results file, the workshop, and the tasks that follow from them."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self.folder = study, folder
        self.workshop = Workshop(folder / WORKSHOP)
        self.results = Results(folder / RESULTS, self.workshop.path / "results.lock")
        self.standing = Standing(study, self.results)

    def prepare(self, tell: Tell) -> None:
        """Prepare every data set and note what is in it."""
        for data in self.study.data:
            tell(Message("began", f"preparing {data.name}"))
            sequences = self.workshop.sequences(data)
            check_validation(sequences, f"data '{data.name}': ")
            self.results.refresh()
            current, id = self.standing.data.get(data.name), _data_id(data, sequences)
            if current is None or current["id"] != id:
                self.results.append("data", id, **_data_values(data, sequences))
        self.standing.check_defaults()

    def share(self, tell: Tell) -> None:
        """Do what nobody else does until nothing is left to do."""
        while True:
            self.results.refresh()
            todo = list(self.pending())
            if not todo:
                return
            if not any(self._claimed(task, len(todo) - 1, tell) for task in todo):
                time.sleep(WAIT)

    def pending(self) -> Iterator[Task]:
        """What can be done now: runs, tests of those that are chosen, what follows from tests, and last the sweep."""
        for data in self.study.data:
            yield from self._baselines(data)
        for row in self.study.rows():
            yield from self._runs([*self.standing.searched(row), *self.standing.seeds(row)])
            yield from self._tests(row)
            yield from self._comparison(row)
        for data in self.study.data:
            yield from self._examples(data)
        for row in self.study.rows():
            yield from self._runs([swept.run for swept in self.standing.swept(row)])

    def _claimed(self, task: Task, left: int, tell: Tell) -> bool:
        """Do a task, unless somebody else is at it or has done it."""
        place = self.workshop.path / "claims" / f"{task.kind}-{task.id}.lock"
        place.parent.mkdir(exist_ok=True)
        with locked(place, wait=False) as alone:
            if not alone:
                return False
            self.results.refresh()
            if self.results.get(task.kind, task.id) is not None:
                return True
            tell(Message("began", task.words))
            began = time.perf_counter()
            values = task.do(Telling(task.words, tell))
            self.results.append(task.kind, task.id, **values)
            news = f"{_news(values)}{time.perf_counter() - began:.1f} s; at least {left} more to do"
            tell(Message("done", task.words, 1.0, news))
            return True

    def _baselines(self, data: DataSet) -> Iterator[Task]:
        for name in self.study.baselines:
            if self.standing.baseline(data.name, name) is None:

                def do(callback: Callback, name: str = name) -> dict[str, Any]:
                    return {"data": data.name, "name": name} | _tested(baseline(name, self._sequences(data.name)))

                yield Task("baseline", self.standing.baseline_id(data.name, name), f"{data.name}: {name}", do)

    def _runs(self, found: list[Run]) -> Iterator[Task]:
        for run in {run.id: run for run in found if self.results.get("run", run.id) is None}.values():

            def do(callback: Callback, run: Run = run) -> dict[str, Any]:
                try:
                    return run_values(run, self.workshop.train(run, self._sequences(*run.origin), callback))
                except TrainingError as error:
                    return failed_values(run, error)

            yield Task("run", run.id, _words(run), do)

    def _tests(self, row: RowKey) -> Iterator[Task]:
        for run in self.standing.seeds(row):
            trained = self.results.get("run", run.id)
            if trained is None or trained["best"] is None or self.results.get("test", run.id):
                continue

            def do(callback: Callback, run: Run = run) -> dict[str, Any]:
                result, seconds = self.workshop.test(run, self._sequences(*run.origin), callback)
                return {**run.row._asdict(), "seed": run.seed, "seconds": round(seconds, 3)} | _tested(result)

            yield Task("test", run.id, f"testing {_words(run)}", do)

    def _comparison(self, row: RowKey) -> Iterator[Task]:
        reference = self.standing.reference(row)
        if row == reference or reference not in self.study.rows():
            return
        if self.standing.tests(row) and self.standing.tests(reference) and self.standing.comparison(row) is None:

            def do(callback: Callback) -> dict[str, Any]:
                mine, other = (self._ranked(each, callback) for each in (row, reference))
                return {
                    **row._asdict(),
                    "against": self.study.against,
                    "metrics": _compared(mine, other, len(self.study.rows_beside(row))),
                }

            yield Task("comparison", self.standing.comparison_id(row), f"comparing {' '.join(row)}", do)

    def _examples(self, data: DataSet) -> Iterator[Task]:
        rows = self.standing.example_rows(data.name)
        if not rows or not all(self.standing.tests(row) for row in rows):
            return
        if self.results.get("example", self.standing.example_id(data.name)) is None:

            def do(callback: Callback) -> dict[str, Any]:
                sequences = self._sequences(data.name)
                chosen = choose_users(sequences, sequences.test, least_earlier(sequences))
                kept = [one for one in chosen if one.kind != "typical"]
                results = [self._ranked(row, callback)[0] for row in rows]
                cases = make_cases(sequences, kept, results)
                return {"data": data.name, "cases": [asdict(case) for case in cases]}

            yield Task("example", self.standing.example_id(data.name), f"examples of {data.name}", do)

    def _ranked(self, row: RowKey, callback: Callback) -> list[Evaluation]:
        return [self.workshop.test(run, self._sequences(*run.origin), callback)[0] for run in self.standing.seeds(row)]

    def _sequences(self, name: str, fingerprint: str | None = None) -> Sequences:
        """A data set's sequences; if they are not those with the fingerprint, the results would be told of others."""
        sequences = self.workshop.sequences(self.study.data_set(name))
        if sequences.fingerprint != (fingerprint or self.standing.data[name]["fingerprint"]):
            raise SpecError(
                f"data '{name}': its log, or how the study prepares it, has changed since this command began; start it "
                "again"
            )
        return sequences


class Telling(Callback):
    """Tells how far a training is, now and then."""

    def __init__(self, words: str, tell: Tell) -> None:
        self.words, self.tell = words, tell
        self.last = 0.0

    def on_step(self, step: Step) -> None:
        if time.monotonic() - self.last >= WAIT:
            self.last = time.monotonic()
            news = f"epoch {step.epoch + 1}, loss {step.loss:.3f}"
            self.tell(Message("step", self.words, step.step / step.steps, news))


def least_earlier(sequences: Sequences) -> int:
    """How many earlier items an example's user needs at least."""
    lengths = np.asarray(sequences.test.positions) - np.asarray(sequences.offsets)[np.asarray(sequences.test.users)]
    return int(min(MOST_EARLIER, np.median(lengths)))


def _compared(mine: list[Evaluation], other: list[Evaluation], rows: int) -> dict[str, Any]:
    """A paired test over users for each metric; with several seeds, of each target's mean gain.

    The more rows are corrected for, the finer a p-value must be to mean something.
    """
    users, found, flips = mine[0].users, {}, max(metrics.FLIPS, FLIPS_PER_ROW * rows)
    for metric in FIGURES:
        gains = [np.mean([result.gains(metric) for result in results], axis=0) for results in (mine, other)]
        found[metric] = asdict(metrics.paired_test(gains[0], gains[1], users, flips))
    return found


def _tested(result: Evaluation) -> Entry:
    """The summary of an evaluation."""
    return {key: value for key, value in result.to_json().items() if key not in ("name", "split")}


def _data_id(data: DataSet, sequences: Sequences) -> str:
    titles = _titles(sequences)
    return f"{data.name}-{sequences.fingerprint[:12]}" + (f"-{titles}" if titles else "")


def _titles(sequences: Sequences) -> str | None:
    """Names what the item table says, if there is one: the fingerprint does not depend on it."""
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


def _news(values: Entry) -> str:
    figure = values.get("best")
    return "diverged; " if "error" in values else "" if figure is None else f"validation NDCG@10 {figure:.4f}; "

"""The state of a study by its results: the runs of each row, the chosen one, and its test results."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from abaca.errors import SpecError
from abaca.evaluation.evaluate import SHELVES, Group, Shelf
from abaca.options import AUTO
from abaca.study.plan import RowKey, Study
from abaca.study.results import Entry, Results
from abaca.study.runs import METRICS, Run, digest

MEASURED: tuple[Group | Shelf, ...] = ("all", *SHELVES)
"""The targets on which a row is compared with the best baseline: all, and each shelf."""
LEAST_REPEATS = 0.01
"""The share of repeats from which on a data set counts as one with repeats."""


class Swept(NamedTuple):
    """A run that differs from the chosen one in a single option."""

    option: str
    value: Any
    run: Run


class StudyState:
    """A study, its results, and what follows from both; a data set is known by its entry."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self._asked = {data.name: json.loads(json.dumps(asdict(data.prepare))) for data in study.data}
        self._searched: dict[tuple[RowKey, str], list[Run]] = {}

    @property
    def data(self) -> dict[str, Entry]:
        """The latest entry of each data set, preferably one prepared with the study's options."""
        found: dict[str, Entry] = {}
        for data in self.study.data:
            known = [entry for entry in self.results.all("data") if entry["name"] == data.name]
            fitting = [entry for entry in known if _prepared_so(entry, self._asked[data.name])]
            if known:
                found[data.name] = (fitting or known)[-1]
        return found

    @property
    def with_repeats(self) -> list[str]:
        """The data sets with repeats: as the study states, else by their share of repeats."""
        stated = {name: self.study.data_set(name).repeats for name in self.data}
        shares = {name: entry["repeats"] >= LEAST_REPEATS for name, entry in self.data.items()}
        return [name for name, repeats in stated.items() if (shares[name] if repeats is None else repeats)]

    def searched(self, row: RowKey) -> list[Run]:
        """The runs of a row's grid, with the first seed."""
        fingerprint = self.data[row.data]["fingerprint"]
        if (row, fingerprint) not in self._searched:
            first = Run(row, (), self.study.seeds[0], fingerprint)
            runs = map(first.with_options, self.study.configurations(row))
            self._searched[row, fingerprint] = list({run.id: run for run in runs}.values())
        return self._searched[row, fingerprint]

    def chosen(self, row: RowKey) -> Run | None:
        """The run with the best validation, once all are done; None before, or if all diverged."""
        runs = self.searched(row)
        entries = [self.results.get("run", run.id) for run in runs]
        if any(entry is None for entry in entries):
            return None
        figures = [-1.0 if entry is None or entry["best"] is None else entry["best"] for entry in entries]
        best = int(np.argmax(figures))
        return runs[best] if figures[best] >= 0 else None

    def seeds(self, row: RowKey) -> list[Run]:
        """The chosen configuration with each seed."""
        chosen = self.chosen(row)
        return [] if chosen is None else [chosen.with_seed(seed) for seed in self.study.seeds]

    def swept(self, row: RowKey) -> list[Swept]:
        """The chosen configuration with one option changed, for each value of each option of the sweep."""
        chosen, sweep = self.chosen(row), self.study.sweep
        if chosen is None or not sweep.covers(row):
            return []
        options = dict(chosen.options)
        return [
            Swept(name, value, chosen.with_options(self.study.merged(row.encoder, options, {name: value})))
            for name, values in sweep.options.items()
            for value in values
        ]

    def tests(self, row: RowKey) -> list[Entry]:
        """The test entries of a row, one per seed; none until all are done."""
        if row.data not in self.data:
            return []
        entries = [self.results.get("test", run.id) for run in self.seeds(row)]
        return [] if None in entries else [entry for entry in entries if entry is not None]

    def baseline(self, data: str, name: str) -> Entry | None:
        """A baseline's entry on a data set."""
        return self.results.get("baseline", self.baseline_id(data, name)) if data in self.data else None

    def baseline_id(self, data: str, name: str) -> str:
        """The id of a baseline's entry."""
        return digest([name, self.data[data]["fingerprint"]])

    def best_baselines(self, data: str) -> dict[Group | Shelf, str]:
        """The baseline with the highest test NDCG@10 over all targets and on each shelf; none until all are done."""
        found = {name: self.baseline(data, name) for name in self.study.baselines}
        entries = {name: entry for name, entry in found.items() if entry is not None}
        if len(entries) < len(found):
            return {}
        best: dict[Group | Shelf, str] = {}
        for group in MEASURED:
            values = {name: _measured(entry, group) for name, entry in entries.items()}
            known = {name: value for name, value in values.items() if value is not None}
            if known and len(known) == len(values):
                best[group] = max(known, key=lambda name: known[name])
        return best

    def margin_id(self, row: RowKey) -> str:
        """The id of a row's tests against the best baselines."""
        best = self.best_baselines(row.data)
        return digest(["margin", [run.id for run in self.seeds(row)], best])

    def margin(self, row: RowKey) -> Entry | None:
        """A row's tests against the best baselines, once it and they are tested."""
        return self.results.get("margin", self.margin_id(row)) if self.tests(row) else None

    def comparison_id(self, row: RowKey) -> str:
        """The id of the comparison of a row with its reference."""
        runs = [[run.id for run in self.seeds(each)] for each in (row, self.reference(row))]
        return digest(["comparison", *runs])

    def reference(self, row: RowKey) -> RowKey:
        """The row with the same encoder that a row is compared with."""
        return row._replace(output=self.study.against)

    def comparison(self, row: RowKey) -> Entry | None:
        """The comparison of a row with its reference, if both are tested."""
        if row.data not in self.data or not self.tests(row):
            return None
        return self.results.get("comparison", self.comparison_id(row))

    def example_rows(self, data: str) -> list[RowKey]:
        """The rows shown side by side: those of the encoder with most of the example output layers."""
        rows = [row for row in self.study.rows() if row.data == data and row.output in self.study.examples]
        encoders = [row.encoder for row in rows]
        most = max(encoders, key=encoders.count, default=None)
        kept = [row for row in rows if row.encoder == most]
        return sorted(kept, key=lambda row: self.study.examples.index(row.output))

    def example_id(self, data: str) -> str:
        """The id of a data set's examples; it depends on the items' titles too."""
        titles = self.data[data].get("titles")
        runs = [[run.id for run in self.seeds(row)] for row in self.example_rows(data)]
        return digest(["example", *([titles] if titles else []), *runs])

    def check_defaults(self) -> None:
        """Refuse results made with another default of an option that the study leaves open.

        Options that `auto` chooses have no defaults: they are those of the log.
        """
        for row in self.study.rows():
            for run in self.searched(row) if row.data in self.data else ():
                entry = {} if dict(run.options).get("options") == AUTO else self.results.get("run", run.id) or {}
                recommender = run.recommender()
                now = {**recommender.encoder_options, **asdict(recommender.training)}
                for name, was in entry.get("all_options", {}).items():
                    if name in now and now[name] != was and name not in ("checkpoint_minutes", "window"):
                        raise SpecError(
                            f"{self.results.path}: run {run.id} was made with {name} = {was!r}, now the default is "
                            f"{now[name]!r}; write {name} into the study's options"
                        )


def _measured(entry: Entry, group: Group | Shelf) -> float | None:
    """The NDCG@10 of an entry; None where it has no targets, or was made by a release without shelves."""
    part = "shelves" if group in SHELVES else "groups"
    found: float | None = entry[part][group]["metrics"][METRICS[0]]["value"] if part in entry else None
    return found


def _prepared_so(entry: Entry, options: Mapping[str, Any]) -> bool:
    """Whether a data set was prepared with these options; unknown ones do not count."""
    return all(entry.get("prepared", {}).get(name, value) == value for name, value in options.items())

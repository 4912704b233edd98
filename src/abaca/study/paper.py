"""The numbers of the paper (Chang, Agarwal, McCallum, WSDM 2024), to compare with.

`paper.json` has them as printed, in percent; here they are fractions, as Abaca measures.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from abaca.evaluation.metrics import geometric_mean

Duplicates = Literal["without", "with", "all"]
"""The paper's groups of data sets: without duplicated items, with them, all twelve."""

PER_SET = ("ndcg@10", "hr@10")
"""Metrics per data set, Tables 2 and 3."""

MEANS = (*PER_SET, "mrr@10")
"""Metrics with geometric means, Table 4."""


@dataclass(frozen=True)
class PaperDataset:
    """A row of the paper's Table 1; counts are in thousands, before filtering."""

    name: str
    """As in `abaca fetch`."""
    title: str
    kind: str
    """The kind of its items."""
    users: int
    items: int
    interactions: int
    hidden: int
    """Hidden size of the encoders."""
    batch: tuple[int, ...]
    """Batch sizes that were tried, in prefixes."""
    duplicates: bool
    """Whether the paper counts it among those with duplicated items."""


@dataclass(frozen=True)
class PaperResult:
    """A row of the paper's Tables 2, 3 and 4: an encoder with an output layer."""

    encoder: str
    output: str
    values: dict[str, dict[str, float]]
    """Data set → metric → fraction."""
    printed_means: dict[Duplicates, dict[str, float]]
    """Group → metric → fraction, as printed. In `all` the paper counts its two group means as data sets."""

    def mean(self, metric: str, group: Duplicates = "all") -> float:
        """The geometric mean over the data sets of a group, from the values per data set."""
        return geometric_mean([self.values[name][metric] for name in dataset_names(group)])


@cache
def paper_datasets() -> tuple[PaperDataset, ...]:
    """The twelve data sets, in the paper's order."""
    return tuple(PaperDataset(**row | {"batch": tuple(row["batch"])}) for row in _document()["datasets"])


@cache
def paper_results() -> tuple[PaperResult, ...]:
    """The nineteen rows, in the paper's order."""
    return tuple(_result(row) for row in _document()["results"])


def dataset_names(group: Duplicates = "all") -> tuple[str, ...]:
    """The data sets of a group."""
    wanted = {"without": (False,), "with": (True,), "all": (False, True)}[group]
    return tuple(dataset.name for dataset in paper_datasets() if dataset.duplicates in wanted)


def citation() -> str:
    """The citation of the paper."""
    return str(_document()["citation"])


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(files("abaca.study").joinpath("paper.json").read_text(encoding="utf-8"))
    return document


def _result(row: dict[str, Any]) -> PaperResult:
    return PaperResult(
        encoder=row["encoder"],
        output=row["output"],
        values={name: _fractions(PER_SET, printed) for name, printed in row["datasets"].items()},
        printed_means={group: _fractions(MEANS, printed) for group, printed in row["means"].items()},
    )


def _fractions(metrics: tuple[str, ...], percent: list[float]) -> dict[str, float]:
    return {metric: round(value / 100, 6) for metric, value in zip(metrics, percent, strict=True)}

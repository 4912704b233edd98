"""Statistics of data sets, as in the paper's Table 1, for logs and prepared sequences."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abaca.data.inspect import inspect
from abaca.data.log import Log
from abaca.data.sequences import Sequences
from abaca.study.paper import PaperDataset, paper_datasets
from abaca.study.statistics import repeats
from abaca.study.table import Cell, Line, Table, plain

UNNAMED = ("log", "inter", "sequences", "interactions")
"""Generic names of files and folders: the parent folder names the data set."""


@dataclass(frozen=True)
class Census:
    """Counts of a data set, and its shares of repeats."""

    name: str
    users: int
    items: int
    interactions: int
    median_length: float
    """Median interactions per user."""
    longest: int
    repeat_share: float
    """The share of interactions whose item the user had before."""
    last_repeat_share: float
    """The share of users with at least two interactions whose last item is a repeat."""

    @property
    def mean_length(self) -> float:
        """Mean interactions per user."""
        return self.interactions / self.users

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"mean_length": self.mean_length}


def census(source: Log | Sequences, name: str) -> Census:
    """The statistics of a log, or of prepared sequences after filtering."""
    if isinstance(source, Log):
        found = inspect(source)
        sizes = (found.users, found.items, found.interactions, float(found.lengths["50%"]), found.lengths["max"])
        return Census(name, *sizes, found.repeat_share, found.last_repeat_share)
    lengths, repeat = np.diff(source.offsets), repeats(source)
    last = repeat[np.asarray(source.offsets[1:])[lengths > 1] - 1]
    return Census(
        name, source.users, len(source.catalogue), len(source.items),
        float(np.quantile(lengths, 0.5, method="inverted_cdf")), int(lengths.max()), float(repeat.mean()),
        float(last.mean()) if len(last) else 0.0,
    )  # fmt: skip


def dataset_table(found: Iterable[Census]) -> Table:
    """One row per data set, beside the paper's numbers where it has them."""
    rows = list(found)
    paper = {dataset.name: dataset for dataset in paper_datasets()}
    beside = any(row.name in paper for row in rows)
    heads: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("", ("users", "items", "interactions")),
        ("per user", ("mean", "median", "most")),
        ("repeats %", ("all", "last")),
    )
    said = "Data sets: counts, interactions per user, and the share of repeats among all and among users' last."
    if beside:
        heads += (("the paper, thousands", ("users", "items", "interactions")),)
        said += " The paper's counts are before filtering."
    lines = (_line(row, paper.get(row.name), beside) for row in rows)
    return Table("datasets", said, heads, tuple(lines))


def source_name(path: Path) -> str:
    """The data set's name from its path: `data/ml-1m/log.parquet` → ml-1m."""
    path = path.resolve()
    stem = path.name if path.is_dir() else path.name.split(".")[0]
    return path.parent.name if stem.lower() in UNNAMED and path.parent.name else stem


def _line(row: Census, paper: PaperDataset | None, beside: bool) -> Line:
    sizes = [_count(number) for number in (row.users, row.items, row.interactions)]
    lengths = [plain(row.mean_length, 1), plain(row.median_length, 0), _count(row.longest)]
    shares = [plain(100 * share, 1) for share in (row.repeat_share, row.last_repeat_share)]
    known = (None, None, None) if paper is None else (paper.users, paper.items, paper.interactions)
    theirs = [plain(None) if number is None else _count(number) for number in known] if beside else []
    return Line("Data sets", row.name, tuple(sizes + lengths + shares + theirs))


def _count(number: int) -> Cell:
    return Cell(number, f"{number:,}")

"""Full ranking: every target against the whole catalogue, for anything that ranks, in chunks.

A target is a *repeat* if it is anywhere in the user's whole history, else it is *new*. A *cold* target, one that
training never saw, is counted. It is a miss, with gains of 0, unless the ranker knows its features. Where only some
types of events are predicted, a repeat is an item that had such an event before: bought again, not viewed again.

A single list trades repeats for new items, so each *shelf* is ranked alone too: *buy again*, where only items of the
history compete, on repeat targets; *discover*, where only the other items compete, on new targets.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from abaca.data.sequences import Sequences, Targets
from abaca.display import html_table, plain
from abaca.errors import SpecError
from abaca.evaluation import metrics
from abaca.evaluation.metrics import Bools, Calibration, Estimate, Floats, Ints
from abaca.evaluation.ranker import Ranker
from abaca.evaluation.ranking import Ranked, rank_chunk
from abaca.evaluation.targets import checked_cutoffs, targets_of

Group = Literal["all", "repeat", "new"]
GROUPS: tuple[Group, ...] = ("all", "repeat", "new")
Shelf = Literal["buy again", "discover"]
SHELVES: tuple[Shelf, ...] = ("buy again", "discover")

CHUNK = 256
"""Targets that are ranked at once."""

NOW_KNOWN = "time of the query known"
MOST_CELLS = 1 << 31
"""Items of top lists that an evaluation holds at most: ten gigabytes."""


@dataclass(frozen=True)
class GroupSummary:
    """The metrics over all, the repeat or the new targets, or on a shelf."""

    count: int
    metrics: dict[str, Estimate]  # by name, such as ndcg@10


@dataclass(frozen=True)
class Summary:
    """The summary of an evaluation."""

    groups: dict[Group, GroupSummary]
    shelves: dict[Shelf, GroupSummary]  # each shelf ranked alone
    cold: int  # targets that training never saw; they are misses
    repeats_happen: float  # share of repeats among the targets
    repeats_recommended: dict[int, float]  # share of repeats among the first k recommended, by k
    coverage: dict[int, float]  # share of the catalogue among anyone's first k, by k
    calibration: Calibration | None  # of the predicted probability of a repeat, where the ranker predicts one


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Every target's rank under one ranker, and what follows from the ranks."""

    name: str  # the ranker's, and whether the time of the query was known
    split: str  # test, valid, or chosen
    cutoffs: tuple[int, ...]
    catalogue: int  # V
    users: Ints  # (T,)
    positions: Ints  # (T,)
    items: Ints  # (T,) the targets
    rank: Ints  # (T,); V + 1 for a cold target
    shelf_rank: Ints  # (T,) among the items of the history for a repeat, among the others for a new target
    repeat: Bools  # (T,) the target is in the whole history
    top: NDArray[np.int32]  # (T, n) with n the largest cutoff, at most V
    top_repeat: Bools  # (T, n) the recommended item is in the whole history
    repeat_probability: Floats  # (T,)
    now_known: bool = False  # the ranker was told the time of each target
    repeats_of: tuple[str, ...] | None = None  # the types whose events make an item a repeat; None for all
    warm: int | None = None  # items that training saw, where the ranker also ranks others

    def __repr__(self) -> str:
        means = ", ".join(f"{metric} {self.mean(metric):.4f}" for metric in self.metric_names)
        return f"Evaluation({self.name}: {means}; {len(self.rank):,} {self.split} targets)"

    def _repr_html_(self) -> str:
        groups = (*GROUPS, *SHELVES)
        rows = [
            (metric, *(f"{self.mean(metric, group):.4f}" if self.mask(group).any() else "–" for group in groups))
            for metric in self.metric_names
        ]
        head = ("metric", *(f"{group} ({int(self.mask(group).sum()):,})" for group in groups))
        return html_table(f"{self.name}, {self.split} targets", head, rows)

    @property
    def cold(self) -> Bools:
        """Mask of the targets that training never saw."""
        return self.items >= (self.catalogue if self.warm is None else self.warm)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics at all cutoffs."""
        return tuple(f"{name}@{k}" for k in self.cutoffs for name in metrics.GAINS)

    def mask(self, group: Group | Shelf = "all") -> Bools:
        """Mask of the targets in a group, or of those that a shelf is measured on."""
        if group not in GROUPS and group not in SHELVES:
            raise ValueError(f"got group {group!r}, expected one of {', '.join((*GROUPS, *SHELVES))}")
        if group == "all":
            return np.ones_like(self.repeat)
        return self.repeat if group in ("repeat", "buy again") else ~self.repeat

    def gains(self, metric: str, group: Group | Shelf = "all") -> Floats:
        """The gain of each target under a metric such as `ndcg@20`; it is 0 for a rank beyond the last item.

        Each target is ranked in the single list, or on its shelf where the group is a shelf.
        """
        rank = self.shelf_rank if group in SHELVES else self.rank
        return metrics.gains_or_zero(rank, self.catalogue, metric)

    def mean(self, metric: str, group: Group | Shelf = "all") -> float:
        """Give a metric's mean over a group or on a shelf, without an interval; NaN where there are no targets."""
        mask = self.mask(group)
        return float(self.gains(metric, group)[mask].mean()) if mask.any() else float("nan")

    @cached_property
    def summary(self) -> Summary:
        """Summarise with the usual number of resamples."""
        return self.summarise()

    def summarise(self, resamples: int = metrics.RESAMPLES, seed: int = 0, level: float = metrics.LEVEL) -> Summary:
        """Give the metrics of each group and shelf with intervals, and what the lists are made of."""
        names, masks = self.metric_names, [self.mask(group) for group in GROUPS]
        columns = [self.gains(metric, ranked) for ranked in ("all", "discover") for metric in names]
        rows = metrics.mean_estimates(columns, masks, self.users, resamples, seed, level)  # one resampling for both
        single, shelf = (
            [
                GroupSummary(int(mask.sum()), dict(zip(names, row[at:], strict=False)))
                for mask, row in zip(masks, rows, strict=True)
            ]
            for at in (0, len(names))
        )
        lists = {k: (self.top[:, :k], self.top_repeat[:, :k]) for k in self.cutoffs}
        return Summary(
            groups=dict(zip(GROUPS, single, strict=True)),
            shelves=dict(zip(SHELVES, shelf[1:], strict=True)),  # repeat and new targets
            cold=int(self.cold.sum()),
            repeats_happen=float(self.repeat.mean()),
            repeats_recommended={k: metrics.repeat_share(top, repeat) for k, (top, repeat) in lists.items()},
            coverage={k: metrics.coverage(top, self.catalogue) for k, (top, _) in lists.items()},
            calibration=metrics.calibration(self.repeat_probability, self.repeat),
        )

    def to_json(self) -> dict[str, Any]:
        """Give the summary as plain data for `json.dumps`; a number that does not exist is None."""
        head: dict[str, Any] = {
            "name": self.name,
            "split": self.split,
            "targets": len(self.rank),
            "catalogue": self.catalogue,
        }
        if self.repeats_of is not None:
            head["repeats_of"] = list(self.repeats_of)
        return {**head, "now_known": self.now_known, **plain(asdict(self.summary))}


def evaluate(
    ranker: Ranker,
    sequences: Sequences,
    targets: str | Targets = "test",
    cutoffs: Sequence[int] = (10,),
    progress: Callable[[int, int], None] | None = None,
    now: bool = False,
) -> Evaluation:
    """Rank every target of `test`, `valid` or a choice of targets, and gather what the metrics need.

    The history of a target is all of the user's items before it; the ranker sees those that are in the catalogue.
    `progress` is called with the number of targets done and their total. With `now` the ranker is also told the time of
    each target, as if it was asked at that moment.
    """
    ks = checked_cutoffs(cutoffs)
    split, users, positions = targets_of(sequences, targets)
    if now and sequences.times is None:
        raise SpecError("the log has no times, so the time of the query is not known; leave `now` out")
    items = np.asarray(sequences.items[positions], dtype=np.int64)
    catalogue, warm = ranker.catalogue, sequences.catalogue.size
    n = min(ks[-1], catalogue)
    if len(users) * n > MOST_CELLS:
        raise SpecError(
            f"the best {n:,} items of {len(users):,} targets do not fit into memory; ask for a lower cutoff"
        )
    order = by_length(sequences, Targets(users, positions))
    parts = []
    for start in range(0, len(order), CHUNK):
        chosen = order[start : start + CHUNK]
        histories = sequences.histories(users[chosen], positions[chosen])
        told = histories if now else replace(histories, now=None)
        parts.append(rank_chunk(ranker, told, items[chosen], catalogue, n, sequences.types))
        if progress is not None:
            progress(start + len(chosen), len(order))
    back = np.argsort(order)
    columns = Ranked(*(np.concatenate(column)[back] for column in zip(*parts, strict=True)))
    name = f"{ranker.name}, {NOW_KNOWN}" if now else ranker.name
    return Evaluation(
        name,
        split,
        ks,
        catalogue,
        users,
        positions,
        items,
        *columns,
        now_known=now,
        repeats_of=repeats_of(sequences),
        warm=warm,
    )


def by_length(sequences: Sequences, targets: Targets) -> Ints:
    """The numbers of targets in the order in which they are ranked: histories of one length cost no padding."""
    order: Ints = np.argsort(targets.positions - sequences.offsets[targets.users], kind="stable")
    return order


def dealt(sequences: Sequences, targets: Targets, rank: int, size: int) -> Ints:
    """The numbers of the targets that one of `size` processes ranks: every `size`-th chunk of those that one ranks."""
    order = by_length(sequences, targets)
    own: Ints = order[np.arange(len(order)) // CHUNK % size == rank]
    return own


def repeats_of(sequences: Sequences) -> tuple[str, ...] | None:
    """The types whose events make an item a repeat; None for all."""
    types = sequences.types
    return types.target_names if types is not None and types.restricted else None


@dataclass(frozen=True)
class Comparison:
    """How two rankers differ on the same targets."""

    a: str
    b: str
    metric: str
    group: Group | Shelf
    count: int
    difference: Estimate  # a − b
    p_value: float  # two-sided, of a sign-flip permutation test

    def to_json(self) -> dict[str, Any]:
        """Give plain data for `json.dumps`."""
        document: dict[str, Any] = plain(asdict(self))
        return document


def compare(
    a: Evaluation,
    b: Evaluation,
    metric: str = "ndcg@10",
    group: Group | Shelf = "all",
    resamples: int = metrics.FLIPS,
    seed: int = 0,
) -> Comparison:
    """Test whether two rankers differ on the same targets, user by user, in the single list or on a shelf."""
    for field in ("users", "positions", "items"):
        if not np.array_equal(getattr(a, field), getattr(b, field)):
            raise ValueError(f"got {a.name} and {b.name} on different targets ({field}), expected the same targets")
    mask = a.mask(group)
    ours, theirs = (each.gains(metric, group)[mask] for each in (a, b))
    test = metrics.paired_test(ours, theirs, a.users[mask], resamples, seed)
    return Comparison(a.name, b.name, metric, group, int(mask.sum()), test.difference, test.p_value)


def table(evaluations: Sequence[Evaluation]) -> list[dict[str, str | float | None]]:
    """Lay evaluations out as rows: the ranker, then each metric over all, repeat and new targets and on each shelf.

    Columns are named like `ndcg@10 repeat` and `ndcg@10 buy again`; a group without targets has None.
    """
    groups = (*GROUPS, *SHELVES)
    rows: list[dict[str, str | float | None]] = []
    for evaluation in evaluations:
        cells = {f"{m} {group}": plain(evaluation.mean(m, group)) for m in evaluation.metric_names for group in groups}
        rows.append({"ranker": evaluation.name, **cells})
    return rows

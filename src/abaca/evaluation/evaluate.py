"""Full ranking: every target against the whole catalogue, for anything that ranks, in chunks.

A target is a *repeat* if it is anywhere in the user's whole history, else it is *new*. A *cold* target, one that
training never saw, is a miss: no ranker can name it, its gains are 0, and it is counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from abaca.data.sequences import Sequences, Targets
from abaca.display import html_table, plain
from abaca.errors import SequencesError, SpecError
from abaca.evaluation import metrics
from abaca.evaluation.membership import Membership
from abaca.evaluation.metrics import Bools, Calibration, Estimate, Floats, Ints
from abaca.evaluation.ranker import Ranker
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.types import PAD, whole_number

Group = Literal["all", "repeat", "new"]
GROUPS: tuple[Group, ...] = ("all", "repeat", "new")
CHUNK = 256
MOST_CELLS = 1 << 31
"""Items of top lists that an evaluation holds at most: ten gigabytes."""


@dataclass(frozen=True)
class GroupSummary:
    """The metrics over all, the repeat or the new targets."""

    count: int
    metrics: dict[str, Estimate]  # by name, such as ndcg@10


@dataclass(frozen=True)
class Summary:
    """The summary of an evaluation."""

    groups: dict[Group, GroupSummary]
    cold: int  # targets that training never saw; they are misses
    repeats_happen: float  # share of repeats among the targets
    repeats_recommended: dict[int, float]  # share of repeats among the first k recommended, by k
    coverage: dict[int, float]  # share of the catalogue among anyone's first k, by k
    calibration: Calibration | None  # of the predicted probability of a repeat, where the ranker predicts one


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Every target's rank under one ranker, and what follows from the ranks."""

    name: str  # the ranker's
    split: str  # test, valid, or chosen
    cutoffs: tuple[int, ...]
    catalogue: int  # V
    users: Ints  # (T,)
    positions: Ints  # (T,)
    items: Ints  # (T,) the targets
    rank: Ints  # (T,); V + 1 for a cold target
    repeat: Bools  # (T,) the target is in the whole history
    top: NDArray[np.int32]  # (T, n) with n the largest cutoff, at most V
    top_repeat: Bools  # (T, n) the recommended item is in the whole history
    repeat_probability: Floats  # (T,)

    def __repr__(self) -> str:
        means = ", ".join(f"{metric} {self.mean(metric):.4f}" for metric in self.metric_names)
        return f"Evaluation({self.name}: {means}; {len(self.rank):,} {self.split} targets)"

    def _repr_html_(self) -> str:
        rows = [
            (metric, *(f"{self.mean(metric, group):.4f}" if self.mask(group).any() else "–" for group in GROUPS))
            for metric in self.metric_names
        ]
        head = ("metric", *(f"{group} ({int(self.mask(group).sum()):,})" for group in GROUPS))
        return html_table(f"{self.name}, {self.split} targets", head, rows)

    @property
    def cold(self) -> Bools:
        """Mask of the targets outside the catalogue."""
        return self.items >= self.catalogue

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics at all cutoffs."""
        return tuple(f"{name}@{k}" for k in self.cutoffs for name in metrics.GAINS)

    def mask(self, group: Group = "all") -> Bools:
        """Mask of the targets in a group."""
        if group not in GROUPS:
            raise ValueError(f"got group {group!r}, expected one of {', '.join(GROUPS)}")
        return {"all": np.ones_like(self.repeat), "repeat": self.repeat, "new": ~self.repeat}[group]

    def gains(self, metric: str) -> Floats:
        """The gain of each target under a metric such as `ndcg@20`; it is 0 for a rank beyond the last item."""
        return metrics.gains_or_zero(self.rank, self.catalogue, metric)

    def mean(self, metric: str, group: Group = "all") -> float:
        """Give a metric's mean over a group without an interval; NaN for an empty group."""
        mask = self.mask(group)
        return float(self.gains(metric)[mask].mean()) if mask.any() else float("nan")

    @cached_property
    def summary(self) -> Summary:
        """Summarise with the usual number of resamples."""
        return self.summarise()

    def summarise(self, resamples: int = metrics.RESAMPLES, seed: int = 0, level: float = metrics.LEVEL) -> Summary:
        """Give the metrics of each group with intervals, and what the lists are made of."""
        masks = [self.mask(group) for group in GROUPS]
        columns = [self.gains(metric) for metric in self.metric_names]
        estimates = metrics.mean_estimates(columns, masks, self.users, resamples, seed, level)
        lists = {k: (self.top[:, :k], self.top_repeat[:, :k]) for k in self.cutoffs}
        return Summary(
            groups={
                group: GroupSummary(int(mask.sum()), dict(zip(self.metric_names, row, strict=True)))
                for group, mask, row in zip(GROUPS, masks, estimates, strict=True)
            },
            cold=int(self.cold.sum()),
            repeats_happen=float(self.repeat.mean()),
            repeats_recommended={k: metrics.repeat_share(top, repeat) for k, (top, repeat) in lists.items()},
            coverage={k: metrics.coverage(top, self.catalogue) for k, (top, _) in lists.items()},
            calibration=metrics.calibration(self.repeat_probability, self.repeat),
        )

    def to_json(self) -> dict[str, Any]:
        """Give the summary as plain data for `json.dumps`; a number that does not exist is None."""
        head = {"name": self.name, "split": self.split, "targets": len(self.rank), "catalogue": self.catalogue}
        return {**head, **plain(asdict(self.summary))}


def evaluate(
    ranker: Ranker,
    sequences: Sequences,
    targets: str | Targets = "test",
    cutoffs: Sequence[int] = (10,),
    progress: Callable[[int, int], None] | None = None,
    chunk: int = CHUNK,
) -> Evaluation:
    """Rank every target of `test`, `valid` or a choice of targets, and gather what the metrics need.

    The history of a target is all of the user's items before it; the ranker sees those that are in the catalogue.
    `progress` is called with the number of targets done and their total.
    """
    ks = checked_cutoffs(cutoffs)
    split, users, positions = targets_of(sequences, targets)
    items = np.asarray(sequences.items[positions], dtype=np.int64)
    catalogue = sequences.catalogue.size
    n = min(ks[-1], catalogue)
    if len(users) * n > MOST_CELLS:
        raise SpecError(
            f"the best {n:,} items of {len(users):,} targets do not fit into memory; ask for a lower cutoff"
        )
    order = np.argsort(positions - sequences.offsets[users], kind="stable")  # histories of one length cost no padding
    parts = []
    for start in range(0, len(order), chunk):
        chosen = order[start : start + chunk]
        histories = sequences.histories(users[chosen], positions[chosen])
        parts.append(_rank(ranker, histories, items[chosen], catalogue, n))
        if progress is not None:
            progress(start + len(chosen), len(order))
    back = np.argsort(order)
    columns = [np.concatenate(column)[back] for column in zip(*parts, strict=True)]
    return Evaluation(ranker.name, split, ks, catalogue, users, positions, items, *columns)


def checked_cutoffs(given: Sequence[int]) -> tuple[int, ...]:
    """The cutoffs, ascending, each once."""
    try:
        found = [whole_number(cutoff) or 0 for cutoff in given]
    except TypeError:
        raise SpecError(f"got cutoffs {given!r}, expected a list such as (5, 10)") from None
    if not found or min(found) < 1:
        raise SpecError(f"got cutoffs {tuple(given)}, expected one or more whole numbers of at least 1")
    return tuple(sorted(set(found)))


def targets_of(sequences: Sequences, targets: str | Targets) -> tuple[str, Ints, Ints]:
    """Name the split and give its users and positions."""
    splits = {"test": sequences.test, "valid": sequences.valid}
    if not (targets in splits if isinstance(targets, str) else isinstance(targets, Targets)):
        raise SpecError(f"got targets {targets!r}, expected 'test', 'valid' or Targets")
    split = targets if isinstance(targets, str) else "chosen"
    found = splits[targets] if isinstance(targets, str) else targets
    if not len(found.users):
        raise SequencesError(f"{sequences.path}: no {split} targets to rank; prepare a longer log or another split")
    return split, np.asarray(found.users, dtype=np.int64), np.asarray(found.positions, dtype=np.int64)


class _Ranked(NamedTuple):
    """A chunk's columns, in the order of the fields of an evaluation."""

    rank: Ints
    repeat: Bools
    top: NDArray[np.int32]
    top_repeat: Bools
    repeat_probability: Floats


def _rank(ranker: Ranker, histories: Histories, items: Ints, catalogue: int, n: int) -> _Ranked:
    """Rank a chunk of targets, and look targets and lists up in the whole histories."""
    cold = items >= catalogue
    known = histories.known(catalogue)
    question = Question(
        targets=torch.from_numpy(np.where(cold, PAD, items)),  # no ranker can score a cold item
        n=n,
        mass_of=torch.from_numpy(Membership(known, catalogue).rectangle()),
        banned=torch.empty(len(items), 0, dtype=torch.int64),
    )
    found = ranker.ask(known, question)
    if found.items.shape != (len(items), n):
        raise ValueError(f"{ranker.name}: got a list of shape {tuple(found.items.shape)}, expected {(len(items), n)}")
    rank = np.where(cold, catalogue + 1, found.rank.numpy()).astype(np.int64)
    if rank.min() < 1 or rank.max() > catalogue + 1:
        raise ValueError(f"{ranker.name}: got ranks {rank.min()} to {rank.max()}, expected 1 to {catalogue + 1}")
    top = found.items.masked_fill(found.logits == -torch.inf, PAD).numpy().astype(np.int32)
    whole = Membership(histories, 1 + max(catalogue - 1, int(items.max()), int(histories.items.max(initial=0))))
    repeat = whole.holds(np.column_stack([items, top]))  # (T, 1 + n)
    return _Ranked(rank, repeat[:, 0], top, repeat[:, 1:], found.mass.clamp(0, 1).double().numpy())


@dataclass(frozen=True)
class Comparison:
    """How two rankers differ on the same targets."""

    a: str
    b: str
    metric: str
    group: Group
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
    group: Group = "all",
    resamples: int = metrics.FLIPS,
    seed: int = 0,
) -> Comparison:
    """Test whether two rankers differ on the same targets, user by user."""
    for field in ("users", "positions", "items"):
        if not np.array_equal(getattr(a, field), getattr(b, field)):
            raise ValueError(f"got {a.name} and {b.name} on different targets ({field}), expected the same targets")
    mask = a.mask(group)
    test = metrics.paired_test(a.gains(metric)[mask], b.gains(metric)[mask], a.users[mask], resamples, seed)
    return Comparison(a.name, b.name, metric, group, int(mask.sum()), test.difference, test.p_value)


def table(evaluations: Sequence[Evaluation]) -> list[dict[str, str | float | None]]:
    """Lay evaluations out as rows: the ranker, then each metric over all, repeat and new targets.

    Columns are named like `ndcg@10 repeat`; a group without targets has None.
    """
    rows: list[dict[str, str | float | None]] = []
    for evaluation in evaluations:
        cells = {f"{m} {group}": plain(evaluation.mean(m, group)) for m in evaluation.metric_names for group in GROUPS}
        rows.append({"ranker": evaluation.name, **cells})
    return rows

"""Cold targets among cold items, and warm targets among warm items: what features are worth, without mixing the two.

A cold item has no training interactions. Only a ranker that reads features can rank it. Beside it stand two rules that
need none: *random*, the mean over all orders of the cold items; and *popularity*, their order in the catalogue, which
for held-out items is that of the interactions that were taken out. It knows more than any ranker.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from abaca.data.sequences import Sequences, Targets
from abaca.display import plain
from abaca.errors import SpecError
from abaca.evaluation import metrics
from abaca.evaluation.evaluate import CHUNK
from abaca.evaluation.metrics import Bools, Estimate, Floats, Ints
from abaca.evaluation.ranker import Ranker
from abaca.evaluation.targets import checked_cutoffs, targets_of
from abaca.histories import Histories
from abaca.nn.answers import Question


@dataclass(frozen=True)
class ColdSummary:
    """The metrics of cold targets under a ranker and two rules, and of warm targets."""

    name: str
    items: int  # cold items
    targets: int  # cold targets
    cold: dict[str, Estimate]  # cold targets among cold items, by metric
    popularity: dict[str, float]
    random: dict[str, float]
    warm: dict[str, Estimate]  # warm targets among warm items

    def to_json(self) -> dict[str, Any]:
        """Give plain data for `json.dumps`."""
        document: dict[str, Any] = plain(asdict(self))
        return document


@dataclass(frozen=True, eq=False)
class ColdRanks:
    """The rank of every target among the items of its own kind."""

    name: str
    cutoffs: tuple[int, ...]
    warm_items: int
    cold_items: int
    users: Ints  # (T,)
    items: Ints  # (T,)
    rank: Ints  # (T,) from 1; behind the last item where nothing can be ranked

    @property
    def cold(self) -> Bools:
        """Mask of the cold targets."""
        return self.items >= self.warm_items

    def gains(self, metric: str) -> Floats:
        """The gain of each target among the items of its kind."""
        return metrics.gains(self.rank, metric)

    def summarise(self, resamples: int = metrics.RESAMPLES, seed: int = 0) -> ColdSummary:
        """Give the metrics of both kinds with intervals, and those of the two rules."""
        names = [f"{name}@{k}" for k in self.cutoffs for name in metrics.GAINS]
        rows = metrics.mean_estimates(
            [self.gains(name) for name in names], [self.cold, ~self.cold], self.users, resamples, seed
        )
        places = self.items[self.cold] - self.warm_items + 1
        popular = {name: float(metrics.gains(places, name).mean()) for name in names}
        every = {name: float(metrics.gains(np.arange(self.cold_items) + 1, name).mean()) for name in names}
        cold, warm = (dict(zip(names, row, strict=True)) for row in rows)
        return ColdSummary(self.name, self.cold_items, len(places), cold, popular, every, warm)


def evaluate_cold(
    ranker: Ranker, sequences: Sequences, targets: str | Targets = "test", cutoffs: Sequence[int] = (10,)
) -> ColdRanks:
    """Rank each target among the items of its kind; refused for a ranker without cold items, and without targets."""
    ks = checked_cutoffs(cutoffs)
    split, users, positions = targets_of(sequences, targets)
    items, warm = np.asarray(sequences.items[positions], dtype=np.int64), sequences.catalogue.size
    if ranker.catalogue <= warm:
        raise SpecError(f"{ranker.name} ranks no cold items; train it with `features`, on a log that has cold items")
    if not (items >= warm).any():
        raise SpecError(f"no {split} target is cold; prepare the log with `hold_out_items`, such as 0.1")
    ranks = [
        _ranks(ranker, sequences.histories(users[rows], positions[rows]), items[rows], warm)
        for rows in (slice(start, start + CHUNK) for start in range(0, len(users), CHUNK))
    ]
    return ColdRanks(ranker.name, ks, warm, ranker.catalogue - warm, users, items, np.concatenate(ranks))


def _ranks(ranker: Ranker, histories: Histories, items: Ints, warm: int) -> Ints:
    """One question answers both: of the items ranked before a target, the cold ones are counted."""
    cold = torch.arange(warm, ranker.catalogue).expand(len(items), -1).contiguous()
    question = Question(torch.from_numpy(items), 1, cold, torch.empty(len(items), 0, dtype=torch.int64))
    told = Histories(histories.items, histories.offsets, histories.times)  # as without the time of the query
    found = ranker.ask(told.known(ranker.catalogue), question)
    rank, ahead = found.rank.numpy(), found.ahead.numpy()
    among = np.where(items >= warm, 1 + ahead, rank - ahead)
    return np.where(rank > ranker.catalogue, rank, among).astype(np.int64)

"""A model as a ranker: histories in, ranks and best items out."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from abaca.data.batches import history_batches
from abaca.data.sequences import Sequences, Targets
from abaca.evaluation import metrics
from abaca.evaluation.evaluate import Ranked, evaluate
from abaca.evaluation.membership import holdings, sorted_keys
from abaca.histories import Windows
from abaca.nn.answers import Answer, Question, answer
from abaca.nn.logits import Scores
from abaca.nn.model import Model
from abaca.types import PAD

BATCH = 256
"""Histories that go through the encoder together."""

Search = Callable[[Scores, Question], Answer]
"""What finds the best items: `answer`, which looks at all of them, or a search index."""


class ModelRanker:
    """Ranks the catalogue after a history with a trained model that sees the history's last `window` items."""

    def __init__(self, model: Model, window: int, name: str = "model", search: Search = answer) -> None:
        self.model = model
        self.window = window
        self.name = name
        self.search = search

    @property
    def estimated(self) -> bool:
        """Whether probabilities are estimates, since not every item is looked at."""
        return bool(getattr(self.search, "estimated", False))

    def rank(self, histories: list[np.ndarray], targets: np.ndarray, n: int) -> Ranked:
        """Rank each target after its history; a history without any item cannot be ranked and misses."""
        catalogue = self.model.catalogue
        rank = np.full(len(histories), catalogue + 1, dtype=np.int64)
        top = np.full((len(histories), n), PAD, dtype=np.int32)
        probability = np.full(len(histories), np.nan)
        known = np.flatnonzero([len(history) > 0 for history in histories])
        for numbers, items, positions in history_batches([histories[i] for i in known], self.window, BATCH):
            places = known[numbers]
            question = Question(
                targets=torch.from_numpy(np.asarray(targets[places], dtype=np.int64)),
                n=n,
                mass_of=distinct([histories[place] for place in places], catalogue),
                banned=torch.empty(len(places), 0, dtype=torch.long),
            )
            found = self.ask(items, positions, question)
            rank[places] = np.where(self._excluded(items, targets[places]), catalogue + 1, found.rank.numpy())
            best = found.items.masked_fill(found.logits == -torch.inf, PAD)
            top[places, : best.shape[1]] = best.numpy()
            probability[places] = found.mass.clamp(0, 1).numpy()
        return Ranked(rank, top, probability)

    def means(self, sequences: Sequences, targets: str | Targets = "test", cutoff: int = 10) -> dict[str, float]:
        """The mean of every metric at one cutoff."""
        found = evaluate(self, sequences, targets, cutoffs=(cutoff,))
        return {name: found.mean(name) for name in (f"{metric}@{cutoff}" for metric in metrics.GAINS)}

    def _excluded(self, items: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Which targets nodup never recommends: however small the catalogue, they are missed."""
        if not self.model.output.excludes_history:
            return np.zeros(len(targets), dtype=bool)
        return np.asarray((items == targets[:, None]).any(axis=1))

    @torch.no_grad()
    def ask(self, items: np.ndarray, positions: np.ndarray, question: Question) -> Answer:
        """Answer a question about windows (B, L) at their last positions (B, 1); tensors are on the CPU, both ways."""
        self.model.eval()
        device = self.model.device
        windows, at = (torch.from_numpy(part).to(device) for part in (items, positions))
        found = self.search(self.model.scores(Windows(windows, at)), question.to(device))
        return Answer(*(part.cpu() for part in found))


def padded(lists: list[np.ndarray], fill: int) -> Tensor:
    """Lists of items as one rectangle (B, X), `fill` after their end."""
    width = max((len(entry) for entry in lists), default=0)
    rectangle = np.full((len(lists), width), fill, dtype=np.int64)
    for row, entry in enumerate(lists):
        rectangle[row, : len(entry)] = entry
    return torch.from_numpy(rectangle)


def distinct(histories: list[np.ndarray], catalogue: int) -> Tensor:
    """The items of each history, ascending, each once, as one rectangle (B, X); V after their end."""
    held = holdings(histories, catalogue)
    if held is not None:
        keys = np.flatnonzero(held)  # of one dimension: ten times as fast as of two
    else:
        keys = sorted_keys(histories, catalogue)
        keys = keys[np.diff(keys, prepend=-1) > 0]
    rows, items = np.divmod(keys, catalogue)
    count = np.bincount(rows, minlength=len(histories))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    rectangle = np.full((len(histories), int(count.max())), catalogue, dtype=np.int64)
    rectangle[rows, place] = items
    return torch.from_numpy(rectangle)

"""Rankers: the interface that evaluation, validation and serving share, and the model that implements it."""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from abaca.data.batches import last_windows
from abaca.evidence.evidence import Evidence, Reading
from abaca.evidence.explain import NETWORK, Explanation, terms_of
from abaca.histories import Bools, Floats, Histories, Ints, Windows
from abaca.nn.answers import Answer, Question, answer, answer_each
from abaca.nn.logits import Scores
from abaca.nn.model import Model

BATCH = 256
"""Histories that go through the encoder together."""


class Ranker(Protocol):
    """Anything that ranks the catalogue after a history: a model or a baseline."""

    @property
    def name(self) -> str: ...

    @property
    def catalogue(self) -> int:
        """V: how many items it ranks."""
        ...

    @property
    def estimated(self) -> bool:
        """Whether probabilities are estimates, since not every item is scored."""
        ...

    def ask(self, histories: Histories, question: Question) -> Answer:
        """Answer a question, a row per history of catalogue items; tensors are on the CPU.

        A ranker without probabilities gives NaN as normaliser and mass. Where a history is empty and nothing can be
        ranked, the rank is V + 1 and every logit −∞.
        """
        ...


class ExplainedRanker(Ranker, Protocol):
    """A ranker that can say why."""

    def ask_each(self, histories: Histories, questions: list[Question]) -> list[Answer]:
        """Answer several questions about the same histories, which are read once."""
        ...

    def explain(self, histories: Histories, items: Ints, logits: Floats) -> Explanation | None:
        """The terms of items (B, n) that `ask` found, and their logits; None where there are none."""
        ...

    def vectors(self, items: Ints) -> Floats | None:
        """The vectors of items (P, D), of unit length; None for a ranker without vectors."""
        ...

    def cold(self) -> Bools | None:
        """Which items (V,) are known by their features alone; None for a ranker without features."""
        ...


Search = Callable[[Scores, Question], Answer]
"""What finds the best items: `answer`, which scores all of them, or a search index."""


class ModelRanker:
    """Ranks the catalogue with a trained model that reads the last `window` items of a history.

    Evidence, where there is some, reads whole histories.
    """

    def __init__(
        self,
        model: Model,
        window: int,
        name: str = "model",
        search: Search = answer,
        evidence: Evidence | None = None,
    ) -> None:
        self.model, self.window, self.name, self.search = model, window, name, search
        self.evidence = evidence
        self._latest: tuple[Histories, Ints, Reading] | None = None

    @property
    def catalogue(self) -> int:
        return self.model.catalogue

    @property
    def estimated(self) -> bool:
        return bool(getattr(self.search, "estimated", False))

    def ask(self, histories: Histories, question: Question) -> Answer:
        """Answer a question, a row per history."""
        return self.ask_each(histories, [question])[0]

    @torch.no_grad()
    def ask_each(self, histories: Histories, questions: list[Question]) -> list[Answer]:
        """Answer several questions about the same histories; the network reads them once."""
        answers = [no_answer(len(histories), question.n, self.catalogue) for question in questions]
        for numbers, windows, scores in self._network(histories):
            rows = torch.from_numpy(numbers)
            if self.evidence is not None:
                scores = self.evidence.adjusted(scores, self._read(self.evidence, histories, numbers))
            parts = [question.take(rows) for question in questions]
            for whole, part, found in zip(answers, parts, self._search(scores, parts), strict=True):
                _put(whole, rows, found)
                if self.model.output.excludes_history:  # an excluded target is missed, however small the catalogue
                    excluded = (torch.from_numpy(windows.items) == part.targets[:, None]).any(dim=1)
                    whole.rank[rows[excluded]] = self.catalogue + 1
        return answers

    def _search(self, scores: Scores, questions: list[Question]) -> list[Answer]:
        """The answers about some rows; all of them in one pass where every item is scored."""
        there = [question.to(self.model.device) for question in questions]
        if self.search is answer and len(there) > 1:
            return answer_each(scores, there)
        return [self.search(scores, question) for question in there]

    def explain(self, histories: Histories, items: Ints, logits: Floats) -> Explanation:
        """The terms of items (B, n) that `ask` found, and their logits; slots without an item hold V."""
        if self.evidence is None:
            return Explanation({NETWORK: logits}, histories, self.model.table.detach(), None)
        latest, numbers = self._latest, np.arange(len(histories))
        if latest is not None and latest[0] is histories and len(latest[1]) == len(histories):
            _, numbers, reading = latest
        else:
            reading = self.evidence.read(histories)
        terms = terms_of(items, logits, numbers, reading)
        return Explanation(terms, histories, self.model.table.detach(), self.evidence)

    def vectors(self, items: Ints) -> Floats:
        """The rows of the item table, of unit length."""
        rows = self.model.table.detach()[torch.from_numpy(items).to(self.model.device)].cpu().numpy()
        lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
        return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float64)

    def cold(self) -> Bools | None:
        """Which items have no vector of their own: nobody had taken them."""
        if self.model.features is None:
            return None
        return np.asarray((self.model.items.weight.detach() == 0).all(dim=1).cpu().numpy())

    def _read(self, evidence: Evidence, histories: Histories, numbers: Ints) -> Reading:
        """The evidence of some of the histories; the latest is kept, since it is often asked for again."""
        latest = self._latest
        if latest is None or latest[0] is not histories or not np.array_equal(latest[1], numbers):
            latest = self._latest = histories, numbers, evidence.read(histories.take(numbers))
        return latest[2]

    def scored(self, histories: Histories) -> Iterator[tuple[Ints, Scores]]:
        """The network's own scores: the numbers of some histories, and a row of scores each."""
        return ((numbers, scores) for numbers, _, scores in self._network(histories))

    def _network(self, histories: Histories) -> Iterator[tuple[Ints, Windows[np.ndarray], Scores]]:
        self.model.eval()
        device = self.model.device
        for numbers, windows in last_windows(histories, self.window, BATCH):
            yield numbers, windows, self.model.scores(windows.map(lambda array: torch.from_numpy(array).to(device)))


def _put(whole: Answer, rows: Tensor, found: Answer) -> None:
    """Write the answer of some rows into that of all."""
    for column, part in zip(whole, found, strict=True):
        made = part.cpu()
        best = slice(min(column.shape[-1], made.shape[-1]))  # an index may find fewer or more than n
        column[(rows, best) if column.dim() > 1 else rows] = made[:, best] if made.dim() > 1 else made


def no_answer(rows: int, n: int, catalogue: int) -> Answer:
    """The answer where nothing can be ranked."""
    shape = rows, min(n, catalogue)
    return Answer(
        rank=torch.full((rows,), catalogue + 1),
        items=torch.zeros(shape, dtype=torch.int64),
        logits=torch.full(shape, -torch.inf),
        partitions=torch.zeros(shape, dtype=torch.int8),
        normaliser=torch.full((rows,), torch.nan),
        mass=torch.full((rows,), torch.nan),
        ahead=torch.zeros(rows, dtype=torch.int64),
    )


def padded(lists: list[np.ndarray], fill: int) -> Tensor:
    """Lists of items as one rectangle (B, X), `fill` after their end."""
    width = max((len(entry) for entry in lists), default=0)
    rectangle = np.full((len(lists), width), fill, dtype=np.int64)
    for row, entry in enumerate(lists):
        rectangle[row, : len(entry)] = entry
    return torch.from_numpy(rectangle)

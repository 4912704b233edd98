"""How much of the exact answer an index finds, and how much faster, on queries like the model's own."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from abaca.data.batches import last_windows
from abaca.evaluation.ranker import BATCH, ModelRanker
from abaca.histories import Histories
from abaca.nn.answers import Answer, Question, answer
from abaca.nn.logits import Logits, Overrides
from abaca.search.answer import BEST, IndexSearch
from abaca.search.index import Index

LONGEST = 8
"""Length of the longest history that a model generates."""

BATCHED = 64


def own_histories(ranker: ModelRanker, count: int, seed: int) -> list[np.ndarray]:
    """Histories that the model generates: from any item, rare or popular, each time to a likely next one."""
    rng = np.random.default_rng(seed)
    catalogue = ranker.model.catalogue
    rare = rng.random(count) < 0.5
    first = np.where(rare, rng.integers(0, catalogue, count), catalogue ** rng.random(count) - 1)
    histories = [np.array([item]) for item in first.astype(np.int64)]
    lengths = rng.integers(1, LONGEST + 1, count)
    for length in range(1, LONGEST):
        going = np.flatnonzero(lengths > length)
        for logits, places in asked(ranker, [histories[i] for i in going]):
            found = answer(logits, question(logits, 2 * BEST))
            drawn = (found.logits + torch.from_numpy(rng.gumbel(size=found.logits.shape))).argmax(dim=1, keepdim=True)
            for place, item in zip(places, found.items.gather(1, drawn)[:, 0].tolist(), strict=True):
                histories[going[place]] = np.append(histories[going[place]], item)
    return histories


@torch.no_grad()
def asked(ranker: ModelRanker, histories: list[np.ndarray], size: int = BATCH) -> Iterator[tuple[Logits, Any]]:
    """The logits after histories, a batch at a time, and the histories' numbers."""
    ranker.model.eval()
    for numbers, windows in last_windows(Histories.of(histories), ranker.window, size):
        scores = ranker.model.scores(windows.map(torch.from_numpy))
        assert isinstance(scores, Logits), "other scores are served by exact search only"
        yield scores, numbers


def question(logits: Logits, n: int) -> Question:
    """Ask for the n best."""
    none = torch.empty(logits.rows, 0, dtype=torch.long)
    return Question(torch.full((logits.rows,), -1), n, none, none)


def base_of(logits: Logits) -> Logits:
    """The same without what overrides: what an index has to find."""
    ids, owner, _, values = logits.overrides
    return logits._replace(levels=(), overrides=Overrides(ids[:, :0], owner, owner, values[:, :0]))


class Exact(NamedTuple):
    """The logits of a batch, their best items (N, n), those of the base, and the normaliser."""

    logits: Logits
    best: Tensor
    base: Tensor
    normaliser: Tensor


def exact_answers(ranker: ModelRanker, histories: list[np.ndarray]) -> list[Exact]:
    """The result of a perfect index."""
    return [exact_answer(logits) for logits, _ in asked(ranker, histories)]


def exact_answer(logits: Logits) -> Exact:
    """The best items of some rows, by scoring all items."""
    found, base = (answer(scores, question(scores, BEST)) for scores in (logits, base_of(logits)))
    return Exact(logits, found.items, base.items, found.normaliser)


class Recall(NamedTuple):
    """Share of the exact best items that are found, and the standard error of the lower one."""

    base: float  # by the index alone
    answers: float  # in the answers, overrides merged
    error: float
    normaliser: float  # median of |estimated / exact − 1| of the sum of exponentials

    @property
    def lower(self) -> float:
        return min(self.base, self.answers)


def recall(search: IndexSearch, exact: list[Exact]) -> Recall:
    """How much of the exact answers a search finds."""
    base, answers, off = [], [], []
    for logits, best, best_base, normaliser in exact:
        queries = logits.queries.flatten(0, 1).numpy()
        count = search.fetched(logits, BEST)
        found = torch.from_numpy(search.index.find(queries, count)).view(logits.rows, -1)
        base.append(_shared(found, best_base))
        merged = search(logits, question(logits, BEST))
        answers.append(_shared(merged.items, best))
        off.append(((merged.normaliser - normaliser).exp() - 1).abs())
    shares = [torch.cat(part) for part in (base, answers)]
    low = min(shares, key=lambda part: part.mean().item())
    error = low.std().item() / len(low) ** 0.5 if len(low) > 1 else 0.0
    return Recall(shares[0].mean().item(), shares[1].mean().item(), error, torch.cat(off).median().item())


def _shared(found: Tensor, best: Tensor) -> Tensor:
    """The share of each row's best that was found (N,)."""
    return (best.unsqueeze(2) == found.unsqueeze(1)).any(dim=2).float().mean(dim=1)


class Speed(NamedTuple):
    """CPU milliseconds a query, search alone."""

    exact_ms: float
    index_ms: float

    @property
    def gain(self) -> float:
        return self.exact_ms / self.index_ms


def speed(search: IndexSearch, logits: Logits, rows: int, repetitions: int) -> Speed:
    """Exact search and the index for the base's best items, in turn, each time for other rows."""
    base, count = base_of(logits), search.fetched(logits, BEST)
    times: dict[str, list[float]] = {"exact": [], "index": []}
    for repetition in range(repetitions + 1):
        chosen = (torch.arange(rows) + repetition * rows) % logits.rows
        part = base.take(chosen)
        queries = part.queries.flatten(0, 1).numpy()
        spent = {
            "exact": cpu_seconds(lambda part=part: answer(part, question(part, count))),  # type: ignore[misc]
            "index": cpu_seconds(lambda queries=queries: search.index.find(queries, count)),  # type: ignore[misc]
        }
        if repetition:  # the first warms up
            for name, seconds in spent.items():
                times[name].append(1000 * seconds / rows)
    return Speed(*(statistics.median(times[name]) for name in ("exact", "index")))


def cpu_seconds(work: Callable[[], Answer | Any]) -> float:
    """CPU time of a piece of work."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def check(ranker: ModelRanker, index: Index, histories: list[np.ndarray], repetitions: int = 20) -> dict[str, Any]:
    """Recall against exact search, and the speed gained with single queries and batches of 64."""
    search = IndexSearch(index, ranker.model.table)
    exact = exact_answers(ranker, histories)
    found = recall(search, exact)
    result: dict[str, Any] = {
        "items": ranker.model.catalogue, "kind": index.kind, "effort": index.effort, "queries": len(histories),
        f"recall@{BEST}": found.base, f"answers_recall@{BEST}": found.answers,
        "normaliser_error": found.normaliser,
    }  # fmt: skip
    logits = max((entry.logits for entry in exact), key=lambda logits: logits.rows)
    for name, rows, times in (("single", 1, repetitions), ("batches", BATCHED, max(1, repetitions // 10))):
        measured = speed(search, logits, rows, times)
        result[name] = {"exact_cpu_ms": measured.exact_ms, "index_cpu_ms": measured.index_ms, "gain": measured.gain}
    return result

"""Answers from an index: the items it finds, with the overrides merged in as in full ranking.

The best n items lie among the n + history + Σk best of the base (as many more as are banned), the items of the history,
those that evidence changes, and those asked for: with an exact index the answer is that of full ranking. An index gives
no normaliser: to the sum over these items the sum over all others is added, estimated from a fixed sample of the
catalogue. Where the sample is the catalogue, nothing is estimated.
"""

import numpy as np
import torch
from torch import Tensor

from abaca.nn.answers import Answer, Question, answer_tile
from abaca.nn.logits import Logits, Scores, Tile
from abaca.search.index import Index
from abaca.training.checkpoint import IndexRecord

SAMPLE = 4096
"""Items that the normaliser is estimated from."""

GATHERED = 1 << 24
"""Numbers of the item table that are gathered at a time."""

BEST = 10
"""Recall is measured among this number of best items."""


class IndexSearch:
    """Answers questions with an index of the model's item table; opens it at the first question."""

    def __init__(self, index: Index | IndexRecord, table: Tensor) -> None:
        self._index = index
        self.table = table.detach()
        catalogue = len(table)
        whole = index.kind == "flat" or catalogue <= SAMPLE
        self.estimated = index.kind != "flat"
        chosen = np.random.default_rng(0).choice(catalogue, SAMPLE, replace=False) if not whole else range(catalogue)
        device = self.table.device
        sample = torch.as_tensor(np.sort(chosen), device=device)
        self.sample = self.table[sample]  # (S, D)
        self.place = torch.full((catalogue + 1,), len(sample), device=device)  # in the sample; S for not there
        self.place[sample] = torch.arange(len(sample), device=device)

    @property
    def index(self) -> Index:
        if isinstance(self._index, IndexRecord):
            self._index = Index.read(self._index, *self.table.shape)
        return self._index

    @torch.no_grad()
    def __call__(self, scores: Scores, question: Question) -> Answer:
        """The result of `abaca.nn.answers.answer`, except for ranks and `ahead` of targets: an index has none."""
        assert isinstance(scores, Logits), "other scores are served by exact search only"
        items = self._candidates(scores, question)  # (N, C), ascending, V where there is none
        tile = _tile(scores, items)
        found = answer_tile(tile, _placed(question, items, scores.catalogue))
        normaliser = torch.logaddexp(found.normaliser, self._others(scores, items))
        return Answer(
            rank=torch.full_like(found.rank, scores.catalogue + 1),
            items=items.gather(1, found.items),
            logits=found.logits,
            partitions=found.partitions,
            normaliser=normaliser,
            mass=found.mass * (found.normaliser - normaliser).exp(),
            ahead=found.ahead,
        )

    @staticmethod
    def fetched(scores: Logits, wanted: int) -> int:
        """The number of base candidates that suffices for n final items: overrides may change all that they touch."""
        touched = scores.overrides.ids.shape[1] + sum(level.k for level in scores.levels)
        if scores.additions is not None:
            touched += scores.additions.lowered
        return min(wanted + touched, scores.catalogue)

    def _candidates(self, scores: Logits, question: Question) -> Tensor:
        """Every item that can be among the best, each once: found by the index, of the history, or a candidate."""
        rows, catalogue = scores.rows, scores.catalogue
        ids, _ = scores.overrides.of(slice(None), catalogue)
        count = self.fetched(scores, question.n + question.banned.shape[1])
        queries = scores.queries.flatten(0, 1).cpu().numpy()
        best = torch.from_numpy(self.index.find(queries, count, self.fetched(scores, BEST)))
        best = best.to(ids.device).view(rows, -1)
        parts = [best.where(best >= 0, catalogue), ids, question.mass_of]
        if scores.additions is not None:
            parts.append(scores.additions.ids)
        if question.only is not None:
            parts.append(question.only)
        items = torch.cat(parts, dim=1).sort(dim=1).values
        twice = torch.zeros_like(items, dtype=torch.bool)
        twice[:, 1:] = items[:, 1:] == items[:, :-1]
        return items.masked_fill(twice, catalogue).sort(dim=1).values

    def _others(self, scores: Logits, items: Tensor) -> Tensor:
        """Log of the sum of exponentials over all items but these (N,), from those of the sample."""
        logits = (scores.queries @ self.sample.T).amax(dim=1)  # (N, S)
        padded = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf)
        places = self.place[items]  # (N, C)
        padded.scatter_(1, places, -torch.inf)
        size = len(self.sample)
        sampled = size - (places < size).sum(1)
        others = scores.catalogue - (items < scores.catalogue).sum(1)
        return padded.logsumexp(dim=1) + (others / sampled.clamp_min(1)).log()


def _tile(scores: Logits, items: Tensor) -> Tile:
    """Final logits of each row's own items, as `Logits.tiles` makes them of the catalogue; a spare column last."""
    none = items == scores.catalogue
    known = items.clamp_max(scores.catalogue - 1)
    rows = max(1, GATHERED // (items.shape[1] * scores.table.shape[1]))  # a long history widens every row
    parts = zip(torch.split(known, rows), torch.split(scores.queries, rows), strict=True)
    base = torch.cat([torch.einsum("ncd,nhd->nhc", scores.table[each], queries).amax(dim=1) for each, queries in parts])
    logits = torch.nn.functional.pad(base.masked_fill(none, -torch.inf), (0, 1), value=-torch.inf)
    own, chosen = logits[:, :-1], []
    for level in scores.levels:
        top = own.topk(min(level.k, own.shape[1]), dim=1, sorted=False).indices  # (N, k)
        picked = scores.table[known.gather(1, top)]  # (N, k, D)
        again = torch.einsum("nkd,nd->nk", picked, level.query)
        own.scatter_(1, top, again.masked_fill(none.gather(1, top), -torch.inf))
        chosen.append(top)
    ids, values = scores.overrides.of(slice(None), scores.catalogue)
    places = _places(items, ids, scores.catalogue)
    logits.scatter_(1, places, values)
    logits[:, -1] = -torch.inf
    if scores.additions is not None:
        added = _places(items, scores.additions.ids, scores.catalogue)
        scores.additions.apply(logits, added, slice(None))
    return Tile(slice(None), logits, chosen, places)


def _places(items: Tensor, ids: Tensor, catalogue: int) -> Tensor:
    """The places of ids (N, X) among a row's items; the spare column for absent ones."""
    if not ids.shape[1]:
        return ids
    places = torch.searchsorted(items, ids.contiguous()).clamp_max(items.shape[1] - 1)
    there = (items.gather(1, places) == ids) & (ids < catalogue)
    return places.where(there, items.shape[1])


def _placed(question: Question, items: Tensor, catalogue: int) -> Question:
    """The question about places instead of items."""
    mass_of, banned = (_places(items, ids, catalogue) for ids in (question.mass_of, question.banned))
    only = None if question.only is None else _places(items, question.only, catalogue)
    return Question(torch.full_like(question.targets, -1), question.n, mass_of, banned, only)

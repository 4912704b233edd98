"""Questions about rows of scores, and their answers: rank of a target, best items, normaliser, given items."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from abaca.nn.logits import Logits, Scores, Tile
from abaca.nn.ops import answer as fast
from abaca.nn.ops.packed import fits

COPY = -1
"""Partition of an item that the history overrides. 0 is the base, i ≥ 1 the i-th level from the last."""

RULE = -2
"""Partition of an item that a baseline ranked."""


class Answer(NamedTuple):
    """The answer for each row."""

    rank: Tensor  # (N,) one plus the other items that score higher or equal; V + 1 without a target
    items: Tensor  # (N, n) the best items
    logits: Tensor  # (N, n) and their logits
    partitions: Tensor  # (N, n) the part that scored them: COPY, 0 for the base, i ≥ 1 for level i
    normaliser: Tensor  # (N,) log-sum-exp of all logits
    mass: Tensor  # (N,) probability of the items in `mass_of`
    ahead: Tensor  # (N,) other items of `mass_of` that score at least as high as the target; 0 without a target


class Question(NamedTuple):
    """The question for each row; ids are padded with V."""

    targets: Tensor  # (N,) items to rank; negative for none
    n: int  # how many of the best items
    mass_of: Tensor  # (N, X) items whose probabilities to add up, each once
    banned: Tensor  # (N, Y) items that may not be among the best
    only: Tensor | None = None  # (N, Z) the only items that may be; None for all

    def to(self, device: torch.device) -> "Question":
        """The same question on another device."""
        return self._map(lambda part: part.to(device))

    def take(self, rows: Tensor) -> "Question":
        """The question about some rows only."""
        return self._map(lambda part: part[rows])

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Question":
        targets, mass_of, banned = (change(part) for part in (self.targets, self.mass_of, self.banned))
        return Question(targets, self.n, mass_of, banned, None if self.only is None else change(self.only))


@torch.no_grad()
def answer(scores: Scores, question: Question) -> Answer:
    """The answer of all rows in one pass over the tiles."""
    if isinstance(scores, Logits) and fits(scores):
        return Answer(*fast.native(scores, *question))
    parts = [answer_tile(tile, question) for tile in scores.tiles()]
    return Answer(*(torch.cat(column) for column in zip(*parts, strict=True)))


@torch.no_grad()
def answer_each(scores: Scores, questions: list[Question]) -> list[Answer]:
    """The answers to several questions about the same rows, in one pass over the tiles."""
    if isinstance(scores, Logits) and fits(scores):
        return [Answer(*found) for found in fast.native_each(scores, questions)]
    parts = [[answer_tile(tile, question) for question in questions] for tile in scores.tiles()]
    return [Answer(*(torch.cat(column) for column in zip(*each, strict=True))) for each in zip(*parts, strict=True)]


def answer_tile(tile: Tile, question: Question) -> Answer:
    """The answer for the rows of one tile, in plain torch."""
    logits, rows = tile.logits, tile.rows
    items = logits[:, :-1]
    targets = question.targets[rows]
    hit = items.gather(1, targets[:, None].clamp_min(0))
    behind = (items < hit).sum(1)  # NaN counts against the target
    rank = torch.where(targets >= 0, items.shape[1] - behind, items.shape[1] + 1)
    normaliser = logits.logsumexp(dim=1)
    mass_of = question.mass_of[rows]
    scored = logits.gather(1, mass_of)  # (n, X)
    mass = (scored - normaliser[:, None]).exp().sum(1)
    others = (mass_of < items.shape[1]) & (mass_of != targets[:, None]) & (targets >= 0)[:, None]
    ahead = (others & ~(scored < hit)).sum(1)
    allowed = logits.clone() if question.banned.shape[1] or question.only is not None else logits
    if question.only is not None:
        only = question.only[rows]
        allowed = torch.full_like(logits, -torch.inf).scatter_(1, only, logits.gather(1, only))
    allowed.scatter_(1, question.banned[rows], -torch.inf)
    best = allowed[:, :-1].topk(min(question.n, items.shape[1]), dim=1)
    partitions = _partitions(tile).gather(1, best.indices)
    return Answer(rank, best.indices, best.values, partitions, normaliser, mass, ahead)


def _partitions(tile: Tile) -> Tensor:
    """The part that scored each item (n, V + 1)."""
    codes = torch.zeros(tile.logits.shape, dtype=torch.int8, device=tile.logits.device)
    for i, chosen in enumerate(tile.chosen):
        codes.scatter_(1, chosen, len(tile.chosen) - i)
    return codes.scatter_(1, tile.ids, COPY)

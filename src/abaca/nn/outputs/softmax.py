"""Softmax over base queries, and the partitions that override it: Context, Pointer, Reranker.

`f_V`, `f_C`, `f_P`, `f_L`, `f_R` are the projections of the paper, each with its own weights and bias.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from abaca.nn.logits import Level, Logits, Overrides, cross_entropy
from abaca.nn.outputs.copies import Pointer, Windows, history_logits
from abaca.nn.outputs.encoded import Encoded, pick_beside
from abaca.nn.outputs.mix import LastState, Mi
from abaca.nn.outputs.project import project
from abaca.nn.outputs.spec import OutputSpec


class Softmax(nn.Module):
    """`softmax` and `mos:K`, with or without C, P, R, Mi and nodup."""

    def __init__(self, spec: OutputSpec, layers: int, dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.mix = (Mi if spec.mix else LastState)(layers, dim)
        query_dim = self.mix.query_dim
        self.f_V = nn.ModuleList(nn.Linear(query_dim, dim) for _ in range(spec.queries))
        self.f_R = nn.ModuleList(nn.Linear(query_dim, dim) for _ in spec.rerank)
        self.copy = Copy(query_dim, dim, spec.point) if spec.copy else None

    def loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        """Sum over the rows of −log P(target)."""
        logits = self.logits(encoded)
        return cross_entropy(logits, targets, torch.ones_like(targets, dtype=logits.queries.dtype))

    def scores(self, encoded: Encoded) -> Logits:
        """What ranking reads: the logits, without the history's items under nodup."""
        if not self.spec.nodup:
            return self.logits(encoded)
        return self.outside(encoded, self.mix.at(encoded.states, encoded.positions))

    def logits(self, encoded: Encoded) -> Logits:
        if self.copy is None:
            base, levels, _ = self._project(encoded, self.mix.at(encoded.states, encoded.positions), [])
            return Logits(base, encoded.table, levels, nothing(encoded, base))
        q, at = self._read(encoded)
        base, levels, read = self._project(encoded, at, self.copy.readers)
        ids, values = self.copy(encoded, q, read)
        overrides = Overrides(ids, encoded.owner, encoded.reach, encoded.rows(values))
        return Logits(base, encoded.table, levels, overrides)

    def outside(self, encoded: Encoded, at: Tensor) -> Logits:
        """The logits of all items but the history's, which score −∞, by the queries (B, T, Q); not to learn from."""
        base, levels, _ = self._project(encoded, at, [])
        return Logits(base, encoded.table, levels, excluded(encoded, encoded.ids))

    def history(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Only the history's items in their slots (B, L), V elsewhere, and their logits (B, T, L)."""
        assert self.copy is not None, "without C the history has no logits of its own"
        q, at = self._read(encoded)
        return self.copy(encoded, q, project(self.copy.readers, at))  # type: ignore[no-any-return]

    def _read(self, encoded: Encoded) -> tuple[Tensor | None, Tensor]:
        """Queries of all positions (B, L, Q) where the pointer reads them, and where a prediction is made (B, T, Q)."""
        if self.copy is None or self.copy.f_P is None:
            return None, self.mix.at(encoded.states, encoded.positions)
        return pick_beside(self.mix(encoded.states), encoded.positions)

    def _project(self, encoded: Encoded, at: Tensor, readers: Sequence[nn.Linear]) -> "Projected":
        """What f_V, f_R and the readers of the history make of the queries."""
        descending = sorted(zip(self.spec.rerank, self.f_R, strict=True), key=lambda level: -level[0])
        layers: list[Any] = [*self.f_V, *(f for _, f in descending), *readers]
        projected = project(layers, at)  # (B, T, D) of each f
        base = torch.stack([encoded.rows(f) for f in projected[: len(self.f_V)]], dim=1)  # (N, H, D)
        rescored = projected[len(self.f_V) :]
        levels = tuple(Level(k, encoded.rows(f)) for (k, _), f in zip(descending, rescored, strict=False))
        return Projected(base, levels, rescored[len(levels) :])


class Projected(NamedTuple):
    """What the projections make of the queries."""

    base: Tensor  # (N, H, D)
    levels: tuple[Level, ...]
    read: Sequence[Tensor]  # (B, T, …) of each reader


class Copy(nn.Module):
    """Logits of the history's items: f_C · p_x, with P plus f_P · mean of f_L(q_j) where x occurred."""

    def __init__(self, query_dim: int, dim: int, point: bool) -> None:
        super().__init__()
        self.f_C = nn.Linear(query_dim, dim)
        self.f_P = nn.Linear(query_dim, dim) if point else None
        self.f_L = nn.Linear(query_dim, dim) if point else None

    @property
    def readers(self) -> list[nn.Linear]:
        """What reads the query where a prediction is made: f_C, with P also f_P."""
        return [self.f_C] if self.f_P is None else [self.f_C, self.f_P]

    def forward(self, encoded: Encoded, q: Tensor | None, read: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Queries of all positions (B, L, Q), and what `readers` made of those where a prediction is made (B, T, D).

        Returns items in their slots (B, L), V elsewhere, and their logits (B, T, L).
        """
        pointer = None if q is None else self.pointer(q, read[1])
        windows = Windows(encoded.items, encoded.positions, encoded.embedded, read[0], pointer)
        return history_logits(windows, encoded.table.shape[0])

    def pointer(self, q: Tensor, made: Tensor) -> Pointer:
        """f_P · f_L(q_j) = (f_P W_L) · q_j + f_P · b_L: made so, q_j need not be projected at every position."""
        assert self.f_L is not None
        return Pointer(q, made @ self.f_L.weight, made @ self.f_L.bias)


def nothing(encoded: Encoded, like: Tensor) -> Overrides:
    """No overrides at all."""
    batch = encoded.items.shape[0]
    return Overrides(encoded.items.new_empty(batch, 0), encoded.owner, encoded.reach, like.new_empty(like.shape[0], 0))


def excluded(encoded: Encoded, ids: Tensor) -> Overrides:
    """Every item of the history (B, L) scores −∞."""
    owner = encoded.owner
    return Overrides(ids, owner, encoded.reach, encoded.states.new_full((owner.shape[0], ids.shape[1]), -torch.inf))

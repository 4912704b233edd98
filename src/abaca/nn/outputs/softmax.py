"""Softmax over base queries, and the partitions that override it: Context, Pointer, Reranker.

`f_V`, `f_C`, `f_P`, `f_L`, `f_R` are the projections of the paper, each with its own weights and bias.
"""

import torch
from torch import Tensor, nn

from abaca.nn.logits import Level, Logits, Overrides, cross_entropy
from abaca.nn.outputs.encoded import Encoded
from abaca.nn.outputs.history import Slots
from abaca.nn.outputs.mix import LastState, Mi
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
        logits = self.logits(encoded)
        if not self.spec.nodup:
            return logits
        return logits._replace(overrides=excluded(encoded, Slots.of(encoded.items, logits.catalogue)))

    def logits(self, encoded: Encoded) -> Logits:
        q = self.mix(encoded.states)  # (B, L, Q)
        at = encoded.at_positions(q)  # (B, T, Q)
        rows = encoded.rows(at)  # (N, Q)
        base = torch.stack([f(rows) for f in self.f_V], dim=1)  # (N, H, D)
        descending = sorted(zip(self.spec.rerank, self.f_R, strict=True), key=lambda level: -level[0])
        levels = tuple(Level(k, f(rows)) for k, f in descending)
        if self.copy is None:
            return Logits(base, encoded.table, levels, nothing(encoded, base))
        slots = Slots.of(encoded.items, encoded.table.shape[0])
        values = encoded.rows(self.copy(encoded, slots, q, at))  # (N, L)
        overrides = Overrides(slots.ids, encoded.owner, encoded.reach, values)
        return Logits(base, encoded.table, levels, overrides)


class Copy(nn.Module):
    """Logits of the history's items: f_C · p_x, with P plus f_P · mean of f_L(q_j) where x occurred."""

    def __init__(self, query_dim: int, dim: int, point: bool) -> None:
        super().__init__()
        self.f_C = nn.Linear(query_dim, dim)
        self.f_P = nn.Linear(query_dim, dim) if point else None
        self.f_L = nn.Linear(query_dim, dim) if point else None

    def forward(self, encoded: Encoded, slots: Slots, q: Tensor, at: Tensor) -> Tensor:
        values: Tensor = self.f_C(at) @ encoded.embedded.transpose(1, 2)  # (B, T, L)
        if self.f_P is None or self.f_L is None:
            return values
        pointed = self.f_P(at) @ self.f_L(q).transpose(1, 2)  # (B, T, L)
        total, count = slots.gather(pointed, encoded.positions)
        return values + total / count


def nothing(encoded: Encoded, like: Tensor) -> Overrides:
    """No overrides at all."""
    batch = encoded.items.shape[0]
    return Overrides(encoded.items.new_empty(batch, 0), encoded.owner, encoded.reach, like.new_empty(like.shape[0], 0))


def excluded(encoded: Encoded, slots: Slots) -> Overrides:
    """Every item of the history scores −∞."""
    owner = encoded.owner
    values = encoded.states.new_full((owner.shape[0], slots.ids.shape[1]), -torch.inf)
    return Overrides(slots.ids, owner, encoded.reach, values)

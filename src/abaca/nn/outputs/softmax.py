"""Softmax over base queries, and the partitions that override it: Context, Pointer, Reranker.

`f_V`, `f_C`, `f_P`, `f_L`, `f_R` are the projections of the paper, each with its own weights and bias.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.nn.logits import Level, Logits, Overrides, cross_entropy
from abaca.nn.outputs.copies import Pointer, Windows, history_logits
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
        descending = sorted(zip(self.spec.rerank, self.f_R, strict=True), key=lambda level: -level[0])
        readers = [] if self.copy is None else self.copy.readers
        projected = project([*self.f_V, *(f for _, f in descending), *readers], at)  # each (B, T, D)
        base = torch.stack([encoded.rows(f) for f in projected[: len(self.f_V)]], dim=1)  # (N, H, D)
        rescored = projected[len(self.f_V) :]
        levels = tuple(Level(k, encoded.rows(f)) for (k, _), f in zip(descending, rescored, strict=False))
        if self.copy is None:
            return Logits(base, encoded.table, levels, nothing(encoded, base))
        ids, values = self.copy(encoded, q, rescored[len(levels) :])
        overrides = Overrides(ids, encoded.owner, encoded.reach, encoded.rows(values))
        return Logits(base, encoded.table, levels, overrides)


def project(layers: Sequence[nn.Module], x: Tensor) -> Sequence[Tensor]:
    """What each linear layer makes of the same input, by one product: many small ones would cost more."""
    if len(layers) == 1:
        return [layers[0](x)]
    weight = torch.cat([layer.weight for layer in layers])  # type: ignore[misc]
    bias = torch.cat([layer.bias for layer in layers])  # type: ignore[misc]
    return F.linear(x, weight, bias).tensor_split(len(layers), dim=-1)


class Copy(nn.Module):
    """Logits of the history's items: f_C · p_x, with P plus f_P · mean of f_L(q_j) where x occurred."""

    def __init__(self, query_dim: int, dim: int, point: bool) -> None:
        super().__init__()
        self.f_C = nn.Linear(query_dim, dim)
        self.f_P = nn.Linear(query_dim, dim) if point else None
        self.f_L = nn.Linear(query_dim, dim) if point else None

    @property
    def readers(self) -> list[nn.Linear]:
        """The projections that read the query where a prediction is made: f_C, with P f_P too."""
        return [self.f_C] if self.f_P is None else [self.f_C, self.f_P]

    def forward(self, encoded: Encoded, q: Tensor, projected: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Queries of all positions (B, L, Q) and what `readers` made of those asked for (B, T, D).

        Returns items in their slots (B, L), V elsewhere, and their logits (B, T, L).
        """
        copying, *pointing = projected
        pointer = None
        if self.f_L is not None:
            pointer = Pointer(q, pointing[0] @ self.f_L.weight, pointing[0] @ self.f_L.bias)
        windows = Windows(encoded.items, encoded.positions, encoded.embedded, copying, pointer)
        return history_logits(windows, encoded.table.shape[0])


def nothing(encoded: Encoded, like: Tensor) -> Overrides:
    """No overrides at all."""
    batch = encoded.items.shape[0]
    return Overrides(encoded.items.new_empty(batch, 0), encoded.owner, encoded.reach, like.new_empty(like.shape[0], 0))


def excluded(encoded: Encoded, slots: Slots) -> Overrides:
    """Every item of the history scores −∞."""
    owner = encoded.owner
    values = encoded.states.new_full((owner.shape[0], slots.ids.shape[1]), -torch.inf)
    return Overrides(slots.ids, owner, encoded.reach, values)

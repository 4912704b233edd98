"""Softmax over base queries, and the partitions that override it: Context, Pointer, Reranker.

`f_V`, `f_C`, `f_P`, `f_L`, `f_R` are the projections of the paper, each with its own weights and bias.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.nn.logits import Level, Logits, Overrides, cross_entropy
from abaca.nn.outputs.copies import Pointer, Windows, history_logits
from abaca.nn.outputs.encoded import Encoded
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
        if not self.spec.nodup:
            return self.logits(encoded)
        return self.outside(encoded, self.mix.at(encoded.states, encoded.positions))

    def logits(self, encoded: Encoded) -> Logits:
        if self.copy is None:
            base, levels, _ = self._project(encoded, self.mix.at(encoded.states, encoded.positions), [])
            return Logits(base, encoded.table, levels, nothing(encoded, base))
        q, at = self._read(encoded)
        base, levels, read = self._project(encoded, at, self.copy.readers)
        ids, values = self.copy(encoded, q, at, read)
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
        return self.copy(encoded, q, at, project(self.copy.readers, at))  # type: ignore[no-any-return]

    def _read(self, encoded: Encoded) -> tuple[Tensor | None, Tensor]:
        """Queries of all positions (B, L, Q) where the pointer reads them, and where a prediction is made (B, T, Q)."""
        if self.copy is None or self.copy.f_P is None:
            return None, self.mix.at(encoded.states, encoded.positions)
        q = self.mix(encoded.states)
        return q, encoded.at_positions(q)

    def _project(self, encoded: Encoded, at: Tensor, readers: Sequence[tuple[Tensor, Tensor]]) -> "Projected":
        """What f_V, f_R and the readers of the history make of the queries."""
        descending = sorted(zip(self.spec.rerank, self.f_R, strict=True), key=lambda level: -level[0])
        linear = [(f.weight, f.bias) for f in (*self.f_V, *(f for _, f in descending))]
        projected = project([*linear, *readers], at)  # (B, T, D) of each f
        base = torch.stack([encoded.rows(f) for f in projected[: len(self.f_V)]], dim=1)  # (N, H, D)
        rescored = projected[len(self.f_V) :]
        levels = tuple(Level(k, encoded.rows(f)) for (k, _), f in zip(descending, rescored, strict=False))
        return Projected(base, levels, rescored[len(levels) :])


class Projected(NamedTuple):
    """What the projections make of the queries."""

    base: Tensor  # (N, H, D)
    levels: tuple[Level, ...]
    read: Sequence[Tensor]  # (B, T, …) of each reader


def project(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> Sequence[Tensor]:
    """What each weight and bias make of the same input, by one product: many small ones would cost more."""
    if len(layers) == 1:
        return [F.linear(x, *layers[0])]
    weights, biases = zip(*layers, strict=True)
    sizes = [len(bias) for bias in biases]
    return torch.split(F.linear(x, torch.cat(weights), torch.cat(biases)), sizes, dim=-1)


class Copy(nn.Module):
    """Logits of the history's items: f_C · p_x, with P plus f_P · mean of f_L(q_j) where x occurred."""

    def __init__(self, query_dim: int, dim: int, point: bool) -> None:
        super().__init__()
        self.f_C = nn.Linear(query_dim, dim)
        self.f_P = nn.Linear(query_dim, dim) if point else None
        self.f_L = nn.Linear(query_dim, dim) if point else None

    @property
    def readers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of what reads the query where a prediction is made: f_C, with P also W_L^T f_P.

        f_P(q) · f_L(q_j) = (W_L^T f_P(q)) · q_j + b_L · f_P(q): made so, q_j need not be projected at every position.
        """
        copying = (self.f_C.weight, self.f_C.bias)
        if self.f_P is None or self.f_L is None:
            return [copying]
        weight, bias = self.f_P.weight, self.f_P.bias
        return [copying, (self.f_L.weight.T @ weight, self.f_L.weight.T @ bias)]

    def forward(self, encoded: Encoded, q: Tensor | None, at: Tensor, read: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Queries of all positions (B, L, Q), of those asked for (B, T, Q), and what `readers` made of the latter.

        Returns items in their slots (B, L), V elsewhere, and their logits (B, T, L).
        """
        copying, *pointing = read
        pointer = None
        if q is not None and self.f_P is not None and self.f_L is not None:
            offset = at @ (self.f_L.bias @ self.f_P.weight) + self.f_L.bias @ self.f_P.bias  # b_L · f_P(q)
            pointer = Pointer(q, pointing[0], offset)
        windows = Windows(encoded.items, encoded.positions, encoded.embedded, copying, pointer)
        return history_logits(windows, encoded.table.shape[0])


def nothing(encoded: Encoded, like: Tensor) -> Overrides:
    """No overrides at all."""
    batch = encoded.items.shape[0]
    return Overrides(encoded.items.new_empty(batch, 0), encoded.owner, encoded.reach, like.new_empty(like.shape[0], 0))


def excluded(encoded: Encoded, ids: Tensor) -> Overrides:
    """Every item of the history (B, L) scores −∞."""
    owner = encoded.owner
    return Overrides(ids, owner, encoded.reach, encoded.states.new_full((owner.shape[0], ids.shape[1]), -torch.inf))

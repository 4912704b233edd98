"""Softmax over base queries, and the partitions that override it: Context, Pointer, Reranker.

`f_V`, `f_C`, `f_P`, `f_L`, `f_R` are the projections of the paper, each with its own weights and bias.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.nn.logits import Level, Logits, Overrides
from abaca.nn.ops.loss import cross_entropy
from abaca.nn.outputs.encoded import Encoded
from abaca.nn.outputs.history import Slots
from abaca.nn.outputs.output import SpelledOutput
from abaca.nn.outputs.query import make_query


class Softmax(SpelledOutput):
    """`softmax` and `mos:K`, with or without C, P, R, Mi and nodup."""

    searchable = exportable = True

    def build(self, layers: int, dim: int, catalogue: int) -> None:
        spec = self.options
        self.mix = make_query(spec.mix, layers, dim)
        query_dim = self.mix.query_dim
        self.f_V = nn.ModuleList(nn.Linear(query_dim, dim) for _ in range(spec.queries))
        self.f_R = nn.ModuleList(nn.Linear(query_dim, dim) for _ in spec.rerank)
        self.copy = Copy(query_dim, dim, spec.point) if spec.copy else None

    @property
    def can_sample(self) -> bool:
        return not self.options.rerank  # the k best items are those of the whole catalogue

    @property
    def item_projections(self) -> list[nn.Linear]:
        return [*self.f_V, *self.f_R]

    def loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        """Sum of −log P(target) over the rows."""
        return cross_entropy(self.logits(encoded), targets, encoded.weights)

    def scores(self, encoded: Encoded) -> Logits:
        """The logits, without the history's items under nodup."""
        if not self.excludes_history:
            return self.logits(encoded)
        return self._logits(encoded, self.mix.at(encoded.states, encoded.positions), encoded.excluded())

    def logits(self, encoded: Encoded) -> Logits:
        """The logits that training and ranking read."""
        if self.copy is None or self.copy.f_P is None:
            q, at = None, self.mix.at(encoded.states, encoded.positions)  # (B, T, Q)
        else:
            q = self.mix(encoded.states)  # (B, L, Q)
            at = encoded.at_positions(q)
        return self._logits(encoded, at, encoded.no_overrides() if self.copy is None else self.copy(encoded, at, q))

    def _logits(self, encoded: Encoded, at: Tensor, overrides: Overrides) -> Logits:
        """f_V scores all items, then each f_R its k best, the largest k first."""
        rows = encoded.rows(at)  # (N, Q)
        base = torch.stack([f(rows) for f in self.f_V], dim=1)  # (N, H, D)
        descending = sorted(zip(self.options.rerank, self.f_R, strict=True), key=lambda level: -level[0])
        levels = tuple(Level(k, f(rows)) for k, f in descending)
        if encoded.bias is None:
            return Logits(base, encoded.table, levels, overrides)
        table = torch.cat([encoded.table, encoded.bias.unsqueeze(1)], dim=1)  # q · p + b = (q, 1) · (p, b)
        return Logits(F.pad(base, (0, 1), value=1.0), table, levels, overrides)


class Copy(nn.Module):
    """Logits of the history's items: f_C · p_x, with P plus f_P · mean of f_L(q_j) where x occurred."""

    def __init__(self, query_dim: int, dim: int, point: bool) -> None:
        super().__init__()
        self.f_C = nn.Linear(query_dim, dim)
        self.f_P = nn.Linear(query_dim, dim) if point else None
        self.f_L = nn.Linear(query_dim, dim) if point else None

    def forward(self, encoded: Encoded, at: Tensor, q: Tensor | None) -> Overrides:
        """Queries of the predictions (B, T, Q) and, for the pointer, of all positions (B, L, Q)."""
        slots = Slots.of(encoded.items, encoded.table.shape[0])
        values = self.f_C(at) @ encoded.embedded.transpose(1, 2)  # (B, T, L)
        if self.f_P is not None and self.f_L is not None and q is not None:
            pointing = self.f_P(at)  # f_P · f_L(q_j) = (f_P W_L) · q_j + f_P · b_L projects predictions, not positions
            values = values + slots.mean(pointing @ self.f_L.weight @ q.transpose(1, 2), encoded.positions)
            values = values + (pointing @ self.f_L.bias).unsqueeze(2)
        return encoded.overrides(slots.ids, encoded.rows(values))

"""Vectors of items from their features: p_x = e_x + g(x), where e_x is a row of the item table.

    g(x) = Σ_j a_xj w_j        a: the entries of x (`item_columns.py`), w: a learned vector per feature, 0 at first

In training e_x is dropped for a share of the items in each step, so that g alone has to predict them. A cold item, one
without training interactions, has e_x = 0. The loss of a step compares warm items only.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.nn.item_columns import Entries, ItemFeatures

DROPPED = 0.2
"""Share of the items whose own vectors are dropped in a training step."""


class Described(NamedTuple):
    """The items of a catalogue, described by their features."""

    features: ItemFeatures
    entries: Entries
    warm: int  # items with training interactions; they come first
    dropout: float = DROPPED


class FeatureVectors(nn.Module):
    """g: the sum of the vectors of an item's features."""

    def __init__(self, described: Described, dim: int) -> None:
        super().__init__()
        self.described, self.features = described, described.features
        self.warm, self.dropout = described.warm, described.dropout
        self.weight = nn.Parameter(torch.zeros(described.features.size, dim))
        starts, features, weights = described.entries
        self.starts: Tensor
        self.entries: Tensor
        self.shares: Tensor
        for name, array in (("starts", starts), ("entries", features), ("shares", weights.astype(np.float32))):
            self.register_buffer(name, torch.from_numpy(array), persistent=False)
        self._matrices: tuple[Tensor, Tensor] | None = None

    def of_warm(self) -> Tensor:
        """g of all warm items (W, D)."""
        return _Product.apply(self.weight, *self.warm_matrices())  # type: ignore[no-untyped-call, no-any-return]

    def of(self, items: Tensor) -> Tensor:
        """g of some items (S,): (S, D)."""
        first = self.starts[items]
        lengths = self.starts[items + 1] - first
        offsets = lengths.cumsum(0) - lengths
        at = torch.arange(int(lengths.sum()), device=items.device) + (first - offsets).repeat_interleave(lengths)
        return F.embedding_bag(self.entries[at], self.weight, offsets, mode="sum", per_sample_weights=self.shares[at])

    def kept(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Rows e_x (S, D), in training without a share of them."""
        if not self.training or not self.dropout:
            return rows
        return rows * (torch.rand(len(rows), 1, device=rows.device, generator=generator) >= self.dropout)

    def warm_matrices(self) -> tuple[Tensor, Tensor]:
        """The entries of warm items as a sparse matrix (W, F), and its transpose."""
        if self._matrices is None or self._matrices[0].device != self.weight.device:
            count = int(self.starts[self.warm])
            rows = torch.arange(self.warm, device=self.starts.device)
            rows = rows.repeat_interleave(self.starts[: self.warm + 1].diff())
            columns, values, width = self.entries[:count], self.shares[:count], len(self.weight)
            order = torch.argsort(columns, stable=True)
            ends = F.pad(torch.bincount(columns, minlength=width).cumsum(0), (1, 0))
            self._matrices = (
                _sparse(self.starts[: self.warm + 1], columns, values, (self.warm, width)),
                _sparse(ends, rows[order], values[order], (width, self.warm)),
            )
        return self._matrices


def _sparse(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its sparse matrices beta
        return torch.sparse_csr_tensor(starts, columns, values, size=size)


class _Product(torch.autograd.Function):
    """matrix @ weight; the backward pass is a product too, with the transpose that is at hand."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transposed @ gradient, None, None

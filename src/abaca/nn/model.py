"""A model: one item table, an encoder, an output layer."""

import os
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.errors import SpecError
from abaca.histories import Windows
from abaca.nn import shortlist
from abaca.nn.encoders import ENCODERS, Encoder, GRU4Rec
from abaca.nn.logits import Scores
from abaca.nn.outputs import Encoded, Output, OutputSpec, make_output

TOGETHER = 512
"""Windows that go through the encoder together where many are ranked: what it makes of more leaves the cache."""


class _Read(torch.autograd.Function):
    """Rows of the item table, and the table itself for the loss. Their gradients meet in one tensor, in place."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(items)
        return F.embedding(items, table), table.view_as(table)

    @staticmethod
    def backward(ctx: Any, grad_rows: Tensor, grad_table: Tensor) -> tuple[Tensor, None]:
        (items,) = ctx.saved_tensors
        return grad_table.index_add_(0, items.flatten(), grad_rows.flatten(0, 1)), None


class Model(nn.Module):
    """Scores the item that follows each position of a window."""

    def __init__(self, encoder: Encoder, output: Output, table: nn.Embedding) -> None:
        super().__init__()
        self.items = table
        self.encoder = encoder
        self.output = output
        encoder.initialise(self)

    @property
    def catalogue(self) -> int:
        """V: how many items it knows."""
        return self.items.num_embeddings

    def encode(self, windows: Windows[Tensor]) -> Encoded:
        """Windows (B, L) after the encoder, with where to predict (B, T)."""
        weight, known = self.items.weight, windows.items.clamp_min(0)
        if torch.is_grad_enabled():
            embedded, table = _Read.apply(weight, known)  # type: ignore[no-untyped-call]  # (B, L, D), (V, D)
        else:
            embedded, table = F.embedding(known, weight), weight
        if isinstance(self.encoder, GRU4Rec) and self.encoder.reads_rows(table, known):
            states = self.encoder.of_rows(table, known)
        else:
            states = self.encoder(embedded)
        return Encoded(states, embedded, windows.items, windows.positions, table)

    def loss(self, windows: Windows[Tensor], targets: Tensor) -> Tensor:
        """Sum of −log P(target) over the targets (B, T) of the positions asked for."""
        encoded = self.encode(windows)
        return self.output.loss(encoded, encoded.rows(targets))

    @torch.no_grad()
    def scores(self, windows: Windows[Tensor]) -> Scores:
        """What ranks items after each position asked for, row by row."""
        return self.output.scores(self.encode(windows))

    @torch.no_grad()
    def ranks(self, items: Tensor, positions: Tensor, targets: Tensor, most: int) -> Tensor:
        """Ranks of the targets (B,) that follow windows (B, L) at positions (B, 1); V + 1 beyond `most`."""
        parts = zip(torch.split(items, TOGETHER), torch.split(positions, TOGETHER), strict=True)
        return shortlist.ranks(
            self.output, Encoded.joined([self.encode(Windows(*part)) for part in parts]), targets, most
        )


def check_memory(encoder: str, output: str, catalogue: int, **options: Any) -> None:
    """Refuse a model that cannot be trained in this machine's memory: weights, gradients and Adam's two averages."""
    try:
        with torch.device("meta"):
            needed = 16 * sum(
                weight.numel() for weight in make_model(encoder, output, catalogue, **options).parameters()
            )
    except RuntimeError:  # a size that does not even fit into an integer
        needed = 1 << 63
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise SpecError(
            f"training {encoder} {output} for {catalogue:,} items takes {needed / 1e9:,.0f} GB and more, this machine "
            f"has {memory / 1e9:,.0f} GB; choose smaller sizes (dim, window, hidden)"
        )


def make_model(encoder: str, output: str, catalogue: int, **options: Any) -> Model:
    """A fresh model for `catalogue` items; options are the encoder's (`dim`, `dropout`, …)."""
    spec = OutputSpec.parse(output)
    if encoder not in ENCODERS:
        raise SpecError(f"encoder '{encoder}' is not one of {', '.join(ENCODERS)}")
    make, options_type = ENCODERS[encoder]
    known = {field.name for field in fields(options_type)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise SpecError(f"{encoder} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    sizes = options_type(**options)
    built = make(sizes)  # type: ignore[arg-type]
    layer = make_output(spec, built.layers, sizes.dim, catalogue)
    return Model(built, layer, nn.Embedding(catalogue, sizes.dim))

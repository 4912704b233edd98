"""A model: one item table, an encoder, an output layer."""

import torch
from torch import Tensor, nn

from abaca.histories import Windows
from abaca.nn.encoders import Encoder, Inputs
from abaca.nn.logits import Scores
from abaca.nn.ops import embedding
from abaca.nn.outputs import Encoded, Output
from abaca.nn.sample import Sample


class Model(nn.Module):
    """Scores the item that follows each position of a window."""

    def __init__(self, encoder: Encoder, output: Output, items: nn.Embedding) -> None:
        super().__init__()
        self.items = items
        self.encoder = encoder
        self.output = output
        encoder.initialise(self)

    @property
    def table(self) -> Tensor:
        """The item table (V, D)."""
        return self.items.weight

    @property
    def catalogue(self) -> int:
        """V: the number of items."""
        return self.items.num_embeddings

    @property
    def dim(self) -> int:
        """D: the size of an item's vector and of a state."""
        return self.items.embedding_dim

    @property
    def device(self) -> torch.device:
        return self.table.device

    def encode(self, windows: Windows[Tensor], table: Tensor | None = None) -> Encoded:
        """Windows (B, L) after the encoder, with the positions of the predictions (B, T).

        `table` has the vectors of the items that windows number, where these are not the model's own.
        """
        whole = self.table if table is None else table
        embedded, whole = embedding.read(whole, windows.items.clamp_min(0))  # (B, L, D), (V, D)
        states = self.encoder(Inputs(windows, embedded, whole))  # (B, L, M, D)
        return Encoded(states, embedded, windows, whole)

    def loss(self, windows: Windows[Tensor], targets: Tensor, share: float = 1.0) -> Tensor:
        """Sum of −log P(target) over the targets (B, T) of the predictions.

        With a `share` below 1 it is estimated from the batch's items and this share of all others.
        """
        if share >= 1:
            encoded = self.encode(windows)
            return self.output.loss(encoded, encoded.rows(targets))
        sample = Sample.draw(torch.cat([windows.items.flatten(), targets.flatten()]), self.catalogue, share)
        table, windows = sample.of(self.table, windows)
        encoded = self.encode(windows, table)._replace(bias=sample.bias)
        return self.output.loss(encoded, encoded.rows(sample.numbers(targets)))

    @torch.no_grad()
    def scores(self, windows: Windows[Tensor]) -> Scores:
        """The scores of all items for each prediction, row by row."""
        return self.output.scores(self.encode(windows))

"""A model: one item table, an encoder, an output layer."""

import torch
from torch import Tensor, nn

from abaca.histories import Windows
from abaca.nn.encoders import Encoder, Inputs
from abaca.nn.logits import Scores
from abaca.nn.ops import embedding
from abaca.nn.outputs import Encoded, Output


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

    def encode(self, windows: Windows[Tensor]) -> Encoded:
        """Windows (B, L) after the encoder, with the positions of the predictions (B, T)."""
        embedded, table = embedding.read(self.table, windows.items.clamp_min(0))  # (B, L, D), (V, D)
        states = self.encoder(Inputs(windows, embedded, table))  # (B, L, M, D)
        return Encoded(states, embedded, windows, table)

    def loss(self, windows: Windows[Tensor], targets: Tensor) -> Tensor:
        """Sum of −log P(target) over the targets (B, T) of the predictions."""
        encoded = self.encode(windows)
        return self.output.loss(encoded, encoded.rows(targets))

    @torch.no_grad()
    def scores(self, windows: Windows[Tensor]) -> Scores:
        """The scores of all items for each prediction, row by row."""
        return self.output.scores(self.encode(windows))

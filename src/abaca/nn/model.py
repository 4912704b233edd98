"""A model: one item table, an encoder, an output layer."""

import torch
from torch import Tensor, nn

from abaca.histories import EventTypes, Windows
from abaca.nn.encoders import Encoder, Inputs
from abaca.nn.logits import Scores
from abaca.nn.ops import embedding
from abaca.nn.outputs import Encoded, Output
from abaca.nn.sample import Sample


class Model(nn.Module):
    """Scores the item that follows each position of a window."""

    def __init__(self, encoder: Encoder, output: Output, items: nn.Embedding, types: EventTypes | None = None) -> None:
        super().__init__()
        self.items = items
        self.encoder = encoder
        self.output = output
        encoder.initialise(self)
        self.types = types
        """The types of events that it was made for; None where it does not tell them apart."""
        self.type_table: nn.Embedding | None = None
        if types is not None:
            self.type_table = nn.Embedding(len(types.names), items.embedding_dim)
            nn.init.zeros_(self.type_table.weight)  # at first a type changes nothing

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
        windows, typed = self._with_types(windows, embedded)
        states = self.encoder(Inputs(windows, typed, whole))  # (B, L, M, D)
        return Encoded(states, embedded, windows, whole)

    def _with_types(self, windows: Windows[Tensor], embedded: Tensor) -> tuple[Windows[Tensor], Tensor]:
        """What the encoder reads: the vector of an item plus that of the event's type, the usual one if not known."""
        if self.types is None or self.type_table is None:
            return windows._replace(types=None), embedded
        types = windows.types
        if types is None:
            types = torch.full_like(windows.items, self.types.usual)
        return windows._replace(types=types), embedded + self.type_table(types)

    def loss(
        self, windows: Windows[Tensor], targets: Tensor, share: float = 1.0, weights: Tensor | None = None
    ) -> Tensor:
        """Sum of −log P(target) over the targets (B, T) of the predictions, each times its weight.

        With a `share` below 1 it is estimated from the batch's items and this share of all others.
        """
        if share >= 1:
            encoded = self.encode(windows).weighted(weights)
            return self.output.loss(encoded, encoded.rows(targets))
        sample = Sample.draw(torch.cat([windows.items.flatten(), targets.flatten()]), self.catalogue, share)
        table, windows = sample.of(self.table, windows)
        encoded = self.encode(windows, table)._replace(bias=sample.bias).weighted(weights)
        return self.output.loss(encoded, encoded.rows(sample.numbers(targets)))

    @torch.no_grad()
    def scores(self, windows: Windows[Tensor]) -> Scores:
        """The scores of all items for each prediction, row by row."""
        return self.output.scores(self.encode(windows))

"""A model: one item table, an encoder, an output layer, and where items are described the vectors of features."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.histories import EventTypes, Windows
from abaca.nn.encoders import Encoder, Inputs
from abaca.nn.features import FeatureVectors
from abaca.nn.logits import Scores
from abaca.nn.ops import embedding
from abaca.nn.outputs import Encoded, Output
from abaca.nn.sample import Sample


class Model(nn.Module):
    """Scores the item that follows each position of a window."""

    def __init__(
        self,
        encoder: Encoder,
        output: Output,
        items: nn.Embedding,
        types: EventTypes | None = None,
        features: FeatureVectors | None = None,
    ) -> None:
        super().__init__()
        self.items = items
        self.encoder = encoder
        self.output = output
        self.features = features
        self.ranking: Tensor | None
        self.register_buffer("ranking", None, persistent=False)  # the item table with features, in evaluation
        encoder.initialise(self)
        self.types = types
        """The types of events that it was made for; None where it does not tell them apart."""
        self.type_table: nn.Embedding | None = None
        if types is not None:
            self.type_table = nn.Embedding(len(types.names), items.embedding_dim)
            nn.init.zeros_(self.type_table.weight)  # at first a type changes nothing
        self.forget_cold()

    @property
    def table(self) -> Tensor:
        """The item table (V, D) that ranks: e_x + g(x) where items have features."""
        if self.features is None:
            return self.items.weight
        return self._with_features() if self.ranking is None else self.ranking

    @property
    def warm(self) -> int:
        """How many items the loss compares: those with training interactions, which come first."""
        return self.catalogue if self.features is None else self.features.warm

    @torch.no_grad()
    def forget_cold(self) -> None:
        """Cold items have no vector of their own."""
        self.items.weight[self.warm :] = 0

    def train(self, mode: bool = True) -> "Model":
        """Evaluation reads one table of e_x + g(x), made when training ends."""
        if self.features is not None and (mode or self.training or self.ranking is None):
            super().train(mode)
            with torch.no_grad():
                self.ranking = None if mode else self._with_features()
        return super().train(mode)

    def _with_features(self) -> Tensor:
        """e_x + g(x) of all items (V, D)."""
        assert self.features is not None
        everything = torch.arange(self.catalogue, device=self.device)
        return self.items.weight + self.features.of(everything)

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
        return self.items.weight.device

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
        self,
        windows: Windows[Tensor],
        targets: Tensor,
        share: float = 1.0,
        weights: Tensor | None = None,
        *,
        sample: Sample | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Sum of −log P(target) over the targets (B, T) of the predictions, each times its weight.

        With a `share` below 1 it is estimated from the batch's items and this share of all others, or from a `sample`
        that was drawn before. `generator` has the random numbers of items, where these are not those of windows.
        """
        if share < 1 and sample is None:
            in_batch = torch.cat([windows.items.flatten(), targets.flatten()])
            sample = Sample.draw(in_batch, self.warm, share, generator)
        if sample is None:
            encoded = self.encode(windows, self._compared(None, generator)).weighted(weights)
            return self.output.loss(encoded, encoded.rows(targets))
        encoded = self.encode(sample.windows(windows), self._compared(sample.items, generator))
        encoded = encoded._replace(bias=sample.bias).weighted(weights)
        return self.output.loss(encoded, encoded.rows(sample.numbers(targets)))

    def _compared(self, items: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """The vectors of the items that a loss compares: of some (S, D), or of all warm ones."""
        table = self.items.weight if items is None else F.embedding(items, self.items.weight)
        if self.features is None:
            return table
        if items is None:
            return self.features.kept(table[: self.warm], generator) + self.features.of_warm()
        return self.features.kept(table, generator) + self.features.of(items)

    @torch.no_grad()
    def scores(self, windows: Windows[Tensor]) -> Scores:
        """The scores of all items for each prediction, row by row."""
        return self.output.scores(self.encode(windows))


class swapped:
    """The model has other weights within the block."""

    def __init__(self, weights: dict[str, nn.Parameter], other: dict[str, Tensor] | None) -> None:
        self.weights, self.other = weights, other

    @torch.no_grad()
    def _swap(self) -> None:
        for name, value in (self.other or {}).items():
            kept = self.weights[name].detach().clone()
            self.weights[name].copy_(value)
            value.copy_(kept)

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_: object) -> None:
        self._swap()

"""A part of the catalogue for one training step: the loss of large catalogues at a fraction of the cost.

The items of the batch, targets included, are always in it; of the others a random share ρ. The others' part of the
normaliser is estimated from those that were drawn, each of which stands for 1/ρ items:

    Σ_x exp z_x  ≈  Σ_{x in the batch} exp z_x  +  Σ_{x drawn} exp(z_x + log 1/ρ)

The estimate of the sum is unbiased. To encoder and output layer the part is a small catalogue with numbers of its own.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from abaca.histories import Windows


class Sample(NamedTuple):
    """Some items of the catalogue, ascending, and what is added to the logit of each."""

    items: Tensor  # (S,)
    bias: Tensor  # (S,) log 1/ρ for an item that was drawn, 0 for one of the batch

    @classmethod
    def draw(cls, in_batch: Tensor, catalogue: int, share: float, generator: torch.Generator | None = None) -> "Sample":
        """The items of a batch (any shape, negative for none) and a share of the others."""
        kept = torch.rand(catalogue, device=in_batch.device, generator=generator) < share
        present = torch.zeros_like(kept)
        present[in_batch[in_batch >= 0]] = True
        items = (kept | present).nonzero().squeeze(1)
        return cls(items, torch.where(present[items], 0.0, math.log(1 / share)))

    def numbers(self, items: Tensor) -> Tensor:
        """The places of items in the sample; negative for none stays."""
        return torch.searchsorted(self.items, items).where(items >= 0, items)

    def windows(self, windows: Windows[Tensor]) -> Windows[Tensor]:
        """Windows of places in the sample."""
        return windows._replace(items=self.numbers(windows.items))

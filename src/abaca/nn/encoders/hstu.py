"""HSTU: gated blocks of causal attention that see how far apart two events are, in places and in time.

    x      ← dropout(item embedding + g[bucket of the time from the event to the moment of its prediction])
    u q k v = W norm(x)
    x      ← x + dropout(O (softmax(q kᵀ / √d + b[places between] + c[bucket of the time between]) v ⊙ silu(u)))

The last x is normed. Buckets of time double in width; the last one is a time that is not known.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.histories import Windows
from abaca.nn.encoders.encoder import Encoder, Inputs, check_attention, check_shares, check_sizes
from abaca.nn.ops.attention import Biases, attend
from abaca.nn.ops.buckets import KINDS, bucket, buckets_between
from abaca.nn.ops.dropout import Dropout


@dataclass(frozen=True)
class HSTUOptions:
    """Sizes of the gated encoder."""

    dim: int = 64
    """Size of an item's embedding and of a state."""
    blocks: int = 8
    heads: int = 2
    reach: int = 256
    """Places whose distance is told apart; farther ones are alike."""
    dropout: float = 0.2
    """Dropped of embeddings and of each block's output."""
    unknown: float = 0.5
    """Share of the training windows whose moments of prediction are not told; of a fifth of them, no times at all."""

    def __post_init__(self) -> None:
        check_sizes(dim=self.dim, blocks=self.blocks, heads=self.heads, reach=self.reach)
        check_shares(dropout=self.dropout, unknown=self.unknown)
        check_attention(self.dim, self.blocks, self.heads)


class HSTU(Encoder):
    """States of gated attention with relative biases (after Zhai et al., 2024), with a softmax over the positions."""

    name = "hstu"
    Options = HSTUOptions
    reads_times = True
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "lr": 2e-3, "batch_targets": 512, "window": 200, "targets": 150, "overlap": 50,
    }  # fmt: skip

    def __init__(self, options: HSTUOptions) -> None:
        super().__init__(options)
        self.places = nn.Embedding(options.reach, options.heads)
        self.times = nn.Embedding(KINDS, options.heads)
        self.gaps = nn.Embedding(KINDS, options.dim)
        self.dropout = Dropout(options.dropout)
        self.blocks = nn.ModuleList(Block(options) for _ in range(options.blocks))
        self.norm = nn.LayerNorm(options.dim)

    def initialise(self, model: nn.Module) -> None:
        """As usual; at first distances say nothing, and a block adds the less the more blocks there are."""
        super().initialise(model)
        for table in (self.places, self.times, self.gaps):
            nn.init.zeros_(table.weight)
        for block in self.blocks:
            assert isinstance(block, Block)
            nn.init.normal_(block.out.weight, std=0.02 / math.sqrt(2 * len(self.blocks)))

    def forward(self, inputs: Inputs) -> Tensor:
        """States (B, L, 1, D)."""
        times, moments = self._known(inputs.windows)
        x = self.dropout(inputs.embedded + self.gaps(bucket(moments - times)))
        biases = Biases.of(self.places.weight, self.times.weight, buckets_between(times))
        for block in self.blocks:
            x = block(x, biases)
        states: Tensor = self.norm(x)
        return states.unsqueeze(2)

    def _known(self, windows: Windows[Tensor]) -> tuple[Tensor, Tensor]:
        """The times of events and of the predictions after them (B, L), NaN where they are not known."""
        items, times = windows.items, windows.times
        if times is None:
            times = items.new_full(items.shape, torch.nan, dtype=torch.float64)
        moments = torch.full_like(times, torch.nan)
        if windows.now is not None:
            next_one = F.pad(times[:, 1:], (0, 1), value=torch.nan)
            asked = windows.positions.where(windows.positions >= 0, items.shape[1])  # none is written after the end
            moments = F.pad(next_one, (0, 1)).scatter(1, asked, windows.now)[:, :-1]
            moments = moments.masked_fill(windows.now.isnan().any(1, keepdim=True), torch.nan)
        if self.training:
            drawn = torch.rand(len(items), 1, device=items.device)
            moments = moments.masked_fill(drawn < self.options.unknown, torch.nan)
            times = times.masked_fill(drawn < self.options.unknown / 5, torch.nan)
        return times, moments


class Block(nn.Module):
    """Gated attention, of the normed input, added to it."""

    def __init__(self, options: HSTUOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.norm = nn.LayerNorm(options.dim)
        self.gate_query_key_value = nn.Linear(options.dim, 4 * options.dim)
        self.out = nn.Linear(options.dim, options.dim)
        self.dropout = Dropout(options.dropout)

    def forward(self, x: Tensor, biases: Biases) -> Tensor:
        gate, packed = self.gate_query_key_value(self.norm(x)).split((x.shape[2], 3 * x.shape[2]), dim=2)
        mixed = attend(packed, self.heads, 0.0, biases)
        return x + self.dropout(self.out(mixed * F.silu(gate)))  # type: ignore[no-any-return]

"""SASRec: item + position embedding → LayerNorm → dropout → causal transformer layers (post-norm)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.errors import SpecError
from abaca.nn.encoders.encoder import Encoder, Inputs, check_attention, check_shares, check_sizes
from abaca.nn.ops.attention import attend
from abaca.nn.ops.dropout import Dropout


@dataclass(frozen=True)
class SASRecOptions:
    """Sizes of the transformer encoder."""

    dim: int = 64
    """Size of an item's embedding and of a state."""
    window: int = 50
    """The longest window that it reads."""
    blocks: int = 2
    heads: int = 2
    inner: int = 256
    """Size inside the feed-forward part."""
    dropout: float = 0.2
    """Dropped of embeddings, of the attention's output and of the feed-forward part's."""
    attention_dropout: float = 0.1
    """Dropped of the attention weights."""

    def __post_init__(self) -> None:
        check_sizes(dim=self.dim, window=self.window, blocks=self.blocks, heads=self.heads, inner=self.inner)
        check_shares(dropout=self.dropout, attention_dropout=self.attention_dropout)
        check_attention(self.dim, self.blocks, self.heads)


class SASRec(Encoder):
    """States of a causal transformer over the window, one per layer (Kang and McAuley, 2018)."""

    name = "sasrec"
    Options = SASRecOptions
    training_defaults: ClassVar[Mapping[str, Any]] = {"lr": 2e-3, "batch_targets": 256}

    def __init__(self, options: SASRecOptions) -> None:
        super().__init__(options)
        self.layers = options.blocks
        self.position = nn.Embedding(options.window, options.dim)
        self.norm = nn.LayerNorm(options.dim, eps=1e-12)
        self.dropout = Dropout(options.dropout)
        self.blocks = nn.ModuleList(Block(options) for _ in range(options.blocks))

    @classmethod
    def sized(cls, options: dict[str, Any], longest: int) -> dict[str, Any]:
        """One position embedding for each place of a window."""
        return {**options, "window": longest}

    def forward(self, inputs: Inputs) -> Tensor:
        """States (B, L, M, D)."""
        embedded = inputs.embedded
        if embedded.shape[1] > self.position.num_embeddings:
            raise SpecError(
                f"a window of {embedded.shape[1]} items is longer than the {self.position.num_embeddings} positions "
                "of this sasrec; make it with a longer window"
            )
        x = self.dropout(self.norm(embedded + self.position.weight[: embedded.shape[1]]))
        states = []
        for block in self.blocks:
            x = block(x)  # (B, L, D)
            states.append(x)
        return torch.stack(states, dim=2)


class Block(nn.Module):
    """Attention and feed-forward, each with dropout, added and then normed."""

    def __init__(self, options: SASRecOptions) -> None:
        super().__init__()
        dim = options.dim
        self.heads = options.heads
        self.attention_dropout = options.attention_dropout
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=1e-12)
        self.widen = nn.Linear(dim, options.inner)
        self.narrow = nn.Linear(options.inner, dim)
        self.inner_norm = nn.LayerNorm(dim, eps=1e-12)
        self.dropout = Dropout(options.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attend(x)))
        return self.inner_norm(x + self.dropout(self.narrow(F.gelu(self.widen(x)))))  # type: ignore[no-any-return]

    def attend(self, x: Tensor) -> Tensor:
        """Attention of each position to itself and the positions before it."""
        dropped = self.attention_dropout if self.training else 0.0
        return self.out(attend(self.query_key_value(x), self.heads, dropped))  # type: ignore[no-any-return]

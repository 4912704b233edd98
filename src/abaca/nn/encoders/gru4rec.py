"""GRU4Rec: item embedding → dropout → one GRU layer → dense."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abaca.nn import gru
from abaca.nn.dropout import Dropout
from abaca.nn.encoders.checks import check_shares, check_sizes


@dataclass(frozen=True)
class GRU4RecOptions:
    """Sizes of the GRU encoder."""

    dim: int = 64
    """Size of an item's embedding and of a state."""
    hidden: int = 128
    """Size of the GRU's own state."""
    dropout: float = 0.35
    """Share of the embedding that is dropped in training."""

    def __post_init__(self) -> None:
        check_sizes(dim=self.dim, hidden=self.hidden)
        check_shares(dropout=self.dropout)


class GRU4Rec(nn.Module):
    """States of a one-layer GRU without biases, taken after the dense layer (Hidasi et al., 2016)."""

    layers = 1

    def __init__(self, options: GRU4RecOptions) -> None:
        super().__init__()
        self.dropout = Dropout(options.dropout)
        self.gru = nn.GRU(options.dim, options.hidden, bias=False, batch_first=True)
        self.dense = nn.Linear(options.hidden, options.dim)

    def forward(self, embedded: Tensor) -> Tensor:
        """Embedded items (B, L, D) → states (B, L, 1, D)."""
        return self._dense(gru.run(self.gru, self.dropout(embedded)))

    def reads_rows(self, table: Tensor, items: Tensor) -> bool:
        """Whether the states of items had better be asked of `of_rows`: nobody learns, and the table is short."""
        idle = not self.training and not torch.is_grad_enabled()
        return idle and gru.takes(self.gru, table) and items.numel() > len(table)

    def of_rows(self, table: Tensor, items: Tensor) -> Tensor:
        """What `forward` makes of the embedded items: each row of the table meets the GRU's weights once."""
        return self._dense(gru.run_rows(self.gru, table, items))

    def _dense(self, hidden: Tensor) -> Tensor:
        states: Tensor = self.dense(hidden)  # (B, L, D)
        return states.unsqueeze(2)

    def initialise(self, model: nn.Module) -> None:
        """Embeddings Xavier normal, the GRU Xavier uniform."""
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                nn.init.xavier_normal_(module.weight)
            elif isinstance(module, nn.GRU):
                for weight in module.parameters():
                    nn.init.xavier_uniform_(weight)

"""GRU4Rec: item embedding → dropout → one GRU layer → dense."""

from dataclasses import dataclass

from torch import Tensor, nn

from abaca.nn.encoders.encoder import Encoder, Inputs, check_shares, check_sizes
from abaca.nn.ops import gru
from abaca.nn.ops.dropout import Dropout


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


class GRU4Rec(Encoder):
    """States of a one-layer GRU without biases, taken after the dense layer (Hidasi et al., 2016)."""

    name = "gru4rec"
    Options = GRU4RecOptions

    def __init__(self, options: GRU4RecOptions) -> None:
        super().__init__(options)
        self.dropout = Dropout(options.dropout)
        self.gru = nn.GRU(options.dim, options.hidden, bias=False, batch_first=True)
        self.dense = nn.Linear(options.hidden, options.dim)

    def forward(self, inputs: Inputs) -> Tensor:
        """States (B, L, 1, D)."""
        items, table = inputs.windows.items.clamp_min(0), inputs.table
        plain = not self.training and inputs.windows.types is None  # inputs are rows of the item table
        if plain and gru.rows_are_cheaper(self.gru, table, items):
            hidden = gru.run_rows(self.gru, table, items)
        else:
            hidden = gru.run(self.gru, self.dropout(inputs.embedded))  # (B, L, H)
        states: Tensor = self.dense(hidden)
        return states.unsqueeze(2)

    def initialise(self, model: nn.Module) -> None:
        """Embeddings Xavier normal, the GRU Xavier uniform."""
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                nn.init.xavier_normal_(module.weight)
            elif isinstance(module, nn.GRU):
                for weight in module.parameters():
                    nn.init.xavier_uniform_(weight)

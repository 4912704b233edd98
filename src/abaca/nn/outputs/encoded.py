"""What an output layer reads: the encoder's states and where to predict."""

from typing import NamedTuple

import torch
from torch import Tensor


def pick(per_position: Tensor, positions: Tensor) -> Tensor:
    """What stands at some positions (B, …) of (B, L, …); at the first for a negative one."""
    batch, length = per_position.shape[:2]
    first = torch.arange(0, batch * length, length, device=positions.device).view(-1, *[1] * (positions.dim() - 1))
    places = (positions.clamp_min(0) + first).flatten()
    return per_position.flatten(0, 1).index_select(0, places).view(*positions.shape, *per_position.shape[2:])


class Encoded(NamedTuple):
    """A batch of windows after the encoder."""

    states: Tensor  # (B, L, M, D)
    embedded: Tensor  # (B, L, D) the items' embeddings
    items: Tensor  # (B, L), negative where there is no item
    positions: Tensor  # (B, T) where to predict: the last position that may be seen; negative for none
    table: Tensor  # (V, D)

    @property
    def wanted(self) -> Tensor:
        """Which of the (B, T) predictions are asked for."""
        return self.positions >= 0

    @property
    def ids(self) -> Tensor:
        """The items (B, L), as often as they stand there; V where there is none."""
        return self.items.where(self.items >= 0, self.table.shape[0])

    def at_positions(self, per_position: Tensor) -> Tensor:
        """Pick (B, T, …) of (B, L, …)."""
        return pick(per_position, self.positions)

    def take(self, windows: Tensor) -> "Encoded":
        """Only these windows."""
        states, embedded, items, positions = (part.index_select(0, windows) for part in self[:-1])
        return Encoded(states, embedded, items, positions, self.table)

    def rows(self, per_prediction: Tensor) -> Tensor:
        """Flatten (B, T, …) to the rows asked for (N, …)."""
        wanted = self.wanted
        return per_prediction.flatten(0, 1) if bool(wanted.all()) else per_prediction[wanted]  # a view costs nothing

    @property
    def owner(self) -> Tensor:
        """The history each row belongs to (N,)."""
        return self.wanted.nonzero()[:, 0]

    @property
    def reach(self) -> Tensor:
        """How many positions each row sees (N,)."""
        return self.rows(self.positions) + 1


class EncodedOnce(Encoded):
    """One prediction per history, each asked for: no shape depends on a value, so a tracer can follow."""

    def rows(self, per_prediction: Tensor) -> Tensor:
        """Flatten (B, 1, …) to (B, …)."""
        return per_prediction.squeeze(1)

    @property
    def owner(self) -> Tensor:
        """Row b belongs to history b."""
        return torch.arange(self.items.shape[0], device=self.items.device)

"""The input of an output layer: the encoder's states and the positions of the predictions."""

from typing import NamedTuple

import torch
from torch import Tensor

from abaca.histories import Windows
from abaca.nn.logits import Overrides


def pick(per_position: Tensor, positions: Tensor) -> Tensor:
    """The values (B, …) of (B, L, …) at some positions; those of the first for a negative one."""
    batch, length = per_position.shape[:2]
    first = torch.arange(0, batch * length, length, device=positions.device).view(-1, *[1] * (positions.dim() - 1))
    rows = per_position.flatten(0, 1).index_select(0, (positions.clamp_min(0) + first).flatten())
    return rows.view(*positions.shape, *per_position.shape[2:])


class Encoded(NamedTuple):
    """A batch of windows after the encoder. A row is a requested prediction; there are N."""

    states: Tensor  # (B, L, M, D)
    embedded: Tensor  # (B, L, D) the items' vectors
    windows: Windows[Tensor]
    table: Tensor  # (V, D)
    bias: Tensor | None = None  # (V,) what a sampled loss adds to the logit of each item
    weights: Tensor | None = None  # (N,) of each row in the loss; None where all are alike

    @property
    def items(self) -> Tensor:
        """The items (B, L), negative where there is none."""
        return self.windows.items

    @property
    def positions(self) -> Tensor:
        """The last visible position of each prediction (B, T); negative for none."""
        return self.windows.positions

    @property
    def asked(self) -> Tensor:
        """Mask of the requested predictions (B, T)."""
        return self.positions >= 0

    @property
    def ids(self) -> Tensor:
        """The items (B, L), repeats included; V where there is none."""
        return self.items.where(self.items >= 0, self.table.shape[0])

    def at_positions(self, per_position: Tensor) -> Tensor:
        """The values (B, T, …) of (B, L, …) at the predictions."""
        return pick(per_position, self.positions)

    def rows(self, per_prediction: Tensor) -> Tensor:
        """Flatten (B, T, …) to the rows (N, …)."""
        asked = self.asked
        return per_prediction.flatten(0, 1) if bool(asked.all()) else per_prediction[asked]  # a view costs nothing

    def weighted(self, per_prediction: Tensor | None) -> "Encoded":
        """The same with weights of the predictions (B, T), where there are any."""
        return self if per_prediction is None else self._replace(weights=self.rows(per_prediction))

    @property
    def history_of_row(self) -> Tensor:
        """The window that each row belongs to (N,)."""
        return self.asked.nonzero()[:, 0]

    def overrides(self, ids: Tensor, values: Tensor) -> Overrides:
        """New logits (N, K) for items (B, K), one for each of the first K positions; rows see those up to their own."""
        return Overrides(ids, self.history_of_row, self.rows(self.positions) + 1, values)

    def no_overrides(self) -> Overrides:
        """All logits are the base's."""
        rows = self.history_of_row.shape[0]
        return self.overrides(self.items[:, :0], self.states.new_empty(rows, 0))

    def excluded(self) -> Overrides:
        """Every item of the window scores −∞."""
        rows = self.history_of_row.shape[0]
        return self.overrides(self.ids, self.states.new_full((rows, self.items.shape[1]), -torch.inf))


class EncodedOnce(Encoded):
    """One prediction per window, all requested: no shape depends on a value, so a tracer can follow."""

    def rows(self, per_prediction: Tensor) -> Tensor:
        """Flatten (B, 1, …) to (B, …)."""
        return per_prediction.squeeze(1)

    @property
    def history_of_row(self) -> Tensor:
        """Row b belongs to window b."""
        return torch.arange(self.items.shape[0], device=self.items.device)

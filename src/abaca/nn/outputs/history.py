"""The slots of a history: every item once, and the positions that are visible to a prediction."""

from typing import NamedTuple

import torch
from torch import Tensor


class Slots(NamedTuple):
    """One slot per position of the window; the first occurrence of an item holds it, later ones stay empty.

    An item's first position is the same for all predictions, so one set of slots serves a whole window: a prediction at
    position t reads the first t + 1 of them.
    """

    ids: Tensor  # (B, L) the item in its first slot; `empty` elsewhere
    same: Tensor | None  # (B, L, L) 1 where two positions hold the same item; None where nothing repeats

    @classmethod
    def of(cls, items: Tensor, empty: int) -> "Slots":
        """Slots of `items` (B, L), oldest first, negative where there is no item."""
        present = items >= 0
        same = (items.unsqueeze(2) == items.unsqueeze(1)) & present.unsqueeze(1)  # (B, L, L)
        earlier = torch.tril(same, diagonal=-1).any(dim=2)  # an equal item occurs before
        ids = torch.where(present & ~earlier, items, empty)
        return cls(ids, same if torch.compiler.is_compiling() or bool(earlier.any()) else None)

    def mean(self, per_position: Tensor, positions: Tensor) -> Tensor:
        """The mean of values (B, T, L) over the visible positions of each item, in the item's slot (B, T, L).

        Positions up to `positions[b, t]` are visible to prediction t of history b.
        """
        if self.same is None:
            return per_position
        visible = self.visible(positions).to(per_position.dtype)  # (B, T, L)
        same = self.same.to(per_position.dtype)
        histories = torch.arange(same.shape[0], device=same.device)[:, None]
        count = same.cumsum(dim=1)[histories, positions.clamp_min(0)]  # (B, T, L) visible occurrences
        return (per_position * visible) @ same / count.clamp_min(1)

    def log_gather(self, log_weight: Tensor) -> Tensor:
        """The log-sum-exp of `log_weight` (B, T, L) over the positions of each item, in the item's slot.

        Empty slots hold a number without meaning.
        """
        if self.same is None:
            return log_weight
        home = self.same.int().argmax(dim=1).unsqueeze(1).expand_as(log_weight)  # the slot of each position's item
        highest = torch.zeros_like(log_weight).scatter_reduce(2, home, log_weight.detach(), "amax", include_self=False)
        highest = highest.clamp_min(torch.finfo(highest.dtype).min)
        share = (log_weight - highest.gather(2, home)).exp()
        total = torch.zeros_like(log_weight).scatter_add(2, home, share)
        return total.where(total > 0, 1).log() + highest

    def visible(self, positions: Tensor) -> Tensor:
        """Which positions of the window are visible to each prediction (B, T, L)."""
        steps = torch.arange(self.ids.shape[1], device=positions.device)
        return steps <= positions.unsqueeze(2)

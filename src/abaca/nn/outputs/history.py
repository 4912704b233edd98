"""The slots of a history: every item once, and which of them a position may see."""

from typing import NamedTuple

import torch
from torch import Tensor


class Slots(NamedTuple):
    """One slot per position of the window; the first occurrence of an item holds it, later ones stay empty.

    Which position is an item's first does not depend on where a prediction is made, so one set of slots serves all
    positions of a window: position t sees the first t + 1 of them.
    """

    ids: Tensor  # (B, L) the item in its first slot; `empty` elsewhere
    same: Tensor | None  # (B, L, L) 1 where two positions hold the same item; None where nothing repeats

    @classmethod
    def of(cls, items: Tensor, empty: int) -> "Slots":
        """Slots of `items` (B, L), oldest first, negative where there is no item."""
        present = items >= 0
        same = (items.unsqueeze(2) == items.unsqueeze(1)) & present.unsqueeze(1)  # (B, L, L)
        earlier = torch.tril(same, diagonal=-1).any(dim=2)  # an equal item stands before
        ids = torch.where(present & ~earlier, items, empty)
        return cls(ids, same if torch.compiler.is_compiling() or bool(earlier.any()) else None)

    def gather(self, per_position: Tensor, positions: Tensor) -> tuple[Tensor, Tensor | int]:
        """Sum values of positions (B, T, L) into the slots of their items, with how many were summed.

        Row t of history b sums what stands at or before `positions[b, t]` only.
        """
        seen = self.seen(positions).to(per_position.dtype)  # (B, T, L)
        if self.same is None:
            return per_position * seen, 1
        same = self.same.to(per_position.dtype)
        histories = torch.arange(same.shape[0], device=same.device)[:, None]
        count = same.cumsum(dim=1)[histories, positions.clamp_min(0)]  # (B, T, L) occurrences seen
        return (per_position * seen) @ same, count.clamp_min(1)

    def log_gather(self, log_weight: Tensor) -> Tensor:
        """Log of the sum, in the slot of each item, of what `log_weight` (B, T, L) is the logarithm of.

        Slots that nothing is summed into hold a number without meaning.
        """
        if self.same is None:
            return log_weight
        home = self.same.int().argmax(dim=1).unsqueeze(1).expand_as(log_weight)  # the slot of each position's item
        highest = torch.zeros_like(log_weight).scatter_reduce(2, home, log_weight.detach(), "amax", include_self=False)
        highest = highest.clamp_min(torch.finfo(highest.dtype).min)
        share = (log_weight - highest.gather(2, home)).exp()
        total = torch.zeros_like(log_weight).scatter_add(2, home, share)
        return total.where(total > 0, 1).log() + highest

    def seen(self, positions: Tensor) -> Tensor:
        """Which window positions each prediction sees (B, T, L)."""
        steps = torch.arange(self.ids.shape[1], device=positions.device)
        return steps <= positions.unsqueeze(2)

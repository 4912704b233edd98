"""What an output layer reads: the encoder's states and where to predict."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def pick(per_position: Tensor, positions: Tensor) -> Tensor:
    """What stands at some positions (B, …) of (B, L, …); at the first for a negative one."""
    rows = per_position.flatten(0, 1).index_select(0, _places(per_position, positions))
    return rows.view(*positions.shape, *per_position.shape[2:])


def pick_beside(per_position: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """All of (B, L, W), and what stands at some positions (B, T); what both teach meets in one gradient."""
    if not torch.is_grad_enabled():
        return per_position, pick(per_position, positions)
    return _Beside.apply(per_position, positions)  # type: ignore[no-untyped-call, no-any-return]


def _places(per_position: Tensor, positions: Tensor) -> Tensor:
    """Where positions are among the rows of all windows."""
    batch, length = per_position.shape[:2]
    first = torch.arange(0, batch * length, length, device=positions.device).view(-1, *[1] * (positions.dim() - 1))
    return (positions.clamp_min(0) + first).flatten()


class _Beside(torch.autograd.Function):
    """The gradients of the picked rows are added to those of all rows, in place."""

    @staticmethod
    def forward(ctx: Any, per_position: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(positions)
        return per_position.view_as(per_position), pick(per_position, positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, picked: Tensor) -> tuple[Tensor, None]:
        (positions,) = ctx.saved_tensors
        grad = grad.contiguous()
        grad.view(-1, grad.shape[2]).index_add_(0, _places(grad, positions), picked.reshape(-1, grad.shape[2]))
        return grad, None


class Encoded(NamedTuple):
    """A batch of windows after the encoder."""

    states: Tensor  # (B, L, M, D)
    embedded: Tensor  # (B, L, D) the items' embeddings
    items: Tensor  # (B, L), negative where there is no item
    positions: Tensor  # (B, T) where to predict: the last position that may be seen; negative for none
    table: Tensor  # (V, D)

    @classmethod
    def joined(cls, parts: "Sequence[Encoded]") -> "Encoded":
        """Several batches of windows of one length as one."""
        if len(parts) == 1:
            return parts[0]
        states, embedded, items, positions = (
            torch.cat(column) for column in zip(*(part[:-1] for part in parts), strict=True)
        )
        return cls(states, embedded, items, positions, parts[0].table)

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

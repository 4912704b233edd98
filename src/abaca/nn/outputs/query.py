"""From states to the query: the last state, or with Mi the last three positions of every layer."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.nn.outputs.encoded import pick

POSITIONS = 3


class LastState(nn.Module):
    """q_j = h_j^M: the last layer's state."""

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        self.query_dim = dim

    def forward(self, states: Tensor) -> Tensor:
        """Queries of all positions (B, L, D)."""
        return states[:, :, -1]

    def at(self, states: Tensor, positions: Tensor) -> Tensor:
        """Queries of some positions (B, T, D)."""
        return pick(states[:, :, -1], positions)


class MultiInput(nn.Module):
    """q_j = h_j^M ⊕ GELU(W · [the last 3 positions of all M layers] + b), with zeros before the start."""

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(POSITIONS * layers * dim, dim)
        self.query_dim = 2 * dim

    def forward(self, states: Tensor) -> Tensor:
        """Queries of all positions (B, L, 2·D)."""
        length = states.shape[1]
        before = F.pad(states.flatten(2), (0, 0, POSITIONS - 1, 0))  # (B, 2 + L, M·D)
        block = torch.cat([before[:, i : i + length] for i in range(POSITIONS)], dim=2)  # (B, L, 3·M·D)
        return torch.cat([states[:, :, -1], F.gelu(self.linear(block))], dim=-1)

    def at(self, states: Tensor, positions: Tensor) -> Tensor:
        """Queries of some positions (B, T, 2·D); one position of each window is computed alone."""
        if positions.shape[1] > 1:
            return pick(self(states), positions)
        steps = torch.arange(1 - POSITIONS, 1, device=positions.device)
        near = positions.clamp_min(0).unsqueeze(2) + steps  # (B, T, 3)
        block = pick(states.flatten(2), near) * (near >= 0).unsqueeze(3)  # (B, T, 3, M·D)
        mixed = F.gelu(self.linear(block.flatten(2)))
        return torch.cat([pick(states[:, :, -1], positions), mixed], dim=-1)


def make_query(multi_input: bool, layers: int, dim: int) -> LastState | MultiInput:
    """The query of an output layer, with or without Mi."""
    return MultiInput(layers, dim) if multi_input else LastState(layers, dim)

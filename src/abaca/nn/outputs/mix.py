"""From states to the query: the last state, or with Mi a mix of the last three positions of every layer."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

POSITIONS = 3


class LastState(nn.Module):
    """The query is the last layer's state."""

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        self.query_dim = dim

    def forward(self, states: Tensor) -> Tensor:
        return states[:, :, -1]  # (B, L, D)


class Mi(nn.Module):
    """q_j = h_j^M ⊕ GELU(W · [the last 3 positions of all M layers] + b); before the start stand zeros."""

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(POSITIONS * layers * dim, dim)
        self.query_dim = 2 * dim

    def forward(self, states: Tensor) -> Tensor:
        length = states.shape[1]
        flat = F.pad(states.flatten(2), (0, 0, POSITIONS - 1, 0))  # (B, 2 + L, M·D)
        block = torch.cat([flat[:, i : i + length] for i in range(POSITIONS)], dim=-1)  # (B, L, 3·M·D)
        return torch.cat([states[:, :, -1], F.gelu(self.linear(block))], dim=-1)  # (B, L, 2·D)

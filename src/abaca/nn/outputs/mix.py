"""From states to the query: the last state, or with Mi a mix of the last three positions of every layer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from abaca.nn import native
from abaca.nn.frame import can_read, shared_out, window_at
from abaca.nn.gelu import gelu
from abaca.nn.outputs.encoded import pick
from abaca.nn.product import Product, room

POSITIONS = 3

BLOCK_FLOATS = 1 << 17
"""What positions say to each other is held for so many floats at a time: half a megabyte, which stays in the cache."""


class LastState(nn.Module):
    """The query is the last layer's state."""

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        self.query_dim = dim

    def forward(self, states: Tensor) -> Tensor:
        return states[:, :, -1]  # (B, L, D)

    def at(self, states: Tensor, positions: Tensor) -> Tensor:
        return pick(states[:, :, -1], positions)  # (B, T, D)


class Mi(nn.Module):
    """q_j = h_j^M ⊕ GELU(W · [the last 3 positions of all M layers] + b); before the start stand zeros."""

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(POSITIONS * layers * dim, dim)
        self.query_dim = 2 * dim

    def forward(self, states: Tensor) -> Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        if can_read(states, weight):
            return _Mix.apply(torch.is_grad_enabled(), states.flatten(2), weight, bias)  # type: ignore[no-untyped-call, no-any-return]
        length = states.shape[1]
        flat = F.pad(states.flatten(2), (0, 0, POSITIONS - 1, 0))  # (B, 2 + L, M·D)
        block = torch.cat([flat[:, i : i + length] for i in range(POSITIONS)], dim=-1)  # (B, L, 3·M·D)
        return torch.cat([states[:, :, -1], F.gelu(F.linear(block, weight, bias))], dim=-1)  # (B, L, 2·D)

    @property
    def turned(self) -> Tensor:
        """With what the states of a position are multiplied: what it says to the next but one, the next, and itself."""
        return _turned(self.linear.weight)

    def at(self, states: Tensor, positions: Tensor) -> Tensor:
        """The queries of some positions (B, T, 2·D). Where nobody learns, only these are made."""
        if torch.is_grad_enabled():
            return pick(self(states), positions)
        steps = torch.arange(1 - POSITIONS, 1, device=positions.device)
        near = positions.clamp_min(0).unsqueeze(2) + steps  # (B, T, 3)
        block = pick(states.flatten(2), near) * (near >= 0).unsqueeze(3)  # (B, T, 3, M·D)
        made = gelu(F.linear(block.flatten(2), self.linear.weight, self.linear.bias))
        return torch.cat([pick(states[:, :, -1], positions), made], dim=-1)


def _turned(weight: Tensor) -> Tensor:
    """Weights (D, 3·M·D) that read three positions as weights (3·D, M·D) of one that is read three times."""
    dim = len(weight)
    return weight.view(dim, POSITIONS, -1).transpose(0, 1).reshape(POSITIONS * dim, -1)


class _Mix(torch.autograd.Function):
    """The native form: a position's states are multiplied once, and the two after it hear of them too."""

    @staticmethod
    def forward(ctx: Any, learns: bool, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        states, bias = states.contiguous(), bias.contiguous()
        windows, length, width = states.shape
        dim = len(bias)
        turned = _turned(weight)
        queries = torch.empty(windows, length, 2 * dim)
        slope = torch.empty(windows, length, dim) if learns else None

        product, block = Product(turned, windows * length), max(1, BLOCK_FLOATS // (length * POSITIONS * dim))

        def work(first: int, count: int, _: Tensor) -> None:
            said = room(min(block, count) * length, POSITIONS * dim)  # to the next but one, the next, and itself
            for start in range(first, first + count, block):
                part = states[start : min(start + block, first + count)]
                product(part.view(-1, width), said[: len(part) * length])
                heard, made, steep = window_at(start, states, queries, slope)
                pointers = heard, said.data_ptr(), bias.data_ptr(), made, steep
                sizes = len(part), length, dim, dim, width, said.stride(0)
                native.function("abaca_mix")(*sizes, *pointers, native.mode() == "portable")

        shared_out(windows, 0, work)
        ctx.save_for_backward(states, turned, slope)
        return queries

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        states, turned, slope = ctx.saved_tensors
        windows, length, width = states.shape
        dim = slope.shape[2]
        grad = grad.contiguous()
        grad_said = torch.empty(windows, length, POSITIONS * dim)

        def work(first: int, count: int, _: Tensor) -> None:
            native.function("abaca_mix_back")(count, length, dim, *window_at(first, grad, slope, grad_said))

        shared_out(windows, 0, work)
        flat = grad_said.view(-1, POSITIONS * dim)
        grad_states = torch.mm(flat, turned).view_as(states)
        grad_states[..., -dim:] += grad[..., :dim]
        grad_turned = torch.mm(flat.T, states.view(-1, width))
        grad_weight = grad_turned.view(POSITIONS, dim, width).transpose(0, 1).reshape(dim, -1)
        return None, grad_states, grad_weight, flat[:, -dim:].sum(dim=0)

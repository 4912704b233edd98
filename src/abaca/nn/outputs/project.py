"""Several affine maps of the same input, whose gradients meet in one place instead of being made apart and added up."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def project(layers: Sequence[nn.Linear], x: Tensor) -> Sequence[Tensor]:
    """What each layer makes of the input (…, Q): (…, D) of each."""
    if len(layers) == 1 or not torch.is_grad_enabled():
        return [layer(x) for layer in layers]
    parts = *(layer.weight for layer in layers), *(layer.bias for layer in layers)
    return _Projections.apply(x, *parts)  # type: ignore[no-untyped-call, no-any-return]


class _Projections(torch.autograd.Function):
    """Input (…, Q), then all weights (D, Q), then all biases (D)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        rows, weights = x.reshape(-1, x.shape[-1]), parts[: len(parts) // 2]
        ctx.save_for_backward(rows, *weights)
        ctx.shape = x.shape
        made = (torch.addmm(bias, rows, weight.T) for weight, bias in zip(weights, parts[len(weights) :], strict=True))
        return tuple(part.view(*x.shape[:-1], -1) for part in made)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, *weights = ctx.saved_tensors
        flat = [grad.reshape(len(rows), -1) for grad in grads]
        total = torch.mm(flat[0], weights[0])
        for grad, weight in zip(flat[1:], weights[1:], strict=True):
            total.addmm_(grad, weight)
        return total.view(ctx.shape), *(torch.mm(grad.T, rows) for grad in flat), *(grad.sum(dim=0) for grad in flat)

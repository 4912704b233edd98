"""Models with sharp random weights, and windows for them."""

import torch
from torch import Tensor

from abaca.nn.model import Model, make_model

COPYING = ("softmax+C", "softmax+C+Mi", "softmax+CP", "softmax+CPR:20", "softmax+CPR:20+Mi", "mos:3+CPR:5,20+Mi")
ITEMS = 400


def model_of(encoder: str, spec: str, dim: int) -> Model:
    torch.manual_seed(dim)
    options = {"dim": dim, "hidden": 16} if encoder == "gru4rec" else {"dim": dim, "window": 30}
    model = make_model(encoder, spec, ITEMS, **options).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=1.5 / weight.shape[-1] ** 0.5)
    return model


def windows(count: int, repeats: bool) -> tuple[Tensor, Tensor]:
    """Windows of 1 to 30 items and their last positions."""
    generator = torch.Generator().manual_seed(count)
    lengths = torch.randint(1, 31, (count, 1), generator=generator)
    items = torch.stack([torch.randperm(ITEMS, generator=generator)[:30] for _ in range(count)])
    items = items % 9 if repeats else items
    return items.where(torch.arange(30) < lengths, -1), lengths - 1

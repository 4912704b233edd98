"""Where a model computes."""

import os

import torch

from abaca.errors import SpecError


def choose_device(name: str | torch.device) -> torch.device:
    """`auto` is a GPU where torch sees one; else `cpu`, `cuda`, `cuda:1`, …. Each process of a group has its own."""
    name = str(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.distributed.is_available() and torch.distributed.is_initialized():
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise SpecError(f"device '{name}' is not auto, cpu, cuda or cuda:1 (2, …)")
    seen = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= seen:
        raise SpecError(
            f"device '{name}' is not available: torch sees {seen} GPUs; use auto or cpu, or a torch with CUDA"
        )
    return torch.device(name)

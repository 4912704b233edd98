"""Where a model computes."""

import os

import torch

from abaca.errors import SpecError


def choose_device(name: str | torch.device) -> torch.device:
    """`auto` is a GPU where torch sees one; else `cpu`, `cuda`, `cuda:1`, …. Each process of a group has its own."""
    name = str(name)
    grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
    if grouped and name in ("auto", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise SpecError(f"device '{name}' is not auto, cpu, cuda or cuda:1 (2, …)")
    seen = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= seen:
        raise SpecError(
            f"device '{name}' is not available: torch sees {seen} GPUs; use auto or cpu, or a torch with CUDA"
        )
    return torch.device(name)

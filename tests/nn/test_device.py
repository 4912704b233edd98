"""Where a model computes, as far as a machine without a GPU can tell."""

import pytest
import torch

from abaca.errors import SpecError
from abaca.nn.device import choose_device


@pytest.mark.parametrize(("gpus", "expected"), [(0, "cpu"), (2, "cuda")])
def test_auto_takes_a_gpu_where_there_is_one(gpus: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    assert choose_device("auto").type == expected


def test_a_device_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == choose_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    assert choose_device("cuda") == torch.device("cuda")
    with pytest.raises(SpecError, match="'cuda:2' is not available: torch sees 2 GPUs"):
        choose_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:x", "cuda:-1", ""])
def test_what_is_no_device(name: str) -> None:
    with pytest.raises(SpecError, match="is not auto, cpu, cuda"):
        choose_device(name)


def test_no_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SpecError, match="use auto or cpu"):
        choose_device("cuda")

"""Where a model computes, as far as a machine without a GPU can tell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from abaca.errors import SpecError
from abaca.histories import Windows
from abaca.nn.build import make_model
from abaca.nn.device import choose_device

from .cases import ENCODERS, SIZES

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_encoder_computes_where_its_windows_are(encoder: str) -> None:
    """A tensor on another device than the windows' would raise, as it would on a GPU."""
    with torch.device("meta"):
        model = make_model(encoder, "softmax", 14, **SIZES[encoder]).train()
        items, times = torch.zeros(2, 9, dtype=torch.int64), torch.zeros(2, 9, dtype=torch.float64)
    windows = Windows(items, items, times, times)
    with torch.device("cpu"):  # where tensors are made that nothing else places
        states = model.encode(windows).states
        states.sum().backward()  # type: ignore[no-untyped-call]
    assert states.device.type == "meta"
    assert all(weight.grad is not None for weight in model.encoder.parameters())


AUTOCAST = """
import torch
from abaca.nn import ops
from tests.nn.cases import CASES, ENCODERS, model_of

assert ops.instructions() is not None
for encoder in ENCODERS:
    for output in ("softmax", "softmax+CPR:2,4,8+Mi", "mos:3+CP", "repeatnet"):
        losses, gradients = [], []
        for half in (False, True):
            model, batch = model_of(encoder, output).float(), CASES["repeats"].batch
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                loss = model.loss(batch.windows, batch.targets)
            loss.backward()
            losses.append(loss.item())
            gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
        exact, rounded = gradients
        print(encoder, output, losses, (rounded - exact).norm() / exact.norm())
        assert losses[0] != losses[1]
        assert abs(losses[1] / losses[0] - 1) < 0.02
        assert (rounded - exact).norm() < 0.1 * exact.norm()
"""

AUTOCAST_FIT = """
import numpy as np
import pyarrow
import torch
from abaca.recommender import Recommender

torch.set_num_threads(1)
users, length, items = 100, 12, 30
begin = np.random.default_rng(0).integers(items, size=(users, 1))
columns = np.repeat(np.arange(users), length), ((begin + np.arange(length)) % items).ravel()
log = pyarrow.table([*columns, np.tile(np.arange(length), users)], names=["user", "item", "time"])
for encoder in ("hstu", "sasrec", "gru4rec"):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fitted = Recommender(encoder, "softmax+CP+habits+followers", epochs=3).fit(log, progress=False)
    assert fitted.saved.training["with_evidence"] > 0.9, (encoder, fitted.saved.training["with_evidence"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [AUTOCAST, AUTOCAST_FIT], ids=["loss", "fit"])
def test_bfloat16_autocast(code: str) -> None:
    """In a process of its own: some virtual machines announce instructions for bfloat16 that they do not have."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

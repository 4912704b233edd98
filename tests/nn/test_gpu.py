"""The loss on a GPU, as far as a machine without one can tell: in Triton's interpreter, and through its compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from abaca.nn import gpu
from abaca.nn.logits import Level, Logits, Overrides, Question, answer, cross_entropy
from nn_native.cases import Case, inputs_of
from nn_native.test_loss import assert_same

INTERPRETED = Path(__file__).with_name("gpu_interpreted.py")


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpu.SWITCH, raising=False)
    gpu._tried.cache_clear()


def test_the_loss_in_tritons_interpreter() -> None:
    """Triton decides when it is imported whether to interpret, hence a process of its own."""
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", str(INTERPRETED)]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize("name", ["sum_forward", "sum_backward_queries", "sum_backward_table"])
def test_kernels_compile_for_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is more lenient than the compiler, which needs no GPU."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    from abaca.nn import triton_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = getattr(triton_kernels, name)
    types = dict.fromkeys(("queries", "table", "sums", "upstream", "gradient"), "*fp32") | {"claimed": "*i32"}
    signature = {name: "constexpr" if name.isupper() else types.get(name, "i32") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(kernel, signature, {"DIM": 13, "WIDTH": 16, "BLOCK": 16})
    assert ".visible .entry" in triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]


def test_on_the_cpu_nobody_asks_for_triton() -> None:
    assert not gpu.takes(Case().logits())
    assert gpu._tried.cache_info().currsize == 0


@pytest.mark.parametrize("missing", ["triton", "driver"])
def test_where_triton_does_not_work_another_form_does(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a GPU: Triton would be asked, but is not installed or has nothing to run on."""
    if missing == "triton":
        monkeypatch.delitem(sys.modules, "abaca.nn.triton_kernels", raising=False)
        monkeypatch.setitem(sys.modules, "triton", None)
    else:
        pytest.importorskip("triton")
    monkeypatch.setattr(gpu, "_interpreted", lambda: True)
    case = Case(levels=(20,))
    assert not gpu.takes(case.logits())
    assert_same(case.logits(), case.targets(), torch.ones(case.rows))
    assert [record.message.partition(" (")[0] for record in caplog.records] == ["Triton does not work on cpu"]


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", lambda device: True)
    assert gpu.works(torch.device("cpu"))
    monkeypatch.setenv(gpu.SWITCH, "0")
    assert not gpu.works(torch.device("cpu"))
    monkeypatch.setenv(gpu.SWITCH, "perhaps")
    with pytest.raises(ValueError, match="ABACA_TRITON='perhaps'"):
        gpu.works(torch.device("cpu"))


def test_nothing_strays_to_another_device() -> None:
    """Torch's meta device stands for a GPU: an operation that mixes it with the CPU fails."""
    case = Case(levels=(20, 5))
    logits = case.logits()
    ids, owner, reach, _ = (part.to("meta") for part in logits.overrides)
    queries, table, values, *levels = (part.to("meta").requires_grad_() for part in inputs_of(logits))
    reranked = tuple(Level(level.k, query) for level, query in zip(logits.levels, levels, strict=True))
    logits = Logits(queries, table, reranked, Overrides(ids, owner, reach, values))
    targets = case.targets().to("meta")
    items, scores = gpu.claims(logits, targets)
    (cross_entropy(logits, targets, targets.float()) + scores.sum()).backward()
    found = answer(logits, Question(targets, 5, targets[:, None], targets[:, None]))
    tensors = [items, scores, *found, *(part.grad for part in inputs_of(logits))]
    assert {tensor.device.type for tensor in tensors} == {"meta"}

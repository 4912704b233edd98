"""The loss on a GPU, as far as a machine without one can tell: in Triton's interpreter, and through its compiler."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from abaca.nn import ops
from abaca.nn.answers import Question, answer
from abaca.nn.logits import Level, Logits, Overrides
from abaca.nn.ops import triton_loss
from abaca.nn.ops.loss import cross_entropy

from .cases import Case
from .test_loss import assert_same

INTERPRETED = Path(__file__).with_name("triton_interpreted.py")


@pytest.fixture(autouse=True)
def instructions() -> Iterator[None]:
    """In place of both sets of primitives."""
    triton_loss._works.cache_clear()
    with ops.form("triton"):
        yield


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

    from abaca.nn.ops import triton_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = getattr(triton_kernels, name)
    types = dict.fromkeys(("queries", "table", "sums", "upstream", "gradient"), "*fp32") | {"claimed": "*i32"}
    signature = {name: "constexpr" if name.isupper() else types.get(name, "i32") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(kernel, signature, {"DIM": 13, "WIDTH": 16, "BLOCK": 16})
    assert ".visible .entry" in triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]


def test_on_the_cpu_triton_is_not_tried() -> None:
    assert not triton_loss.fits(Case().logits())
    assert triton_loss._works.cache_info().currsize == 0


def test_triton_is_never_chosen_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_loss, "_interpreted", lambda: True)
    monkeypatch.setattr(triton_loss, "_works", lambda device: True)
    assert triton_loss.fits(Case().logits())
    for form in ("native", "plain", "portable"):
        with ops.form(form):
            assert not triton_loss.fits(Case().logits())


@pytest.mark.parametrize("missing", ["triton", "driver"])
def test_where_triton_does_not_work_another_form_does(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a GPU: Triton would be asked, but is not installed or has nothing to run on."""
    if missing == "triton":
        monkeypatch.delitem(sys.modules, "abaca.nn.ops.triton_kernels", raising=False)
        monkeypatch.setitem(sys.modules, "triton", None)
    else:
        pytest.importorskip("triton")
    monkeypatch.setattr(triton_loss, "_interpreted", lambda: True)
    case = Case(levels=(20,))
    assert not triton_loss.fits(case.logits())
    assert_same(case.logits(), case.targets(), torch.ones(case.rows))
    assert [record.message.partition(" (")[0] for record in caplog.records] == ["Triton does not work on cpu"]


def test_nothing_strays_to_another_device() -> None:
    """Torch's meta device stands for a GPU: an operation that mixes it with the CPU fails."""
    case = Case(levels=(20, 5))
    logits = case.logits()
    ids, history_of_row, visible, _ = (part.to("meta") for part in logits.overrides)
    queries, table, values, *levels = (part.to("meta").requires_grad_() for part in logits.inputs)
    reranked = tuple(Level(level.k, query) for level, query in zip(logits.levels, levels, strict=True))
    logits = Logits(queries, table, reranked, Overrides(ids, history_of_row, visible, values))
    targets = case.targets().to("meta")
    items, scores = triton_loss.claims(logits, targets)
    (cross_entropy(logits, targets, targets.float()) + scores.sum()).backward()
    found = answer(logits, Question(targets, 5, targets[:, None], targets[:, None]))
    tensors = [items, scores, *found, *(part.grad for part in logits.inputs)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}

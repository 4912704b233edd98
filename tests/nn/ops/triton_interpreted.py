"""The loss on a GPU in Triton's interpreter; `test_triton_loss.py` starts this file in a process of its own.

The tests of the native form run with this one too, and the plain form in float64 is the truth again.
"""

import dataclasses
import functools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from abaca.nn import ops
from abaca.nn.build import make_model
from abaca.nn.model import Model
from abaca.nn.ops import triton_loss

from ..cases import CASES, SIZES, redraw
from . import test_loss
from .cases import CASES as SHAPES
from .cases import Case, settled
from .test_loss import (
    assert_same,
    loss_and_gradients,
    test_a_target_of_minus_infinity_costs_infinity,
    test_a_target_outside_the_catalogue_is_refused,
    test_nan_stays_nan,
    test_no_weight_at_all,
    test_targets_in_the_history,
    test_targets_in_the_levels,
)

__all__ = [
    "test_a_target_of_minus_infinity_costs_infinity",
    "test_a_target_outside_the_catalogue_is_refused",
    "test_nan_stays_nan",
    "test_no_weight_at_all",
    "test_targets_in_the_history",
    "test_targets_in_the_levels",
]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of −∞ − −∞ in places that are masked

SMALLEST = {"rows": 9, "catalogue": 131}  # the interpreter takes its time for every block
NAMES = (
    "base only", "history", "levels and history", "levels of one size", "k = 1", "k one short of everything",
    "k is everything", "few items", "one item", "history beyond the catalogue", "one row", "no rows", "sharp logits",
)  # fmt: skip
BLOCKY = {
    "blocks of rows and items": Case(rows=70, catalogue=130, dim=8, levels=(16, 4)),
    "middling dimensions": Case(rows=5, catalogue=67, dim=67, levels=(10,)),
    "many dimensions": Case(rows=5, catalogue=35, dim=200, levels=(10,)),
}


@pytest.fixture(autouse=True)
def instructions() -> Iterator[None]:
    """In place of both sets of primitives."""
    with ops.form("triton"):
        yield


@pytest.fixture(autouse=True)
def small_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small cases, and as few programs as there can be, so that each walks over several blocks."""
    monkeypatch.setattr(test_loss, "Case", functools.partial(Case, **SMALLEST))
    monkeypatch.setattr(triton_loss, "PROGRAMS", 1)


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_plain_form(name: str) -> None:
    case = SHAPES[name]
    case = dataclasses.replace(case, **{size: min(most, getattr(case, size)) for size, most in SMALLEST.items()})
    assert triton_loss.fits(case.logits())
    assert_same(case.logits(), case.targets(), torch.ones(case.rows))


@pytest.mark.parametrize(("name", "programs"), [*((name, 1) for name in BLOCKY), ("blocks of rows and items", 512)])
def test_how_the_work_is_divided_changes_rounding_only(
    name: str, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_loss, "PROGRAMS", programs)
    monkeypatch.setattr(triton_loss, "TILE_ELEMENTS", 3000)
    case = BLOCKY[name]
    assert_same(case.logits(), case.targets(), torch.ones(case.rows))


@pytest.mark.parametrize("seed", range(2))
def test_equals_the_plain_form_at_random(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    levels = tuple(sorted((draw(1, 40) for _ in range(draw(0, 3))), reverse=True))
    case = Case(draw(1, 70), draw(1, 200), draw(1, 64), draw(0, 20), levels, 0.5 + 3 * draw(0, 3), seed)
    logits, weights = case.logits(), torch.rand(case.rows, generator=generator)
    rows = settled(logits)
    assert int((~rows).sum()) <= 1  # near ties are rare
    assert_same(logits.take(rows), case.targets()[rows], weights[rows])


def test_the_same_run_gives_the_same_bits() -> None:
    case = Case(**SMALLEST, levels=(20, 5))
    one, other = (
        loss_and_gradients(case.logits(), case.targets(), torch.ones(case.rows), torch.float32) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_without_gradients() -> None:
    case = Case(**SMALLEST, levels=(20, 5))
    with torch.inference_mode():
        loss = triton_loss.cross_entropy(case.logits(), case.targets(), torch.ones(case.rows))
    expected = loss_and_gradients(case.logits(), case.targets(), torch.ones(case.rows), torch.float32)[0]
    torch.testing.assert_close(loss, expected, rtol=0, atol=0)


def test_what_it_does_not_take() -> None:
    logits = Case(catalogue=20).logits()
    assert triton_loss.fits(logits)
    assert not triton_loss.fits(logits._replace(queries=logits.queries.repeat(1, 2, 1)))
    assert not triton_loss.fits(logits._replace(table=logits.table.double()))
    assert not triton_loss.fits(Case(rows=2, catalogue=9, dim=triton_loss.WIDEST + 1).logits())


@pytest.mark.parametrize("spec", ["softmax+CPR:2,4,8+Mi", "softmax+CP", "mos-mix:3", "repeatnet"])
def test_whole_models(spec: str) -> None:
    batch = CASES["repeats"].batch

    def gradients(model: Model) -> list[Tensor]:
        loss = model.loss(batch.windows, batch.targets)
        return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)]

    model = redraw(make_model("gru4rec", spec, 14, **SIZES["gru4rec"]).double(), seed=1, scale=1.0)
    expected = gradients(model)
    for ours, theirs in zip(gradients(model.float()), expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)

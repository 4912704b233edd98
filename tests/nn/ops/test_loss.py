"""The native loss against the plain form: same values, same gradients, by whole rows and by tiles of items.

The plain form runs in float64 on the same numbers, so it is the truth; the native form may differ from it by the
rounding of float32: 2e-5 of the largest entry of each gradient, and of the loss.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from abaca.nn import ops
from abaca.nn.logits import Level, Logits, Overrides
from abaca.nn.ops import itemtiles, packed, tiles
from abaca.nn.ops import loss as module
from abaca.nn.ops.loss import cross_entropy

from .cases import CASES, Case, as_leaves, settled

TOLERANCE = 2e-5


@pytest.fixture(autouse=True, params=["whole rows", "tiles of items"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Tiles are so small that every case has several, and some k exceed them."""
    if request.param == "tiles of items":
        monkeypatch.setattr(packed, "LONGEST_ROW", 0)
        monkeypatch.setattr(itemtiles, "TILE_ITEMS", 45)
        monkeypatch.setattr(itemtiles, "TILE_ROWS", 16)
    return str(request.param)


def loss_and_gradients(logits: Logits, targets: Tensor, weights: Tensor, dtype: torch.dtype) -> list[Tensor]:
    logits = as_leaves(logits, dtype)
    loss = cross_entropy(logits, targets, weights.to(dtype))
    (3 * loss).backward()  # type: ignore[no-untyped-call]
    return [loss.detach(), *(x.grad for x in logits.inputs if x.grad is not None)]


def assert_same(logits: Logits, targets: Tensor, weights: Tensor) -> None:
    native_form = loss_and_gradients(logits, targets, weights, torch.float32)
    plain_form = loss_and_gradients(logits, targets, weights, torch.float64)
    assert len(native_form) == len(plain_form) == 1 + len(logits.inputs)
    for got, expected in zip(native_form, plain_form, strict=True):
        assert got.dtype == torch.float32
        largest = float(expected.abs().max()) if expected.numel() else 0.0
        torch.testing.assert_close(got.double(), expected, rtol=TOLERANCE, atol=TOLERANCE * max(largest, 1e-3))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_equals_the_plain_form(case: Case) -> None:
    assert_same(case.logits(), case.targets(), torch.ones(case.rows))


@pytest.mark.parametrize("seed", range(30))
def test_equals_the_plain_form_at_random(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    levels = tuple(sorted((draw(1, 200) for _ in range(draw(0, 4))), reverse=True))
    bases = 1 if seed % 3 else draw(2, 5)
    case = Case(draw(1, 300), draw(1, 3000), draw(1, 80), draw(0, 60), levels, 0.5 + 3 * draw(0, 3), seed, bases)
    logits, weights = case.logits(), torch.rand(case.rows, generator=generator)
    rows = settled(logits)
    assert int((~rows).sum()) <= 1  # near ties are rare
    assert_same(logits.take(rows), case.targets()[rows], weights[rows])


def test_targets_in_the_history() -> None:
    case = Case(levels=(20, 5))
    logits = case.logits()
    ids, history_of_row, visible, _ = logits.overrides
    first = ids[history_of_row, 0]
    targets = torch.where(first < case.catalogue, first, case.targets())
    logits = logits._replace(overrides=logits.overrides._replace(visible=visible.clamp_min(1)))
    assert_same(logits, targets, torch.ones(case.rows))


def test_targets_in_the_levels() -> None:
    case = Case(levels=(50, 20, 7))
    logits = case.logits()
    targets = (logits.queries[:, 0] @ logits.table.T).argmax(dim=1)
    assert_same(logits, targets, torch.ones(case.rows))


@pytest.mark.parametrize("levels", [(), (7,), (60, 20, 3), (140, 90)])
def test_ties_go_to_the_lower_item(levels: tuple[int, ...]) -> None:
    """Whole numbers: products are exact, half of all items tie with one 90 items further on."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randint(-2, 3, shape, generator=generator).float()

    table, queries = draw(90, 3).repeat(2, 1), [draw(30, 3) for _ in (None, *levels)]
    none = torch.zeros(30, dtype=torch.long)
    overrides = Overrides(torch.tensor([[4, 94, 3, 180, 179]]), none, torch.arange(30) % 6, draw(30, 5))
    reranked = tuple(Level(k, query) for k, query in zip(levels, queries[1:], strict=True))
    logits = as_leaves(Logits(queries[0].unsqueeze(1), table, reranked, overrides), torch.float32)
    targets = torch.arange(30) * 6
    loss = cross_entropy(logits, targets, torch.ones(30))
    loss.backward()  # type: ignore[no-untyped-call]

    again = as_leaves(logits, torch.float64)
    rows = (again.queries[:, 0] @ again.table.T).unbind()
    expected = torch.zeros(())
    for n, row in enumerate(rows):
        for level in again.levels:
            chosen = row.detach().sort(descending=True, stable=True).indices[: level.k]
            row = row.index_put((chosen,), again.table[chosen] @ level.query[n])
        seen = [j for j in range(int(overrides.visible[n])) if overrides.ids[0, j] < 180]
        row = row.index_put((overrides.ids[0, seen],), again.overrides.values[n, seen])
        expected = expected - row.log_softmax(0)[targets[n]]
    expected.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss.double(), expected, rtol=TOLERANCE, atol=0)
    for got, wanted in zip(logits.inputs, again.inputs, strict=True):
        grad = torch.zeros_like(wanted) if wanted.grad is None else wanted.grad
        assert got.grad is not None
        torch.testing.assert_close(got.grad.double(), grad, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("target", [0, 44, 45, 89, 90, 1002])
def test_targets_at_the_edges_of_tiles(target: int) -> None:
    case = Case(levels=(20, 5))
    assert_same(case.logits(), torch.full((case.rows,), target), torch.ones(case.rows))


def test_items_of_the_history_may_score_minus_infinity() -> None:
    case = Case(levels=(20,))
    logits = case.logits()
    values = logits.overrides.values.masked_fill(torch.rand(case.rows, case.slots) < 0.5, -torch.inf)
    logits = logits._replace(overrides=logits.overrides._replace(values=values))
    ids, history_of_row, _, _ = logits.overrides
    targets = torch.where(
        (ids[history_of_row] == case.targets()[:, None]).any(1), (case.targets() + 1) % 1003, case.targets()
    )
    assert_same(logits, targets, torch.ones(case.rows))


def test_a_target_of_minus_infinity_costs_infinity() -> None:
    case = Case(rows=3, slots=1)
    logits = case.logits()
    values = torch.tensor([[-torch.inf], [0.0], [0.0]])
    overrides = Overrides(
        torch.tensor([[4]]), torch.zeros(3, dtype=torch.long), torch.ones(3, dtype=torch.long), values
    )
    logits, targets = logits._replace(overrides=overrides), torch.tensor([4, 4, 5])
    got = loss_and_gradients(logits, targets, torch.ones(3), torch.float32)
    expected = loss_and_gradients(logits, targets, torch.ones(3), torch.float64)
    assert got[0] == torch.inf
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=TOLERANCE, atol=TOLERANCE)


def test_rows_without_weight_contribute_nothing() -> None:
    case = Case(levels=(20, 5))
    logits, targets = case.logits(), case.targets()
    weights = (torch.arange(case.rows) % 3).float()
    assert_same(logits, targets, weights)
    some = weights > 0
    whole = loss_and_gradients(logits, targets, weights, torch.float32)
    part = loss_and_gradients(logits.take(some), targets[some], weights[some], torch.float32)
    torch.testing.assert_close(whole[0], part[0])
    torch.testing.assert_close(whole[2], part[2], rtol=1e-5, atol=1e-5)
    assert all(not whole[i][~some].any() for i in (1, 3, 4, 5))


def test_no_weight_at_all() -> None:
    case = Case(levels=(20,))
    got = loss_and_gradients(case.logits(), case.targets(), torch.zeros(case.rows), torch.float32)
    assert not any(x.any() for x in got)


def test_nan_stays_nan() -> None:
    case = Case(levels=(20,))
    logits = case.logits()
    logits.table[5] = torch.nan
    loss, _, table, *_ = loss_and_gradients(logits, case.targets(), torch.ones(case.rows), torch.float32)
    assert loss.isnan()
    assert table.isnan().any()
    logits.table[:] = torch.nan
    assert loss_and_gradients(logits, case.targets(), torch.ones(case.rows), torch.float32)[0].isnan()


@pytest.mark.parametrize("bases", [1, 3])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_run_gives_the_same_bits(workers: int, bases: int) -> None:
    torch.set_num_threads(workers)
    case = Case(rows=400, catalogue=700, levels=(50, 20, 7), bases=bases)
    runs = [loss_and_gradients(case.logits(), case.targets(), torch.ones(case.rows), torch.float32) for _ in range(3)]
    assert torch.get_num_threads() == workers
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("bases", [1, 3])
@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_threads_changes_rounding_only(workers: int, bases: int) -> None:
    torch.set_num_threads(workers)
    case = Case(rows=700, levels=(50, 7), bases=bases)
    assert_same(case.logits(), case.targets(), torch.ones(case.rows))


def test_without_gradients_only_the_loss_is_made() -> None:
    case = Case(rows=300, levels=(20, 5))
    logits, targets, weights = case.logits(), case.targets(), torch.rand(case.rows)
    expected = loss_and_gradients(logits, targets, weights, torch.float32)[0]
    loss = cross_entropy(logits, targets, weights)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    with torch.inference_mode():
        torch.testing.assert_close(cross_entropy(logits, targets, weights), loss, rtol=0, atol=0)


def test_threads_run_in_inference_mode_too() -> None:
    torch.set_num_threads(2)
    case = Case(rows=300)
    with torch.inference_mode():
        assert cross_entropy(case.logits(), case.targets(), torch.ones(case.rows)).isfinite()


def test_backward_can_be_called_again() -> None:
    case = Case(levels=(20, 5))
    logits = as_leaves(case.logits(), torch.float32)
    loss = cross_entropy(logits, case.targets(), torch.ones(case.rows))
    first, second = (torch.autograd.grad(2 * loss, logits.inputs, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert first[0].data_ptr() != second[0].data_ptr()


def test_the_switch_selects_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the native form was called")

    monkeypatch.setattr(module, "native", refuse)
    case = Case(levels=(20,))
    with pytest.raises(AssertionError, match="native form"):
        cross_entropy(case.logits(), case.targets())
    with ops.form("plain"):
        assert cross_entropy(case.logits(), case.targets()).isfinite()


def test_the_plain_form_by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tile is differentiated as it is; several are computed again in the backward pass."""
    case = Case(levels=(20, 5))
    logits, targets, weights = case.logits(), case.targets(), torch.rand(case.rows)
    whole = loss_and_gradients(logits, targets, weights, torch.float64)
    monkeypatch.setattr("abaca.nn.logits.TILE_ELEMENTS", 5 * case.catalogue)
    assert len(logits.slices()) == 8
    for one, other in zip(loss_and_gradients(logits, targets, weights, torch.float64), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_form_follows_from_size(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rows are done in pieces, and so are others where the tables of gradients would take too much."""
    forms = []

    def count(name: tuple[object, str], solve: Callable[..., object]) -> None:
        monkeypatch.setattr(*name, lambda *arguments: forms.append(name[1]) or solve(*arguments))

    count((module, "_whole_rows"), module._whole_rows)
    count((itemtiles, "solve"), itemtiles.solve)
    case = Case(rows=3)
    cross_entropy(case.logits(), case.targets(), torch.ones(3))
    assert forms == [{"whole rows": "_whole_rows", "tiles of items": "solve"}[form]]
    torch.set_num_threads(2)
    monkeypatch.setattr(itemtiles, "COPIES_BYTES", 1003 * 24 * 4 - 1)
    cross_entropy(case.logits(), case.targets(), torch.ones(3))
    assert forms[1] == "solve"


@pytest.mark.parametrize("bases", [3, 50])
def test_several_queries_take_little_more_memory_than_one(bases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the tiles of a worker nor the tables of gradients exceed their bounds, however many threads there are."""
    monkeypatch.setattr(packed, "LONGEST_ROW", 1 << 19)  # they are never done by tiles of items
    monkeypatch.setattr(tiles, "TILE_BYTES", 40_000)
    monkeypatch.setattr(itemtiles, "COPIES_BYTES", 1003 * 24 * 4)
    torch.set_num_threads(4)
    held: list[Tensor] = []
    make = tiles.BaseTiles

    def record(*arguments: object) -> tiles.BaseTiles:
        made = make(*arguments)
        held.extend([made.first, *made.other, *made.higher])
        return made

    monkeypatch.setattr(module, "BaseTiles", record)
    case = Case(rows=300, levels=(7,), bases=bases)
    assert_same(case.logits(), case.targets(), torch.ones(case.rows))
    workers = 2  # one with the table of gradients that is given back, one with a copy
    assert len(held) == workers * (bases + 1)
    one_row = (bases + 1) * held[0].stride(0) * 4
    assert sum(4 * tile.stride(0) * len(tile) for tile in held) <= workers * max(
        40_000, tiles.FEWEST_ROWS * 1008 * 4, one_row
    )


def test_targets_may_be_of_any_whole_type() -> None:
    case = Case(levels=(5,))
    whole = cross_entropy(case.logits(), case.targets(), torch.ones(case.rows))
    assert cross_entropy(case.logits(), case.targets().int(), torch.ones(case.rows)) == whole
    with pytest.raises(ValueError, match="36 targets"):
        cross_entropy(case.logits(), case.targets()[1:], torch.ones(case.rows))


@pytest.mark.parametrize("target", [-1, 1003])
def test_a_target_outside_the_catalogue_is_refused(target: int) -> None:
    case = Case()
    with pytest.raises(ValueError, match="targets"):
        cross_entropy(case.logits(), torch.full((case.rows,), target), torch.ones(case.rows))

"""The native counting of what reaches a target against the plain form."""

import pytest
import torch

from abaca.nn import reaching as looks
from abaca.nn.model import Model
from abaca.nn.reaching import reaching

from .models import COPYING, ITEMS, model_of, windows


@pytest.mark.parametrize("spec", COPYING)
@pytest.mark.parametrize(("encoder", "dim"), [("gru4rec", 10), ("sasrec", 32)])
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_counts_equal_the_plain_form(encoder: str, dim: int, spec: str, repeats: bool, threads: int) -> None:
    torch.set_num_threads(threads)
    model, (items, last) = model_of(encoder, spec, dim), windows(40, repeats)
    with torch.no_grad():
        encoded = model.encode(items, last)
        at = model.output.mix.at(encoded.states, last)
        which = torch.arange(39, -1, -3)
        ids, values = model.output.history(encoded.take(which))
        held = ids < ITEMS
        # between two of the history's logits, so that rounding decides nothing; below all, above all
        middle = values.squeeze(1).masked_fill(~held, torch.inf).sort(dim=1).values[:, :2].mean(dim=1)
        for logits in (middle.where(middle.isfinite(), -1e9), torch.full_like(middle, -1e9), middle * 0 + 1e9):
            logits = logits.nan_to_num(-1e9)
            expected = (held & (values.squeeze(1) >= logits[:, None])).sum(dim=1)
            assert reaching(model.output, encoded, at, which, logits).tolist() == expected.tolist()
        assert held.sum(dim=1).max() > 1


def excluding(wanted: int) -> Model:
    """A model whose predictions want `wanted` parts of Mi and of the 64 no others."""
    model = model_of("sasrec", "softmax+CPR:20+Mi", 64)
    copy = model.output.copy
    with torch.no_grad():
        copy.f_P.weight.mul_(0.1)
        copy.f_P.bias.fill_(1.0)
        parts = copy.f_L.weight[:, 64:]
        parts.copy_(-parts.abs())
        parts[:, torch.randperm(64, generator=torch.Generator().manual_seed(1))[:wanted]] *= -1
    return model


def expected_and_found(model: Model, share: float, far: int = 0) -> tuple[list[int], list[int]]:
    """Counts by the plain form and by `reaching`; of the history's logits this share is below the targets'.

    The last `far` windows of a hundred have targets far above.
    """
    items, last = windows(200, False)
    with torch.no_grad():
        encoded = model.encode(items, last)
        which = torch.arange(0, 200, 2)
        ids, values = model.output.history(encoded.take(which))
        held, values = ids < ITEMS, values.squeeze(1)
        logits = values.masked_fill(~held, torch.nan).nanquantile(share, dim=1) + 1e-3
        logits[100 - far :] += 1e4
        at = model.output.mix.at(encoded.states, last)
        found = reaching(model.output, encoded, at, which, logits)
    return (held & (values >= logits[:, None])).sum(dim=1).tolist(), found.tolist()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("wanted", "parts"), [(0, 16), (1, 16), (16, 16), (17, 32)])
def test_a_first_look_hears_what_is_wanted(
    wanted: int, parts: int, threads: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    heard = list[int]()
    count = looks._count
    monkeypatch.setattr(looks, "_count", lambda *given: heard.append(len(given[2].bias)) or count(*given))
    model = excluding(wanted)
    with torch.no_grad():
        model.output.copy.f_C.weight.mul_(20.0)  # histories whose items differ in more than the pointer says
    for share in (0.0, 0.5, 0.9, 1.0):
        heard.clear()
        expected, found = expected_and_found(model, share)
        assert found == expected
        if mode == "avx2":
            assert heard[0] == parts
            assert heard[-1] == 64 or not any(expected)
    assert not any(expected)


def test_what_a_first_look_cannot_settle_is_looked_at_again(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[int, int]]()
    count = looks._count
    monkeypatch.setattr(
        looks, "_count", lambda *given: seen.append((len(given[1].windows), len(given[2].bias))) or count(*given)
    )
    for far, looked in ((100, [(7, 16), (100, 16)]), (60, [(7, 16), (100, 16), (40, 64)]), (0, [(7, 16), (100, 64)])):
        seen.clear()
        expected, found = expected_and_found(excluding(8), 0.2, far)
        assert found == expected
        assert seen == (looked if mode == "avx2" else [])


def test_where_all_parts_are_wanted_there_is_one_look(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = list[int]()
    count = looks._count
    monkeypatch.setattr(looks, "_count", lambda *given: heard.append(len(given[2].bias)) or count(*given))
    expected, found = expected_and_found(excluding(64), 0.9)
    assert found == expected
    assert heard == ([64] if mode == "avx2" else [])


@pytest.mark.parametrize("what", ["states", "bias", "lowest"])
def test_what_a_first_look_leaves_out_is_counted_at_its_most(what: str) -> None:
    """Of the parts that are not heard some are wanted a little: theirs is what reaches the target."""
    dim, little = 64, torch.arange(16, 20)
    model, (items, last) = model_of("sasrec", "softmax+CP+Mi", dim), windows(30, False)
    mix, copy = model.output.mix.linear, model.output.copy
    with torch.no_grad():
        encoded = model.encode(items, last)
        encoded.states.copy_(encoded.states[0, 0].clone())  # the same everywhere
        encoded.states.mul_(1.0 if what == "states" else 1e-3)
        wanted = torch.zeros(dim)
        wanted[:16], wanted[little] = 1.0, {"states": 0.001, "bias": 0.02, "lowest": -0.02}[what]
        for zeroed in (copy.f_P.weight, copy.f_P.bias, copy.f_L.weight, copy.f_L.bias, copy.f_C.weight, mix.bias):
            zeroed.zero_()
        copy.f_P.bias[0], copy.f_L.weight[0, dim:] = 1.0, wanted
        mix.weight[little] = encoded.states[0, 0].flatten().repeat(3) if what == "states" else 0.0
        mix.bias[little] = {"states": 0.0, "bias": 5.0, "lowest": -0.7518}[what]
        at = model.output.mix.at(encoded.states, last)
        ids, values = model.output.history(encoded)
        held, values = ids < ITEMS, values.squeeze(1)
        logits = values.masked_fill(~held, -torch.inf).amax(dim=1) - 1e-3
        found = reaching(model.output, encoded, at, torch.arange(30), logits)
    assert found.tolist() == (held & (values >= logits[:, None])).sum(dim=1).tolist()
    assert found.min() > 0


def test_states_that_are_no_numbers_reach_everything() -> None:
    model, (items, last) = excluding(8), windows(20, False)
    with torch.no_grad():
        encoded = model.encode(items, last)
        at = model.output.mix.at(encoded.states, last)
        encoded.states[3, 0] = torch.nan
        found = reaching(model.output, encoded, at, torch.arange(20), torch.full((20,), 1e6))
    assert found[3] > 0
    assert found.sum() == found[3]

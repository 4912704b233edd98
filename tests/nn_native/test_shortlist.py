"""The native counting of what reaches a target, and ranks with it, against the full ranking."""

import pytest
import torch
from torch import Tensor

from abaca.nn import native, shortlist
from abaca.nn.logits import Question, answer
from abaca.nn.model import Model, make_model

SPECS = ("softmax+C", "softmax+C+Mi", "softmax+CP", "softmax+CPR:20", "softmax+CPR:20+Mi", "mos:3+CPR:5,20+Mi")
V = 300


def model_of(encoder: str, spec: str, dim: int) -> Model:
    torch.manual_seed(dim)
    options = {"dim": dim, "hidden": 16} if encoder == "gru4rec" else {"dim": dim, "window": 30}
    model = make_model(encoder, spec, V, **options).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=1.5 / weight.shape[-1] ** 0.5)
    return model


def windows(count: int, repeats: bool) -> tuple[Tensor, Tensor]:
    """Windows of 1 to 30 items and their last positions."""
    generator = torch.Generator().manual_seed(count)
    lengths = torch.randint(1, 31, (count, 1), generator=generator)
    items = torch.stack([torch.randperm(V, generator=generator)[:30] for _ in range(count)])
    items = items % 9 if repeats else items
    return items.where(torch.arange(30) < lengths, -1), lengths - 1


@pytest.mark.parametrize("spec", SPECS)
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
        held = ids < V
        # between two of the history's logits, so that rounding decides nothing; below all, above all
        middle = values.squeeze(1).masked_fill(~held, torch.inf).sort(dim=1).values[:, :2].mean(dim=1)
        for logits in (middle.where(middle.isfinite(), -1e9), torch.full_like(middle, -1e9), middle * 0 + 1e9):
            logits = logits.nan_to_num(-1e9)
            expected = (held & (values.squeeze(1) >= logits[:, None])).sum(dim=1)
            assert shortlist.reaching(model.output, encoded, at, which, logits).tolist() == expected.tolist()
        assert held.sum(dim=1).max() > 1


@pytest.mark.parametrize("spec", ["softmax", "softmax+Mi", "softmax+R:20", "repeatnet", *SPECS])
@pytest.mark.parametrize(("encoder", "dim"), [("gru4rec", 10), ("sasrec", 32)])
@pytest.mark.parametrize("repeats", [False, True])
def test_ranks_are_those_of_the_full_ranking(encoder: str, dim: int, spec: str, repeats: bool) -> None:
    model, (items, last) = model_of(encoder, spec, dim), windows(200, repeats)
    targets = torch.arange(200) * 7 % V
    nothing = torch.empty(200, 0, dtype=torch.long)
    full = answer(model.scores(items, last), Question(targets, 0, nothing, nothing)).rank
    for most in (1, 10, V):
        found = model.ranks(items, last, targets, most)
        agree = found == full.where(full <= most, V + 1)
        assert int((~agree).sum()) <= 1, "near ties are rare"
    assert (full <= 10).any()
    assert (full > 10).any()


def test_few_windows_and_few_positions() -> None:
    model = model_of("gru4rec", "softmax+CPR:20+Mi", 10)
    items, last = torch.tensor([[4]]), torch.tensor([[0]])
    nothing = torch.empty(1, 0, dtype=torch.long)
    for target in range(V):
        targets = torch.tensor([target])
        full = answer(model.scores(items, last), Question(targets, 0, nothing, nothing)).rank
        assert model.ranks(items, last, targets, V).tolist() == full.tolist()


def test_the_native_form_is_taken(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(native, "function", lambda name, get=native.function: taken.append(name) or get(name))
    model, (items, last) = model_of("sasrec", "softmax+CPR:20+Mi", 32), windows(40, False)
    model.ranks(items, last, torch.full((40,), V - 1), V)
    assert ("abaca_reaching" in taken) == (mode == "avx2")

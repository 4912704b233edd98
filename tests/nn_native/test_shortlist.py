"""Ranks up to a cutoff by the native forms against the full ranking."""

import pytest
import torch

from abaca.nn import native
from abaca.nn.logits import Question, answer

from .models import COPYING, ITEMS, model_of, windows


@pytest.mark.parametrize("spec", ["softmax", "softmax+Mi", "softmax+R:20", "repeatnet", *COPYING])
@pytest.mark.parametrize(("encoder", "dim"), [("gru4rec", 10), ("sasrec", 32)])
@pytest.mark.parametrize("repeats", [False, True])
def test_ranks_are_those_of_the_full_ranking(encoder: str, dim: int, spec: str, repeats: bool) -> None:
    model, (items, last) = model_of(encoder, spec, dim), windows(200, repeats)
    targets = torch.arange(200) * 7 % ITEMS
    nothing = torch.empty(200, 0, dtype=torch.long)
    full = answer(model.scores(items, last), Question(targets, 0, nothing, nothing)).rank
    for most in (1, 10, ITEMS):
        found = model.ranks(items, last, targets, most)
        agree = found == full.where(full <= most, ITEMS + 1)
        assert int((~agree).sum()) <= 1, "near ties are rare"
    assert (full <= 10).any()
    assert (full > 10).any()


def test_few_windows_and_few_positions() -> None:
    model = model_of("gru4rec", "softmax+CPR:20+Mi", 10)
    items, last = torch.tensor([[4]]), torch.tensor([[0]])
    nothing = torch.empty(1, 0, dtype=torch.long)
    for target in range(ITEMS):
        targets = torch.tensor([target])
        full = answer(model.scores(items, last), Question(targets, 0, nothing, nothing)).rank
        assert model.ranks(items, last, targets, ITEMS).tolist() == full.tolist()


def test_the_native_form_is_taken(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(native, "function", lambda name, get=native.function: taken.append(name) or get(name))
    model, (items, last) = model_of("sasrec", "softmax+CPR:20+Mi", 32), windows(40, False)
    model.ranks(items, last, torch.full((40,), ITEMS - 1), ITEMS)
    assert ("abaca_reaching" in taken) == (mode == "avx2")

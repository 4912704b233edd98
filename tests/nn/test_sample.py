"""A sampled loss: what is always in it, and that its normaliser is right on average."""

import math

import pytest
import torch

from abaca.histories import Windows
from abaca.nn.model import Model
from abaca.nn.sample import Sample

from .cases import CASES, ENCODERS, model_of

BATCH = CASES["repeats"].batch
WINDOWS = Windows(BATCH.items, BATCH.positions)


def in_batch() -> set[int]:
    return set(torch.cat([BATCH.items.flatten(), BATCH.targets.flatten()]).tolist()) - {-1}


def test_the_items_of_the_batch_are_always_drawn_and_the_others_stand_for_more() -> None:
    torch.manual_seed(0)
    for _ in range(20):
        sample = Sample.draw(BATCH.items, 1000, 0.1)
        items = sample.items.tolist()
        mine = set(BATCH.items.flatten().tolist()) - {-1}
        assert mine <= set(items)
        assert items == sorted(set(items))
        expected = [0.0 if item in mine else math.log(10) for item in items]
        torch.testing.assert_close(sample.bias, torch.tensor(expected))


def test_the_estimate_of_the_sum_is_unbiased() -> None:
    torch.manual_seed(1)
    weight = torch.rand(50).exp()
    found = [(weight[sample.items] * sample.bias.exp()).sum() for _ in range(4000)
             for sample in [Sample.draw(torch.tensor([3, 7, -1]), 50, 0.3)]]  # fmt: skip
    assert torch.stack(found).mean().item() == pytest.approx(weight.sum().item(), rel=0.01)


def whole_sample(model: Model) -> Sample:
    return Sample(torch.arange(model.catalogue), torch.zeros(model.catalogue))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("spec", ["softmax", "softmax+CP", "softmax+C+Mi", "mos:3+CP"])
def test_a_sample_of_everything_gives_the_loss_and_gradients_of_everything(
    encoder: str, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(encoder, spec)
    monkeypatch.setattr(Sample, "draw", lambda *_: whole_sample(model))
    losses, gradients = [], []
    for share in (1.0, 0.5):
        model.zero_grad()
        loss = model.loss(WINDOWS, BATCH.targets, share)
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("spec", ["softmax", "softmax+CP"])
def test_the_loss_of_a_sample_is_the_formula_over_it(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """log (Σ of the batch + Σ of the drawn ones times 1/ρ) − z_target, from logits of the whole catalogue."""
    model = model_of("gru4rec", spec, catalogue=20)
    others = sorted(set(range(model.catalogue)) - in_batch())
    drawn = others[::2]
    items = torch.tensor(sorted(in_batch() | set(drawn)))
    bias = torch.tensor([math.log(4) if item in drawn else 0.0 for item in items.tolist()])
    monkeypatch.setattr(Sample, "draw", lambda *_: Sample(items, bias))
    found = model.loss(WINDOWS, BATCH.targets, 0.25)
    encoded = model.encode(WINDOWS)
    logits = torch.cat([tile.logits for tile in model.output.scores(encoded).tiles()])
    targets = encoded.rows(BATCH.targets)
    expected = (logits[:, items] + bias).logsumexp(dim=1) - logits.gather(1, targets[:, None]).squeeze(1)
    assert found.item() == pytest.approx(expected.sum().item(), rel=1e-5)
    assert len(drawn) > 1

"""Every output layer with both encoders against the formulas: values and gradients, in float64."""

import pytest
import torch

from . import formula
from .cases import CASES, ENCODERS, PLAIN_SPECS, SPECS, Case, batch_of, final_logits, model_of, rows_of

EXACT = {"rtol": 1e-9, "atol": 1e-10}

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
each_spec = pytest.mark.parametrize("spec", SPECS)
each_plain_spec = pytest.mark.parametrize("spec", PLAIN_SPECS)
each_encoder = pytest.mark.parametrize("encoder", ENCODERS)


@each_case
@each_spec
@each_encoder
def test_loss_and_gradients_are_the_formula(encoder: str, spec: str, case: Case) -> None:
    model = model_of(encoder, spec, case.catalogue)
    weights = dict(model.named_parameters())
    expected = formula.loss(weights, encoder, spec, case.batch)
    expected_gradients = torch.autograd.grad(expected, weights.values(), materialize_grads=True)

    loss = model.loss(case.batch.windows, case.batch.targets)
    (0.7 * loss).backward()

    torch.testing.assert_close(loss, expected, **EXACT)
    for (name, weight), gradient in zip(weights.items(), expected_gradients, strict=True):
        found = torch.zeros_like(weight) if weight.grad is None else weight.grad
        torch.testing.assert_close(found, 0.7 * gradient, **EXACT, msg=lambda text, name=name: f"{name}: {text}")


@each_spec
@each_encoder
def test_every_weight_takes_part(encoder: str, spec: str) -> None:
    model = model_of(encoder, spec)
    model.loss(CASES["repeats"].batch.windows, CASES["repeats"].batch.targets).backward()
    idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert idle == []


@each_case
@each_spec
@each_encoder
def test_ranked_scores_are_the_formula(encoder: str, spec: str, case: Case) -> None:
    model = model_of(encoder, spec, case.catalogue)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    found = final_logits(model.scores(case.batch.windows))
    for row, (history, states, _) in zip(found, formula.rows(weights, encoder, case.batch), strict=True):
        expected = torch.tensor(formula.ranked_scores(weights, spec, history, states), dtype=torch.float64)
        if formula.read(spec).base == "repeatnet" and expected.isfinite().any():  # scores up to a constant
            row, expected = row.log_softmax(dim=0), expected.log_softmax(dim=0)
        torch.testing.assert_close(row, expected, **EXACT)


@each_plain_spec
@each_encoder
def test_scores_and_loss_are_one_model(encoder: str, spec: str) -> None:
    """Without nodup, the logits that rank give the probabilities that train."""
    model = model_of(encoder, spec)
    batch = CASES["repeats"].batch
    targets = torch.tensor([target for _, _, target in rows_of(batch)])
    log_probability = final_logits(model.scores(batch.windows)).log_softmax(dim=1)
    expected = -log_probability.gather(1, targets[:, None]).sum()
    torch.testing.assert_close(model.loss(batch.windows, batch.targets).detach(), expected, **EXACT)


@each_encoder
def test_the_weights_are_telling(encoder: str) -> None:
    """The cases would notice: probabilities are uneven, every level changes who is on top, histories matter."""
    batch = CASES["repeats"].batch
    model = model_of(encoder, "softmax+CPR:2,4,8")
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    highest, reordered = [], 0
    for history, states, _ in formula.rows(weights, encoder, batch):
        plain = formula.scores_of(weights, "softmax", history, states)
        levelled = formula.scores_of(weights, "softmax+R:2,4,8", history, states)
        small = formula.scores_of(weights, "softmax+R:2", history, states)
        reordered += formula.top(plain, 2) != formula.top(levelled, 2) != formula.top(small, 2)
        log_p = formula.log_probabilities(weights, "softmax+CPR:2,4,8", history, states)
        highest.append(float(max(log_p).exp()))
    assert sum(highest) / len(highest) > 3 / 14
    assert reordered >= len(highest) / 2


@pytest.mark.parametrize("spec", ["softmax+CPR:3", "mos:3+C", "repeatnet"])
def test_one_item_catalogue(spec: str) -> None:
    model = model_of("gru4rec", spec, catalogue=1)
    weights = dict(model.named_parameters())
    batch = batch_of([[0, 0]], [[0, 1]], [[0, 0]])
    expected = formula.loss(weights, "gru4rec", spec, batch)
    torch.testing.assert_close(model.loss(batch.windows, batch.targets), expected, **EXACT)


@each_plain_spec
@each_encoder
def test_nodup_leaves_training_untouched(encoder: str, spec: str) -> None:
    plain, ranked = model_of(encoder, spec), model_of(encoder, f"{spec}+nodup")
    ranked.load_state_dict(plain.state_dict())
    batch = CASES["repeats"].batch
    losses = [model.loss(batch.windows, batch.targets) for model in (plain, ranked)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == losses[1].item()
    for one, other in zip(plain.parameters(), ranked.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)

"""What a position may see: nothing after it, and all of a window's positions at once equal its prefixes one by one."""

import pytest
import torch

from abaca.histories import Windows

from .cases import ENCODERS, SPECS, model_of

each_spec = pytest.mark.parametrize("spec", SPECS)
each_encoder = pytest.mark.parametrize("encoder", ENCODERS)

WINDOW = [3, 5, 3, 8, 5, 3]
TARGETS = [5, 3, 11, 5, 3, 8]  # seen before, still to come, and outside


def loss_at(model: torch.nn.Module, window: list[int], position: int, target: int) -> float:
    """Loss of one prediction."""
    return float(
        model.loss(Windows(torch.tensor([window]), torch.tensor([[position]])), torch.tensor([[target]])).detach()
    )


@each_spec
@each_encoder
def test_a_later_item_changes_no_earlier_loss(encoder: str, spec: str) -> None:
    model = model_of(encoder, spec)
    for position, target in enumerate(TARGETS[:-1]):
        expected = loss_at(model, WINDOW, position, target)
        for later in (WINDOW[0], target, 12, -1):  # repeat the history, give the target away, anything, nothing
            changed = WINDOW[: position + 1] + [later] * (len(WINDOW) - position - 1)
            assert loss_at(model, changed, position, target) == pytest.approx(expected, rel=1e-11)


@each_spec
@each_encoder
def test_an_earlier_item_changes_later_losses(encoder: str, spec: str) -> None:
    """The other way round the loss must notice, or the test above would pass for a model that sees nothing."""
    model = model_of(encoder, spec)
    changed = [WINDOW[0], 9, *WINDOW[2:]]
    for position in (1, 2, 5):
        before, after = (loss_at(model, window, position, TARGETS[position]) for window in (WINDOW, changed))
        assert before != pytest.approx(after, rel=1e-6)


@each_spec
@each_encoder
def test_all_positions_equal_one_by_one(encoder: str, spec: str) -> None:
    model = model_of(encoder, spec)
    together = model.loss(Windows(torch.tensor([WINDOW]), torch.arange(len(WINDOW))[None]), torch.tensor([TARGETS]))
    one_by_one = [loss_at(model, WINDOW[: at + 1], at, target) for at, target in enumerate(TARGETS)]
    assert together.item() == pytest.approx(sum(one_by_one), rel=1e-11)


@each_spec
@each_encoder
def test_batch_order_does_not_matter(encoder: str, spec: str) -> None:
    model = model_of(encoder, spec)
    items = torch.tensor([WINDOW, [1, 1, 2, -1, -1, -1], [0, 4, 9, 9, 0, -1]])
    positions, targets = torch.tensor([[5, 2], [2, -1], [1, 4]]), torch.tensor([[3, 7], [1, -1], [0, 9]])
    order = torch.tensor([2, 0, 1])
    straight, shuffled = (
        gradients(model, items, positions, targets),
        gradients(model, items[order], positions[order], targets[order]),
    )
    torch.testing.assert_close(straight, shuffled, rtol=1e-10, atol=1e-11)


@each_spec
@each_encoder
def test_extra_padding_does_not_matter(encoder: str, spec: str) -> None:
    model = model_of(encoder, spec)
    items = torch.tensor([WINDOW, [1, 1, 2, -1, -1, -1]])
    positions, targets = torch.tensor([[5, 2], [2, 0]]), torch.tensor([[3, 7], [1, 2]])
    padded = [torch.nn.functional.pad(part, (0, 4), value=-1) for part in (items, positions, targets)]
    tight, wide = gradients(model, items, positions, targets), gradients(model, *padded)
    torch.testing.assert_close(tight, wide, rtol=1e-10, atol=1e-11)


def gradients(
    model: torch.nn.Module, items: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor
) -> list[torch.Tensor]:
    """Loss and all gradients."""
    loss = model.loss(Windows(items, positions), targets)
    found = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    return [loss.detach(), *found]


@each_spec
def test_a_batch_that_asks_nothing_costs_nothing(spec: str) -> None:
    model = model_of("gru4rec", spec)
    nothing = torch.full((2, 3), -1)
    loss, *found = gradients(model, torch.tensor([[1, 2, 1], [4, -1, -1]]), nothing, nothing)
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in found)

"""The gradients of one training step, from the windows of one process or of several.

Each process computes the gradients of its own windows, divided by the number of targets of all. Their sum is then the
gradient of one process that has the whole batch. `Group.add` sums them, not torch's DDP: that takes means, wraps
`forward`, and expects every process to have windows. Of a sampled loss all processes draw the same sample. So the step
is again that of one process, and only the sample's rows of the item table are sent.
"""

import numpy as np
import torch
from torch import Tensor

from abaca.data.batches import Batch
from abaca.nn.model import Model
from abaca.nn.sample import Sample
from abaca.training.group import Group

TABLE = "items.weight"


def set_gradients(model: Model, batch: Batch, share: float, group: Group, step: tuple[int, int]) -> float:
    """Set the gradients of a step's mean loss; the loss summed over its targets. `step` is the seed and its number."""
    generator, sample = _seed(group, step, model.device), None
    if batch.step is not None and share < 1:
        items = torch.from_numpy(batch.step.items).to(model.device)
        sample = Sample.draw(items, model.warm, share, generator)
    loss = model.items.weight.new_zeros(())
    if len(batch.targets):
        loss = _loss(model, batch, share, sample, generator)
        (loss / batch.total).backward()  # type: ignore[no-untyped-call]
    loss = loss.detach()
    if group.size > 1:
        _add_up(model, loss, sample, group)
    return loss.item()


def _loss(model: Model, batch: Batch, share: float, sample: Sample | None, generator: torch.Generator | None) -> Tensor:
    """The loss of this process's windows, summed over their targets."""
    windows = batch.windows.map(lambda part: torch.from_numpy(part).to(model.device))
    targets = torch.from_numpy(batch.targets).to(model.device)
    weights = None if batch.weights is None else torch.from_numpy(batch.weights).to(model.device)
    loss = model.loss(windows, targets, share, weights, sample=sample, generator=generator)
    if weights is None:
        return loss
    return loss * (batch.total / batch.weight)  # divided by the number of targets, it is their weighted mean


def _add_up(model: Model, loss: Tensor, sample: Sample | None, group: Group) -> None:
    """Replace the loss and all gradients by their sums over the processes."""
    gradients = {}
    for name, weight in model.named_parameters():
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        gradients[name] = weight.grad
    table = gradients[TABLE]
    if sample is not None:
        gradients[TABLE] = table[sample.items]
    group.add([loss, *gradients.values()])
    if sample is not None:
        table[sample.items] = gradients[TABLE]


def _seed(group: Group, step: tuple[int, int], device: torch.device) -> torch.Generator | None:
    """Seed what is drawn for windows, in each process anew; a generator for what is drawn for items, in all alike.

    Random numbers depend on seed, step and process then, so no process has a state to save, and another number of them
    can resume. One process alone draws everything from torch's generator, whose state is saved.
    """
    if group.size == 1:
        return None
    own, shared = (int(np.random.SeedSequence([*step, key]).generate_state(1)[0]) for key in (1 + group.rank, 0))
    torch.manual_seed(own)
    return torch.Generator(device).manual_seed(shared)

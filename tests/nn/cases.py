"""Models with telling weights and batches with repeats, that the tests of this folder share."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from abaca.histories import Windows
from abaca.nn.answers import Question
from abaca.nn.build import make_model
from abaca.nn.logits import Scores
from abaca.nn.model import Model

ENCODERS = ("gru4rec", "sasrec", "hstu")
SIZES = {
    "gru4rec": {"dim": 6, "hidden": 5, "dropout": 0.0},
    "sasrec": {"dim": 6, "inner": 7, "window": 12},
    "hstu": {"dim": 6, "blocks": 2, "reach": 4},
}

SPECS = (
    "softmax",
    "softmax+Mi",
    "softmax+C",
    "softmax+C+Mi",
    "softmax+CP",
    "softmax+R:3",
    "softmax+R:2,4,8",
    "softmax+CR:3",
    "softmax+CPR:3",
    "softmax+CPR:2,4,8",
    "softmax+CPR:3+Mi",
    "softmax+CPR:2,4,8+Mi",
    "softmax+nodup",
    "softmax+R:2,4,8+nodup",
    "softmax+CPR:3+Mi+nodup",
    "mos:3",
    "mos:3+Mi",
    "mos:3+C",
    "mos:3+R:3",
    "mos:3+CPR:2,4,8+Mi",
    "mos:3+CP+nodup",
    "mos-mix:3",
    "mos-mix:3+Mi",
    "mos-mix:3+nodup",
    "repeatnet",
    "repeatnet+Mi",
    "repeatnet+nodup",
    "repeatnet+Mi+nodup",
)


PLAIN_SPECS = tuple(dict.fromkeys(spec.removesuffix("+nodup") for spec in SPECS))


def times_of(items: Tensor) -> Tensor:
    """Times that follow from the items: an item takes 40 more each."""
    return (40 * items.clamp_min(0)).cumsum(1).double()


class Batch(NamedTuple):
    """What `Model.loss` takes."""

    items: Tensor  # (B, L), −1 after the end
    positions: Tensor  # (B, T), −1 for none
    targets: Tensor  # (B, T), −1 for none

    @property
    def windows(self) -> Windows:
        return Windows(self.items, self.positions, times_of(self.items))


class Case(NamedTuple):
    """A batch and the size of its catalogue."""

    catalogue: int
    batch: Batch


def batch_of(items: list[list[int]], positions: list[list[int]], targets: list[list[int]]) -> Batch:
    return Batch(torch.tensor(items), torch.tensor(positions), torch.tensor(targets))


CASES = {
    # Items that occur up to five times, item 0 (whose row padding borrows) among them; targets inside the history,
    # outside it, and later in the window but not yet seen; positions out of order and with gaps.
    "repeats": Case(
        14,
        batch_of(
            [
                [3, 5, 3, 3, 8, 5, 3],
                [1, 2, 9, 2, -1, -1, -1],
                [0, 0, 13, 13, 0, -1, -1],
                [7, -1, -1, -1, -1, -1, -1],
                [4, 4, 6, 4, 12, 10, 4],
            ],
            [[0, 1, 2, 3, 4, 5, 6], [3, -1, 0, 1, 2, -1, -1], [1, 4, -1, 3, 2, -1, -1], [0] + [-1] * 6, [-1] * 7],
            [[5, 3, 8, 8, 5, 3, 11], [9, -1, 2, 9, 0, -1, -1], [0, 13, -1, 0, 5, -1, -1], [7] + [-1] * 6, [-1] * 7],
        ),
    ),
    # Nothing repeats.
    "distinct": Case(
        14,
        batch_of(
            [[6, 0, 2, 9, 13], [11, 4, 7, -1, -1]],
            [[0, 2, 4], [2, 1, -1]],
            [[0, 5, 6], [11, 3, -1]],
        ),
    ),
    # A catalogue smaller than k, which one history exhausts.
    "exhausted": Case(
        5,
        batch_of(
            [[3, 1, 1, 0, 4, 2, 3], [2, 2, 2, -1, -1, -1, -1]],
            [[0, 2, 3, 4, 5, 6], [2, 1, 0, -1, -1, -1]],
            [[1, 0, 4, 1, 2, 3], [4, 2, 0, -1, -1, -1]],
        ),
    ),
}


def model_of(encoder: str, spec: str, catalogue: int = 14, seed: int = 0) -> Model:
    """A float64 model whose weights make probabilities far from even and levels that reorder items."""
    model = make_model(encoder, spec, catalogue, **SIZES[encoder]).double().eval()
    return redraw(model, seed)


def redraw(model: Model, seed: int, scale: float = 1.8) -> Model:
    """Draw all weights, norms and biases too: `scale` / √inputs wide."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            wide = scale / math.sqrt(weight.shape[1]) if name.endswith(".weight") and weight.dim() == 2 else 0.5
            if name in ("items.weight", "output.table.weight", "encoder.position.weight"):
                wide = 1.0
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * wide
            weight.copy_(drawn + 1 if "norm.weight" in name else drawn)
    return model


def final_logits(scores: Scores) -> Tensor:
    """All logits (N, V) at once."""
    return torch.cat([tile.logits[:, :-1].clone() for tile in scores.tiles()])


def question(rows: int, n: int = 5, **parts: Tensor) -> Question:
    """Ask for the n best and nothing else, unless told."""
    nothing = torch.empty(rows, 0, dtype=torch.long)
    asked = {"targets": torch.full((rows,), -1), "mass_of": nothing, "banned": nothing, **parts}
    return Question(n=n, **asked)


def rows_of(batch: Batch) -> list[tuple[list[int], int, int]]:
    """(window, position, target) of every row asked for, in the order of the rows."""
    rows = []
    for items, positions, targets in zip(*(part.tolist() for part in batch), strict=True):
        window = [item for item in items if item >= 0]
        rows += [(window, at, target) for at, target in zip(positions, targets, strict=True) if at >= 0]
    return rows

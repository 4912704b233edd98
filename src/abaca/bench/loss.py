"""The loss alone: each output layer with all its gradients, against the three matrix products of a softmax."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from abaca.bench.measure import Contender, Spent, timed
from abaca.errors import SpecError
from abaca.histories import Windows
from abaca.nn import ops
from abaca.nn.outputs import Encoded, make_output

LAYERS = {"softmax": "softmax", **{name: f"softmax+{name}" for name in ("C", "CP", "CPR:100", "CPR:20,100,500")}}
"""Contenders that are output layers, by name."""

TILE_ROWS, TILE_BYTES = 128, 64 << 20
"""Rows that the products alone take at a time, and the largest memory of their logits."""


@dataclass(frozen=True)
class LossBench:
    """Loss and gradients of `rows` positions, in histories with repeats, over a catalogue of `items`."""

    items: int = 50_000
    rows: int = 6400
    dim: int = 64
    history: int = 50

    def __post_init__(self) -> None:
        for name in ("items", "rows", "dim", "history"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.rows % self.history:
            raise SpecError(f"rows ({self.rows}) must be a multiple of history ({self.history})")

    @property
    def title(self) -> str:
        return f"Loss and all gradients: {self.rows:,} positions, {self.items:,} items, d = {self.dim}"

    def references(self, name: str) -> Mapping[str, str]:
        """Every contender is compared with the products alone and with softmax."""
        return {other: other for other in ("gemm", "softmax")}

    def contenders(self) -> Mapping[str, Contender]:
        data = Data(self)
        work: dict[str, Callable[[], None]] = {
            "gemm": partial(products, data),
            "softmax": partial(train, data, "softmax"),
            "softmax-materialised": partial(materialised, data),
            "softmax-chunked": partial(chunked, data),
        }
        work |= {name: partial(train, data, name) for name in LAYERS if name not in work}
        return {name: partial(data.spend, one) for name, one in work.items()}


class Data:
    """Random states in histories with repeats, an item table, and the output layers."""

    def __init__(self, size: LossBench) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).mul_(size.dim**-0.25).requires_grad_()

        batch = size.rows // size.history
        self.rows = size.rows
        self.table = normal(size.items, size.dim)
        self.states = normal(batch, size.history, 1, size.dim)  # (B, L, M, D)
        drawn = torch.rand(batch, size.history, generator=generator) ** 3 * size.items  # some items often
        self.items = drawn.long()
        self.embedded = self.table.detach()[self.items].requires_grad_()  # (B, L, D)
        self.targets = torch.randint(size.items, (size.rows,), generator=generator)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = {name: make_output(spec) for name, spec in LAYERS.items()}
            for layer in self.layers.values():
                layer.build(layers=1, dim=size.dim, catalogue=size.items)

    @property
    def encoded(self) -> Encoded:
        """All positions of all windows are predicted from."""
        positions = torch.arange(self.items.shape[1]).expand_as(self.items)
        return Encoded(self.states, self.embedded, Windows(self.items, positions), self.table)

    def spend(self, work: Callable[[], None]) -> Spent:
        """The cost of the work, without gradients from before."""
        weights = (weight for layer in self.layers.values() for weight in layer.parameters())
        for leaf in (self.table, self.states, self.embedded, *weights):
            leaf.grad = None
        return timed(work, self.rows)


def train(data: Data, name: str) -> None:
    """The library's loss in the form that is in use, and its backward pass."""
    data.layers[name].loss(data.encoded, data.targets).backward()  # type: ignore[no-untyped-call]


def products(data: Data) -> None:
    """The three matrix products alone, a tile of rows at a time."""
    queries, table = data.states.detach().flatten(0, 2), data.table.detach()
    grad_queries, grad_table = torch.empty_like(queries), torch.zeros_like(table)
    height = max(1, min(TILE_ROWS, TILE_BYTES // (4 * len(table)), len(queries)))
    memory = torch.empty(height, len(table))
    for start in range(0, len(queries), height):
        rows = slice(start, start + height)
        tile = memory[: len(queries[rows])]
        torch.mm(queries[rows], table.T, out=tile)
        torch.mm(tile, table, out=grad_queries[rows])
        grad_table.addmm_(tile.T, queries[rows])


def materialised(data: Data) -> None:
    """Softmax with all logits in memory."""
    (f_V,) = data.layers["softmax"].f_V  # type: ignore[misc]
    logits = f_V(data.states.flatten(0, 2)) @ data.table.T
    F.cross_entropy(logits, data.targets, reduction="sum").backward()  # type: ignore[no-untyped-call]


def chunked(data: Data) -> None:
    """Softmax in the library's plain form: torch alone, a few rows at a time."""
    with ops.form("plain"):
        train(data, "softmax")

"""The loss alone: every output layer with all its gradients, against the three matrix products it cannot avoid."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from abaca.bench.measure import Contender, Spent, timed
from abaca.errors import SpecError
from abaca.nn import ops
from abaca.nn.logits import Level, Logits, Overrides
from abaca.nn.ops.loss import cross_entropy
from abaca.nn.outputs.history import Slots

LAYERS: dict[str, tuple[bool, bool, tuple[int, ...]]] = {
    "softmax": (False, False, ()),
    "C": (True, False, ()),
    "CP": (True, True, ()),
    "CPR:100": (True, True, (100,)),
    "CPR:20,100,500": (True, True, (20, 100, 500)),
}
"""Whether a layer copies and points, and its rerank levels."""

MOST_LEVELS = 3

TILE_ROWS, TILE_BYTES = 128, 64 << 20
"""How many rows the products alone take at a time, and how much memory at most for their logits."""


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
        """Everything is compared with the products alone and with the fused softmax."""
        return {other: other for other in ("gemm", "softmax")}

    def contenders(self) -> Mapping[str, Contender]:
        data = Data(self)
        work = {
            "gemm": partial(products, data),
            "softmax": partial(fused, data, *LAYERS["softmax"]),
            "softmax-materialised": partial(materialised, data),
            "softmax-chunked": partial(chunked, data),
        }
        work |= {name: partial(fused, data, *layer) for name, layer in LAYERS.items() if name not in work}
        return {name: partial(data.spend, one) for name, one in work.items()}


class Data:
    """Projections of positions, in histories with repeats, and an item table."""

    def __init__(self, size: LossBench) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).mul_(size.dim**-0.25).requires_grad_()

        batch = size.rows // size.history
        self.size = size
        self.table = normal(size.items, size.dim)
        drawn = torch.rand(batch, size.history, generator=generator) ** 3 * size.items  # some items often
        self.items = drawn.long()
        self.embedded = self.table.detach()[self.items].requires_grad_()  # (B, L, D)
        self.f_V, self.f_C, self.f_P, self.f_L, *self.f_R = (
            normal(batch, size.history, size.dim) for _ in range(4 + MOST_LEVELS)
        )
        self.positions = torch.arange(size.history).expand(batch, -1)
        self.targets = torch.randint(size.items, (size.rows,), generator=generator)
        self.weights = torch.ones(size.rows)

    def spend(self, work: Callable[[], None]) -> Spent:
        """Do the work with no gradients from before."""
        for leaf in (self.table, self.embedded, self.f_V, self.f_C, self.f_P, self.f_L, *self.f_R):
            leaf.grad = None
        return timed(work, self.size.rows)

    def overrides(self, copy: bool, point: bool) -> Overrides:
        """What C, or C and P, write over the base logits."""
        owner = torch.arange(len(self.items)).repeat_interleave(self.size.history)
        reach = self.positions.flatten() + 1
        if not copy:
            return Overrides(self.items[:, :0], owner, reach, self.table.new_empty(self.size.rows, 0))
        slots, values = Slots.of(self.items, self.size.items), self.f_C @ self.embedded.transpose(1, 2)  # (B, L, L)
        if point:
            values = values + slots.mean(self.f_P @ self.f_L.transpose(1, 2), self.positions)
        return Overrides(slots.ids, owner, reach, values.flatten(0, 1))


def fused(data: Data, copy: bool, point: bool, ks: tuple[int, ...]) -> None:
    """The library's loss, in the form that is in use."""
    levels = tuple(Level(k, f.flatten(0, 1)) for k, f in zip(sorted(ks, reverse=True), data.f_R, strict=False))
    logits = Logits(data.f_V.flatten(0, 1).unsqueeze(1), data.table, levels, data.overrides(copy, point))
    cross_entropy(logits, data.targets, data.weights).backward()  # type: ignore[no-untyped-call]


def products(data: Data) -> None:
    """The three matrix products alone, a tile of rows at a time."""
    queries, table = data.f_V.detach().flatten(0, 1), data.table.detach()
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
    """Plain torch: all logits in memory."""
    logits = data.f_V.flatten(0, 1) @ data.table.T
    F.cross_entropy(logits, data.targets, reduction="sum").backward()  # type: ignore[no-untyped-call]


def chunked(data: Data) -> None:
    """The plain form of the library's softmax: torch alone, a few rows at a time."""
    with ops.form("plain"):
        fused(data, *LAYERS["softmax"])

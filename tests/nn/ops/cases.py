"""Logits of many shapes, which the tests give to both forms."""

from dataclasses import dataclass

import torch
from torch import Tensor

from abaca.nn.logits import Level, Logits, Overrides


@dataclass(frozen=True)
class Case:
    rows: int = 37
    catalogue: int = 1003
    dim: int = 24
    slots: int = 9
    levels: tuple[int, ...] = ()
    scale: float = 1.0
    seed: int = 0
    bases: int = 1

    def logits(self) -> Logits:
        """Random logits; a fifth of the slots is empty, as later occurrences of an item leave theirs."""
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        histories = max(1, self.rows // 4)
        ids = torch.stack([torch.randperm(self.catalogue, generator=generator)[: self.slots] for _ in range(histories)])
        ids = torch.nn.functional.pad(ids, (0, self.slots - ids.shape[1]), value=self.catalogue)
        empty = torch.rand(ids.shape, generator=generator) < 0.2
        overrides = Overrides(
            ids.masked_fill(empty, self.catalogue),
            torch.randint(histories, (self.rows,), generator=generator),
            torch.randint(self.slots + 1, (self.rows,), generator=generator),
            self.scale * normal(self.rows, self.slots),
        )
        levels = tuple(Level(k, normal(self.rows, self.dim)) for k in self.levels)
        table = self.scale * normal(self.catalogue, self.dim) / self.dim**0.5
        return Logits(normal(self.rows, self.bases, self.dim), table, levels, overrides)

    def targets(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randint(self.catalogue, (self.rows,), generator=generator)


CASES = {
    "base only": Case(slots=0),
    "history": Case(),
    "one level": Case(levels=(20,)),
    "levels, no history": Case(slots=0, levels=(50, 20, 7)),
    "levels and history": Case(levels=(50, 20, 7)),
    "levels of one size": Case(levels=(20, 20)),
    "levels ascending": Case(levels=(7, 20, 50)),
    "levels out of order": Case(levels=(20, 500, 7), slots=0),
    "k = 1": Case(levels=(1,)),
    "k one short of everything": Case(catalogue=61, levels=(60, 3)),
    "k is everything": Case(catalogue=61, levels=(61, 3)),
    "k beyond everything": Case(catalogue=61, levels=(500, 100, 20)),
    "many small groups": Case(catalogue=5000, levels=(12, 4)),
    "few items": Case(catalogue=5, slots=5, levels=(2,)),
    "one item": Case(catalogue=1, slots=1, levels=(1,)),
    "history beyond the catalogue": Case(catalogue=6, slots=11),
    "one row": Case(rows=1, levels=(10,)),
    "many tiles": Case(rows=700, catalogue=130, dim=8, levels=(16, 4)),
    "no rows": Case(rows=0, levels=(10,)),
    "three queries": Case(bases=3, slots=0),
    "three queries, levels and history": Case(bases=3, levels=(20, 5)),
    "two queries, many tiles": Case(rows=700, catalogue=130, dim=8, levels=(16, 4), bases=2),
    "several queries, no rows": Case(rows=0, bases=2),
    "one dimension": Case(dim=1, levels=(10,)),
    "odd dimensions": Case(dim=67, levels=(10,)),
    "sharp logits": Case(scale=40.0, levels=(50, 20, 7)),
    "flat logits": Case(scale=1e-4, levels=(50, 20, 7)),
    **{f"{catalogue} items": Case(catalogue=catalogue, levels=(9,)) for catalogue in (7, 8, 9, 31, 32, 33, 1024, 1025)},
}


def as_leaves(logits: Logits, dtype: torch.dtype) -> Logits:
    """The same numbers in another type, with gradients."""
    queries, table, values, *levels = (x.detach().to(dtype).requires_grad_() for x in logits.inputs)
    return Logits(
        queries,
        table,
        tuple(Level(level.k, query) for level, query in zip(logits.levels, levels, strict=True)),
        logits.overrides._replace(values=values),
    )


def settled(logits: Logits) -> Tensor:
    """Rows (N,) where the plain form chooses the same items in float32 and float64.

    Where two logits differ by less than rounding, another item is chosen, and results differ for a good reason.
    """
    same = torch.ones(logits.rows, dtype=torch.bool)
    for single, double in zip(_choices(logits), _choices(as_leaves(logits, torch.float64)), strict=True):
        same &= (single == double).all(dim=1)
    return same


def _choices(logits: Logits) -> list[Tensor]:
    """The items that each level of the plain form chooses (N, k), ascending."""
    parts = [[chosen.sort(dim=1).values for chosen in tile.chosen] for tile in logits.tiles()]
    return [torch.cat(part) for part in zip(*parts, strict=True)]

"""Similar items: those whose vectors point in the same direction."""

from typing import NamedTuple

import torch
from torch import Tensor

from abaca.data.catalogue import Catalogue, check_id
from abaca.errors import QueryError
from abaca.histories import Ints
from abaca.types import Id, whole_number

ALIKE = 0.2
"""Items with a lower cosine are not called alike in a reason."""


class SimilarItem(NamedTuple):
    """An item and the cosine of its vector and that of the query item."""

    id: Id
    name: str
    similarity: float


@torch.no_grad()
def similar_items(table: Tensor, catalogue: Catalogue, id: Id, n: int) -> list[SimilarItem]:
    """The n items whose rows of the item table (V, D) have the largest cosine with an item's row, without itself."""
    item, count = catalogue.index(check_id(id)), whole_number(n)
    if item is None or item >= catalogue.size:
        raise QueryError(f"the model does not know the item {id!r}; give an id of the log that it was trained on")
    if count is None or count < 1:
        raise QueryError(f"n must be at least 1, a whole number, got {n!r}")
    cosine = torch.cosine_similarity(table, table[item], dim=-1)  # (V,)
    cosine[item] = -torch.inf
    best = cosine.topk(min(count, catalogue.size - 1))
    return [
        SimilarItem(catalogue.ids[found], catalogue.name(found), similarity)
        for similarity, found in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


@torch.no_grad()
def nearest(table: Tensor, items: Ints, others: Ints, n: int) -> list[list[int]]:
    """For each item, at most n of the others by their cosine, nearest first; none whose cosine is below `ALIKE`."""
    rows, columns = (table[torch.from_numpy(chosen).to(table.device)] for chosen in (items, others))
    cosine = torch.cosine_similarity(rows[:, None], columns, dim=-1)  # (I, O)
    best = cosine.topk(min(n, len(others)), dim=1)
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[int(others[at]) for at, near in zip(*row, strict=True) if near >= ALIKE] for row in found]

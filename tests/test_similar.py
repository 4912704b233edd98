"""Similar items, against cosines computed one by one."""

import numpy as np
import pytest
import torch

from abaca.data.catalogue import Catalogue
from abaca.errors import QueryError
from abaca.similar import similar_items

TABLE = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
CATALOGUE = Catalogue([f"i{i}" for i in range(11)], 9, {"title": [f"Item {i}" for i in range(11)]})


def test_the_nearest_items_come_first() -> None:
    rows = TABLE.double().numpy()
    lengths = np.linalg.norm(rows, axis=1)
    cosine = {f"i{i}": float(rows[i] @ rows[2] / lengths[i] / lengths[2]) for i in range(9) if i != 2}
    wanted = sorted(cosine, key=lambda id: -cosine[id])
    found = similar_items(TABLE, CATALOGUE, "i2", 20)
    assert [near.id for near in found] == wanted
    assert [near.similarity for near in found] == pytest.approx([cosine[id] for id in wanted], abs=1e-6)
    assert found[0].name == f"Item {wanted[0][1:]}"
    assert similar_items(TABLE, CATALOGUE, "i2", 3) == found[:3]


def test_what_cannot_be_asked_is_refused() -> None:
    for id in ("tofu", "i9"):
        with pytest.raises(QueryError, match=f"does not know the item '{id}'"):
            similar_items(TABLE, CATALOGUE, id, 3)
    with pytest.raises(QueryError, match="n must be at least 1"):
        similar_items(TABLE, CATALOGUE, "i2", 0)

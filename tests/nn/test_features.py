"""Vectors from features: columns become entries, g is their weighted sum, and the loss reads e_x + g(x)."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from abaca.errors import SpecError
from abaca.histories import Windows
from abaca.nn.build import make_model
from abaca.nn.features import Described
from abaca.nn.item_columns import ItemFeatures, kind_of
from abaca.nn.model import Model

TABLE: dict[str, list[Any]] = {
    "brand": ["Acme", "Acme", "Best", "Best", "Best", None, "Acme", "Rare"],
    "tags": [["a", "b"], ["b"], ["a"], [], None, ["a", "b"], ["b", "c"], ["a"]],
    "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, None, 100.0],
    "title": ["red tea cup", "blue tea cup", "red pen", "green pen", None, "old red cup", "new tea pot", "pens"],
    "vector": [[1.0, 0.0], [0.0, 2.0], None, [1.0, 1.0], [0.0, 0.0], [3.0, 4.0], [1.0, 0.0], [0.5, 0.5]],
}
WARM = 6
WINDOWS = Windows(torch.tensor([[0, 1, 2, 3], [5, 5, -1, -1]]), torch.tensor([[1, 3], [1, -1]]))
TARGETS = torch.tensor([[4, 2], [0, -1]])


def described(dropout: float = 0.0, wanted: str = "brand,tags,price,title,vector") -> Described:
    found = ItemFeatures.of(wanted, TABLE, WARM)
    return Described(found, found.entries(TABLE, 8), WARM, dropout)


def small(features: Described | None) -> Model:
    torch.manual_seed(0)
    model = make_model(
        "sasrec", "softmax+CP", 8, features, dim=8, window=4, blocks=1, dropout=0.0, attention_dropout=0.0
    )
    if model.features is not None:
        torch.nn.init.normal_(model.features.weight)
    return model


def plain_g(features: Described, weight: Tensor) -> Tensor:
    """g as the sum that the docstring states."""
    starts, places, shares = features.entries
    rows = []
    for item in range(len(starts) - 1):
        row = torch.zeros(weight.shape[1])
        for at in range(starts[item], starts[item + 1]):
            row = row + float(shares[at]) * weight[places[at]]
        rows.append(row)
    return torch.stack(rows)


def test_the_kinds_of_columns_are_recognised() -> None:
    kinds = {name: kind_of([value for value in values if value is not None]) for name, values in TABLE.items()}
    assert kinds == {"brand": "category", "tags": "list", "price": "number", "title": "text", "vector": "vector"}
    assert kind_of(["Drama|War", "Comedy", "Drama"]) == "list"
    assert kind_of([[3, 17], [4, 5]]) == "list"


def test_entries_of_a_column_have_norm_one_and_unseen_values_have_none() -> None:
    features = ItemFeatures.of("brand,tags", TABLE, WARM)
    assert [column.known for column in features.columns] == [("Acme", "Best"), ("a", "b")]
    starts, places, shares = features.entries(TABLE, 8)
    rows = [list(zip(places[a:b], shares[a:b], strict=True)) for a, b in pairwise(starts)]
    half = pytest.approx(1 / math.sqrt(2))
    assert rows[0] == [(0, 1.0), (2, half), (3, half)]
    assert rows[4] == [(1, 1.0)]
    assert rows[6] == [(0, 1.0), (3, 1.0)]  # "c" is not of training
    assert rows[7] == [(2, 1.0)]  # nor is "Rare"


def test_numbers_fall_into_tenths_and_vectors_keep_their_direction() -> None:
    features = ItemFeatures.of("price,vector", {**TABLE, "price": [1, 1, 1, 1, 2, 3, 4, 5]}, 8)
    price, vector = features.columns
    assert price.known == pytest.approx((1.5, 3.6))  # 1 1 1 1, 2 3, 4 5
    assert [price.entries(value)[0][0] for value in (-5, 1, 3, 99)] == [0, 0, 1, price.width - 1]
    places, shares = vector.entries([3.0, 4.0])
    assert places == [0, 1]
    assert shares[0] / shares[1] == pytest.approx(0.75)


@pytest.mark.parametrize("values", [[*range(8)], [0] * 30 + [7, 8, 9], [1, 2], [*range(1000)], [1, 1, 2, 2, 2, 9]])
def test_every_tenth_has_values_of_two_items(values: list[int]) -> None:
    """A number of another item is then never in a tenth that nothing was learned of."""
    (price,) = ItemFeatures.of("price", {"price": values}, len(values)).columns
    counts = np.bincount([price.entries(value)[0][0] for value in values], minlength=price.width)
    assert counts.min() >= 2
    assert len(values) < 1000 or price.width == 10


def test_features_are_the_same_after_saving() -> None:
    features = ItemFeatures.of("brand,tags,price,title,vector", TABLE, WARM)
    again = ItemFeatures.from_json(features.to_json())
    assert again == features
    for ours, theirs in zip(features.entries(TABLE, 8), again.entries(TABLE, 8), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("colour", "no column 'colour'"), ("brand:set", "'set' of column 'brand'"), ("brand:number", "'brand' is one of")],
)
def test_wrong_columns_are_refused(wanted: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ItemFeatures.of(wanted, TABLE, WARM)


def test_an_output_layer_with_a_table_of_its_own_is_refused() -> None:
    with pytest.raises(SpecError, match="leave out features"):
        make_model("gru4rec", "repeatnet", 8, described())


def test_vectors_are_the_weighted_sums_of_features() -> None:
    features = described()
    model = small(features)
    assert model.features is not None
    wanted = plain_g(features, model.features.weight)
    torch.testing.assert_close(model.features.of(torch.arange(8)), wanted)
    torch.testing.assert_close(model.features.of_warm(), wanted[:WARM])
    assert not model.items.weight[WARM:].any()
    torch.testing.assert_close(model.eval().table, model.items.weight + wanted)
    torch.testing.assert_close(model.table[WARM:], wanted[WARM:])


@pytest.mark.parametrize("share", [1.0, 0.999999])
def test_gradients_are_those_of_a_plain_loop(share: float) -> None:
    features = described()
    model = small(features)
    assert model.features is not None
    model.loss(WINDOWS, TARGETS, share).backward()
    found = {name: weight.grad for name, weight in model.named_parameters()}
    other = small(features)
    assert other.features is not None
    table = (other.items.weight + plain_g(features, other.features.weight))[:WARM]
    encoded = other.encode(WINDOWS, table)
    other.output.loss(encoded, encoded.rows(TARGETS)).backward()
    for name, weight in other.named_parameters():
        torch.testing.assert_close(found[name], weight.grad, atol=1e-5, rtol=1e-4)


def test_dropped_items_are_known_by_features_alone() -> None:
    features = described(dropout=0.5)
    model = small(features)
    assert model.features is not None
    rows = torch.ones(1000, 3)
    kept = model.features.kept(rows)
    assert set(kept.sum(1).tolist()) == {0.0, 3.0}  # whole vectors
    assert 400 < int(kept[:, 0].sum()) < 600
    assert model.eval().features.kept(rows) is rows  # type: ignore[union-attr]


def test_evaluation_reads_the_weights_at_the_end_of_training() -> None:
    model = small(described()).eval()
    before = model.table
    assert model.eval().table is before
    model.train()
    with torch.no_grad():
        model.items.weight[0] += 1
    torch.testing.assert_close(model.eval().table[0], before[0] + 1)


def test_a_model_without_features_has_the_weights_that_it_had() -> None:
    names = set(small(None).state_dict())
    assert set(small(described()).state_dict()) - names == {"features.weight"}
    assert not [name for name in names if "feature" in name or "ranking" in name]

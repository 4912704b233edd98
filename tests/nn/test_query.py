"""Queries with and without Mi, and the slots of a history: against their definitions."""

import pytest
import torch

from abaca.nn.outputs.encoded import pick
from abaca.nn.outputs.history import Slots
from abaca.nn.outputs.query import LastState, MultiInput, make_query


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("layers", [1, 2])
def test_mi_reads_the_last_three_positions_of_all_layers(length: int, layers: int) -> None:
    torch.manual_seed(length)
    states = torch.randn(3, length, layers, 4, dtype=torch.float64)
    query = MultiInput(layers, 4).double()
    made = query(states)
    for position in range(length):
        near = [
            states[:, j].flatten(1) if j >= 0 else torch.zeros(3, layers * 4) for j in range(position - 2, position + 1)
        ]
        mixed = torch.nn.functional.gelu(query.linear(torch.cat(near, dim=1)))
        torch.testing.assert_close(made[:, position], torch.cat([states[:, position, -1], mixed], dim=1))


@pytest.mark.parametrize("multi_input", [False, True])
@pytest.mark.parametrize("positions", [[[0], [6], [-1]], [[0, 6, 1], [3, -1, 0], [2, 5, 4]]])
def test_queries_of_some_positions(multi_input: bool, positions: list[list[int]]) -> None:
    torch.manual_seed(0)
    query, states = make_query(multi_input, 2, 4).double(), torch.randn(3, 7, 2, 4, dtype=torch.float64)
    at = torch.tensor(positions)
    torch.testing.assert_close(query.at(states, at), pick(query(states), at), rtol=1e-12, atol=1e-12)
    assert isinstance(query, MultiInput if multi_input else LastState)


def test_slots_hold_the_mean_over_the_visible_occurrences() -> None:
    slots = Slots.of(torch.tensor([[5, 2, 5, 5, -1]]), empty=9)
    assert slots.ids.tolist() == [[5, 2, 9, 9, 9]]
    found = slots.mean(torch.tensor([[[1.0, 2.0, 4.0, 7.0, 0.0]] * 3]), torch.tensor([[3, 2, 0]]))
    assert found[0, :, 0].tolist() == [4.0, 2.5, 1.0]
    assert found[0, :2, 1].tolist() == [2.0, 2.0]

"""The contenders of the loss benchmark compute the same function in different ways."""

import pytest
import torch

from abaca.bench.loss import Data, LossBench, chunked, materialised, products, train
from abaca.errors import SpecError

SIZE = LossBench(items=40, rows=60, dim=8, history=20)
NAMES = ["gemm", "softmax", "softmax-materialised", "softmax-chunked", "C", "CP", "CPR:100", "CPR:20,100,500"]


def test_the_contenders_are_those_that_the_documents_name() -> None:
    contenders = LossBench(items=600, rows=20, dim=8, history=10).contenders()
    assert list(contenders) == NAMES
    assert {contenders[name]().targets for name in NAMES} == {20}


def test_fused_chunked_and_materialised_softmax_give_equal_gradients() -> None:
    gradients = []
    for way in (lambda data: train(data, "softmax"), chunked, materialised):
        data = Data(SIZE)
        way(data)
        assert data.table.grad is not None
        assert data.states.grad is not None
        gradients.append(torch.cat([data.table.grad, data.states.grad.flatten(0, 2)]))
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


@pytest.mark.parametrize("name", ["C", "CP", "CPR:100", "CPR:20,100,500"])
def test_a_layer_gives_gradients_to_everything_it_is_made_of(name: str) -> None:
    data = Data(LossBench(items=600, rows=60, dim=8, history=20))
    train(data, name)
    assert data.embedded.grad is not None
    assert all(weight.grad is not None for weight in data.layers[name].parameters())
    data.spend(lambda: products(data))
    assert data.embedded.grad is None


def test_rows_that_fill_no_history_are_refused() -> None:
    with pytest.raises(SpecError, match="multiple of history"):
        LossBench(rows=70, history=50)
    with pytest.raises(SpecError, match="items must be above 0"):
        LossBench(items=0)

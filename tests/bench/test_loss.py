"""What the loss benchmark runs is the same function, made in different ways."""

import pytest
import torch

from abaca.bench.loss import LAYERS, Data, LossBench, chunked, fused, materialised, products
from abaca.errors import SpecError
from abaca.nn import ops

SIZE = LossBench(items=40, rows=60, dim=8, history=20)
NAMES = ["gemm", "softmax", "softmax-materialised", "softmax-chunked", "C", "CP", "CPR:100", "CPR:20,100,500"]


def test_the_contenders_are_those_that_the_documents_name() -> None:
    contenders = LossBench(items=600, rows=20, dim=8, history=10).contenders()
    assert list(contenders) == NAMES
    assert {contenders[name]().targets for name in NAMES} == {20}


def test_fused_chunked_and_materialised_softmax_give_equal_gradients() -> None:
    gradients = []
    for way in (lambda data: fused(data, *LAYERS["softmax"]), chunked, materialised):
        data = Data(SIZE)
        way(data)
        assert data.table.grad is not None
        assert data.f_V.grad is not None
        gradients.append(torch.cat([data.table.grad, data.f_V.grad.flatten(0, 1)]))
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


@pytest.mark.parametrize("name", ["C", "CP", "CPR:100", "CPR:20,100,500"])
def test_a_layer_reaches_the_projections_it_is_made_of(name: str) -> None:
    data = Data(LossBench(items=600, rows=60, dim=8, history=20))
    copy, point, ks = LAYERS[name]
    fused(data, copy, point, ks)
    reached = [leaf.grad is not None for leaf in (data.f_C, data.f_P, data.f_L, *data.f_R)]
    assert reached == [copy, point, point, *(place < len(ks) for place in range(3))]


def test_the_plain_form_is_switched_on_for_its_own_run_only() -> None:
    with ops.form("portable"):
        chunked(Data(SIZE))
        assert ops.instructions() in ("portable", None)
        products(Data(SIZE))


def test_rows_that_fill_no_history_are_refused() -> None:
    with pytest.raises(SpecError, match="multiple of history"):
        LossBench(rows=70, history=50)
    with pytest.raises(SpecError, match="items must be above 0"):
        LossBench(items=0)

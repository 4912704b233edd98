"""The native product against torch's own in float64."""

import pytest
import torch

from abaca.nn import native
from abaca.nn.product import FEWEST_ROWS, MOST_BYTES, PANEL, Product, panels_of, room


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 48, 49, 103])
@pytest.mark.parametrize(("columns", "dim"), [(1, 1), (15, 3), (16, 64), (17, 20), (192, 64), (301, 33)])
def test_equals_torch(rows: int, columns: int, dim: int, mode: str) -> None:
    torch.manual_seed(rows)
    left, matrix = torch.randn(rows, dim), torch.randn(columns, dim)
    made, panels = room(rows, columns), panels_of(matrix)
    factors = left.data_ptr(), rows, dim, panels.data_ptr(), columns
    native.function("abaca_multiply")(*factors, made.data_ptr(), made.stride(0), mode == "portable")
    torch.testing.assert_close(made.double(), left.double() @ matrix.double().T, rtol=1e-5, atol=1e-5)


def test_many_rows_go_the_native_way_where_it_is_the_faster_one(mode: str) -> None:
    left, matrix = torch.randn(70, 8), torch.randn(20, 8)
    product = Product(matrix, 70)
    assert (product.panels is not None) == (mode == "avx2")
    made = torch.cat([product(part, room(len(part), 20)) for part in left.split(32)])
    torch.testing.assert_close(made, left @ matrix.T)
    torch.testing.assert_close(product(left[::2], room(35, 20)), left[::2] @ matrix.T)


def test_few_rows_large_matrices_and_other_types_are_torchs() -> None:
    assert Product(torch.randn(20, 8), FEWEST_ROWS - 1).panels is None
    assert Product(torch.empty(MOST_BYTES // 4 + 1, 1), 100).panels is None
    double = Product(torch.ones(3, 2, dtype=torch.float64), 100)
    assert double.panels is None
    assert double(torch.ones(1, 2, dtype=torch.float64), torch.empty(1, 3, dtype=torch.float64)).tolist() == [[2.0] * 3]


def test_memory_has_room_for_whole_panels() -> None:
    made = room(3, PANEL + 1)
    assert made.shape == (3, PANEL + 1)
    assert made.stride() == (2 * PANEL, 1)

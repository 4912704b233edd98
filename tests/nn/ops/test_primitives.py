"""Top-k and the exponential, the two things the row pass computes by itself."""

import pytest
import torch
from torch import Tensor

from abaca.nn.ops.library import function


def top_k(values: Tensor, k: int, instructions: str) -> list[int]:
    """The library's choice, ascending."""
    n = len(values)
    groups, kept = torch.empty(n), torch.empty(n)
    candidates, places = torch.empty(n + 8, dtype=torch.int32), torch.empty(n + 8, dtype=torch.int32)
    found = function("abaca_top_k")(
        values.data_ptr(),
        n,
        k,
        instructions == "portable",
        groups.data_ptr(),
        candidates.data_ptr(),
        kept.data_ptr(),
        places.data_ptr(),
    )
    return sorted(places[:found].tolist())


def by_sorting(values: Tensor, k: int) -> list[int]:
    """The k highest; of equal ones those that stand first."""
    return sorted(values.sort(descending=True, stable=True).indices[:k].tolist())


def rows() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(5003, generator=generator)
    sprinkled = normal.clone()
    sprinkled[::97], sprinkled[5::101] = torch.inf, -torch.inf
    return {
        "normal": normal,
        "far from zero": normal + 1e6,
        "one outlier": torch.cat([normal, torch.tensor([1e30])]),
        "wide": normal * torch.logspace(-30, 30, 5003),
        "denormal": normal * 1e-42,
        "whole numbers": (3 * normal).round(),
        "signs of zero": torch.where(normal > 0, 0.0, -0.0),
        "all equal": torch.full((1000,), 2.5),
        "two values": (normal > 1).float(),
        "infinities": sprinkled,
        "all minus infinity": torch.full((777,), -torch.inf),
        "ascending": torch.arange(4000.0),
        "descending": -torch.arange(4000.0),
        "few": normal[:7],
        "eight": normal[:8],
        "nine": normal[:9],
    }


@pytest.mark.parametrize("name", rows())
@pytest.mark.parametrize("k", [1, 2, 8, 20, 100, 500, 1999])
def test_top_k_is_exact(name: str, k: int, instructions: str) -> None:
    values = rows()[name]
    assert top_k(values, k, instructions) == by_sorting(values, k)


@pytest.mark.parametrize("seed", range(20))
def test_top_k_is_exact_among_many_ties(seed: int, instructions: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 3000, (), generator=generator))
    values = torch.randint(-4, 5, (n,), generator=generator).float()
    for k in (1, n // 7, n // 3, n // 2, n - 1, n):
        if k:
            assert top_k(values, k, instructions) == by_sorting(values, k)


def test_top_k_passes_over_what_is_no_number(instructions: str) -> None:
    values = torch.arange(500.0)
    values[::2] = torch.nan
    assert top_k(values, 3, instructions) == [495, 497, 499]
    assert len(top_k(torch.full((500,), torch.nan), 3, instructions)) < 3


def test_top_k_stays_within_bounds_where_denormals_are_zero(instructions: str) -> None:
    values = rows()["denormal"]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        found = {k: top_k(values, k, instructions) for k in (1, 20, 500)}
    finally:
        torch.set_flush_denormal(False)
    assert all(len(set(places)) == k for k, places in found.items())


def exp(values: Tensor, shift: float, instructions: str) -> tuple[Tensor, float]:
    values = values.clone()
    total = function("abaca_exp")(values.data_ptr(), len(values), shift, instructions == "portable")
    return values, float(total)


def test_exp_is_exact_to_2e_7(instructions: str) -> None:
    values = torch.linspace(-87.3, 0, 1_000_003)
    got, total = exp(values, 0.0, instructions)
    expected = values.double().exp()
    assert float(((got - expected) / expected).abs().max()) < 2e-7
    assert total == pytest.approx(float(got.double().sum()), rel=1e-6)


def test_exp_of_the_highest_is_one_and_far_below_it_zero(instructions: str) -> None:
    got, _ = exp(torch.tensor([5.0, -83.0, -1e30, -torch.inf, torch.nan]), 5.0, instructions)
    assert got[0] == 1
    assert got[1:4].tolist() == [0, 0, 0]
    assert got[4].isnan()

"""Every test of this folder runs with both sets of primitives, and is skipped where the library is not built."""

from collections.abc import Iterator

import pytest
import torch

from abaca.nn import ops
from abaca.nn.ops.library import library


@pytest.fixture(autouse=True, params=["avx2", "portable"])
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    if library() is None:
        pytest.skip("the native library is not built: there was no C compiler at install")
    with ops.form("portable" if request.param == "portable" else "native"):
        if ops.instructions() != request.param:
            pytest.skip(f"this processor has no {request.param}")
        yield request.param


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Tests may set torch's number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)

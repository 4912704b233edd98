"""Every test of this folder runs with both sets of primitives, and is skipped where the library is not built."""

from collections.abc import Iterator

import pytest
import torch

from abaca.nn import native


@pytest.fixture(autouse=True, params=["avx2", "portable"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if native.library() is None:
        pytest.skip("the native row pass is not built: there was no C compiler at install")
    monkeypatch.setenv(native.SWITCH, "portable" if request.param == "portable" else "1")
    if native.mode() != request.param:
        pytest.skip(f"this processor has no {request.param}")
    return str(request.param)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Tests may set torch's number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)

"""A library that was built from other sources is not called."""

import pytest

from abaca.nn import native


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    assert native.mode() == mode
    monkeypatch.setattr(native, "ABI", native.ABI + 1)
    native.library.cache_clear()
    try:
        with pytest.warns(UserWarning, match="built from other sources and is not used"):
            assert native.mode() is None
    finally:
        native.library.cache_clear()

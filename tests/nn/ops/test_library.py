"""The switch between the forms, and a library that was built from other sources."""

import pytest

from abaca.errors import SpecError
from abaca.nn import ops
from abaca.nn.ops import library as module


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch, instructions: str) -> None:
    assert ops.instructions() == instructions
    monkeypatch.setattr(module, "ABI", module.ABI + 1)
    module.library.cache_clear()
    try:
        with pytest.warns(UserWarning, match="built from other sources and is not used"):
            assert ops.instructions() is None
    finally:
        module.library.cache_clear()


def test_a_block_sets_the_form_and_restores_it(instructions: str) -> None:
    with ops.form("plain"):
        assert ops.instructions() is None
        with ops.form("portable"):
            assert ops.instructions() == "portable"
        assert ops.instructions() is None
    assert ops.instructions() == instructions


@pytest.mark.parametrize(
    ("native", "triton", "form"),
    [
        (None, None, "native"),
        ("1", "0", "native"),
        ("0", None, "plain"),
        ("portable", None, "portable"),
        (None, "1", "triton"),
        ("0", "1", "plain"),
    ],
)
def test_the_environment_is_read_once(
    native: str | None, triton: str | None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_form", None)
    for name, value in (("ABACA_NATIVE", native), ("ABACA_TRITON", triton)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert module.current_form() == form
    monkeypatch.setenv("ABACA_NATIVE", "perhaps")
    assert module.current_form() == form


@pytest.mark.parametrize("name", ["ABACA_NATIVE", "ABACA_TRITON"])
def test_another_value_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_form", None)
    monkeypatch.setenv(name, "perhaps")
    with pytest.raises(SpecError, match=f"got {name}='perhaps', expected 0 or 1"):
        module.current_form()

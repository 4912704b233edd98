"""The native library, and the switch between the forms of every operation.

`ABACA_NATIVE=0` selects plain torch, `ABACA_NATIVE=portable` the library without AVX2. `ABACA_TRITON=1` selects Triton
for the loss on a GPU. Both variables are read once.
"""

import ctypes
import functools
import importlib.machinery
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_double, c_float, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from abaca.errors import SpecError

if TYPE_CHECKING:
    from torch import Tensor

Form = Literal["plain", "native", "portable", "triton"]
"""`triton` is `native`, but for the loss on a GPU."""

_form: Form | None = None


def _integers(*names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, c_int64) for name in names)


def _pointers(*names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, c_void_p) for name in names)


class LogitsStruct(ctypes.Structure):
    """`Logits` of `rowpass.h`."""

    _fields_ = (
        *_integers("catalogue", "dim", "slots", "levels"),
        *_pointers("table", "ids", "history_of_row", "visible", "values"),
        ("level_k", POINTER(c_int64)),
        ("queries", POINTER(c_void_p)),
        ("portable", c_int64),
        ("added", c_int64),
        *_pointers("added_ids", "added_factor", "added_bonus"),
    )


class LossStruct(ctypes.Structure):
    """`Loss` of `rowpass.h`."""

    _fields_ = (
        *_pointers("targets", "weights", "losses", "scale", "grad_values"),
        ("grad_queries", POINTER(c_void_p)),
    )


class RunningStruct(ctypes.Structure):
    """`Running` of `itemtiles.c`."""

    _fields_ = (
        ("room", c_int64),
        *_pointers("sorted", "slots", "shift", "sum", "hit", "threshold", "count"),
        *_pointers("items", "values", "levels", "base_target"),
    )


class QuestionStruct(ctypes.Structure):
    """`Question` of `ranking.c`."""

    _fields_ = (
        *_integers("n", "mass_width", "banned_width", "only_width"),
        *_pointers("targets", "mass_of", "banned", "only"),
        *_pointers("rank", "items", "logits", "partitions", "normaliser", "mass", "ahead"),
    )


class DropoutStruct(ctypes.Structure):
    """`Dropout` of `primitives.h`."""

    _fields_ = (("seed", c_uint64), ("dropped", c_int64), ("scale", c_float))


class AttentionStruct(ctypes.Structure):
    """`Attention` of `attention.c`."""

    _fields_ = (
        *_integers("length", "heads", "dim", "row", "kinds"),
        *_pointers("packed", "places", "times", "buckets", "normaliser"),
        ("dropout", DropoutStruct),
        ("portable", c_int64),
    )


class AttentionGradientsStruct(ctypes.Structure):
    """`Gradients` of `attention.c`."""

    _fields_ = _pointers("mixed", "grad_mixed", "packed", "places", "times")


_LOSS = [POINTER(LogitsStruct), POINTER(LossStruct)]
_RUNNING = [*_LOSS, POINTER(RunningStruct)]

ABI = 7
"""Rises with every change of `SIGNATURES` or a structure; the library exports a function of this number."""

SIGNATURES = {
    "abaca_loss_words": (c_int64, [POINTER(LogitsStruct), c_int64]),
    "abaca_uses_avx2": (c_int64, []),
    "abaca_loss_rows": (None, [*_LOSS, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_void_p]),
    "abaca_items_bytes": (c_int64, [POINTER(LogitsStruct), POINTER(RunningStruct), c_int64]),
    "abaca_items_read": (None, [*_RUNNING, *[c_int64] * 4, c_void_p, c_int64, c_void_p]),
    "abaca_items_settle": (None, [*_RUNNING, c_int64, c_int64, c_int64, c_void_p]),
    "abaca_items_share": (
        None,
        [*_RUNNING, *[c_int64] * 4, c_void_p, c_int64, POINTER(c_void_p), c_void_p, c_void_p],
    ),
    "abaca_answer_bytes": (c_int64, [POINTER(LogitsStruct), POINTER(QuestionStruct)]),
    "abaca_answer_rows": (
        None,
        [POINTER(LogitsStruct), POINTER(QuestionStruct), c_int64, c_int64, c_void_p, c_int64, c_void_p],
    ),
    "abaca_dropout": (None, [c_void_p, c_void_p, c_int64, POINTER(DropoutStruct), c_int64]),
    "abaca_attention_floats": (c_int64, [POINTER(AttentionStruct)]),
    "abaca_attend": (None, [POINTER(AttentionStruct), c_int64, c_int64, c_void_p, c_void_p]),
    "abaca_attend_backward": (
        None,
        [POINTER(AttentionStruct), c_int64, c_int64, POINTER(AttentionGradientsStruct), c_void_p],
    ),
    "abaca_buckets": (None, [c_void_p, c_int64, c_int64, c_int64, c_void_p]),
    "abaca_gru_step": (None, [c_int64, c_int64, *[c_void_p] * 4, c_int64]),
    "abaca_gru_backward": (None, [c_int64, c_int64, *[c_void_p] * 5, c_int64]),
    "abaca_top_k": (c_int64, [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_void_p]),
    "abaca_exp": (c_double, [c_void_p, c_int64, c_float, c_int64]),
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """The loaded library; None where the package was built without a compiler."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).parent / f"_native{suffix}"
        if path.exists():
            loaded = ctypes.CDLL(str(path))
            if getattr(loaded, f"abaca_abi_{ABI}", None) is None:
                warnings.warn(f"{path.name} was built from other sources and is not used; reinstall", stacklevel=2)
                return None
            for name, (result, arguments) in SIGNATURES.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
            return loaded
    return None


def function(name: str) -> Callable[..., Any]:
    """A function of the library, which must be loaded."""
    return getattr(library(), name)  # type: ignore[no-any-return]


@contextmanager
def form(name: Form) -> Iterator[None]:
    """Every operation in one form within a `with` block."""
    global _form
    before, _form = current_form(), name
    try:
        yield
    finally:
        _form = before


def current_form() -> Form:
    """The form that was chosen; an operation that the form does not support falls back to plain torch."""
    global _form
    if _form is None:
        native = _variable("ABACA_NATIVE", {"": "native", "0": "plain", "1": "native", "portable": "portable"})
        triton = _variable("ABACA_TRITON", {"": native, "0": native, "1": "triton"})
        _form = triton if native == "native" else native
    return _form


def _variable(name: str, forms: dict[str, Form]) -> Form:
    value = os.environ.get(name, "")
    if value not in forms:
        raise SpecError(f"got {name}={value!r}, expected {' or '.join(filter(None, forms))}")
    return forms[value]


def instructions() -> Literal["avx2", "portable"] | None:
    """The instructions that native code uses; None where plain torch is used."""
    loaded = None if current_form() == "plain" else library()
    if loaded is None:
        return None
    return "avx2" if current_form() != "portable" and loaded.abaca_uses_avx2() else "portable"


def is_portable() -> bool:
    """Whether the library is called with its portable primitives."""
    return instructions() == "portable"


def native_supports(*tensors: "Tensor") -> bool:
    """Whether native code can read these: float32 on the CPU, outside of a tracer and of autocast, with a library."""
    import torch  # late: `abaca --version` imports this module and needs no torch

    fits = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    elsewhere = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return fits and not elsewhere and instructions() is not None

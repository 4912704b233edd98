"""The native row pass: finds the library that the package was built with and says how to call it.

`ABACA_NATIVE=0` keeps to torch, `ABACA_NATIVE=portable` to the library's plain C.
"""

import ctypes
import functools
import importlib.machinery
import os
import warnings
from collections.abc import Callable
from ctypes import POINTER, c_double, c_float, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Literal

from abaca.errors import SpecError

Mode = Literal["avx2", "portable"]

SWITCH = "ABACA_NATIVE"


class LogitsStruct(ctypes.Structure):
    """`Logits` of `rowpass.h`."""

    _fields_ = (
        ("catalogue", c_int64),
        ("dim", c_int64),
        ("slots", c_int64),
        ("levels", c_int64),
        ("table", c_void_p),
        ("ids", c_void_p),
        ("owner", c_void_p),
        ("reach", c_void_p),
        ("values", c_void_p),
        ("level_k", POINTER(c_int64)),
        ("queries", POINTER(c_void_p)),
        ("portable", c_int64),
    )


class LossStruct(ctypes.Structure):
    """`Loss` of `rowpass.h`."""

    _fields_ = (
        ("targets", c_void_p),
        ("weights", c_void_p),
        ("losses", c_void_p),
        ("scale", c_void_p),
        ("grad_values", c_void_p),
        ("grad_queries", POINTER(c_void_p)),
    )


class RunningStruct(ctypes.Structure):
    """`Running` of `itemtiles.c`."""

    _fields_ = (
        ("room", c_int64),
        ("sorted", c_void_p),
        ("slots", c_void_p),
        ("shift", c_void_p),
        ("sum", c_void_p),
        ("hit", c_void_p),
        ("threshold", c_void_p),
        ("count", c_void_p),
        ("items", c_void_p),
        ("values", c_void_p),
        ("levels", c_void_p),
        ("base_target", c_void_p),
    )


class QuestionStruct(ctypes.Structure):
    """`Question` of `ranking.c`."""

    _fields_ = (
        ("n", c_int64),
        ("mass_width", c_int64),
        ("banned_width", c_int64),
        ("only_width", c_int64),
        ("targets", c_void_p),
        ("mass_of", c_void_p),
        ("banned", c_void_p),
        ("only", c_void_p),
        ("rank", c_void_p),
        ("items", c_void_p),
        ("logits", c_void_p),
        ("partitions", c_void_p),
        ("normaliser", c_void_p),
        ("mass", c_void_p),
    )


class DropoutStruct(ctypes.Structure):
    """`Dropout` of `dropout.h`."""

    _fields_ = (("seed", c_uint64), ("dropped", c_int64), ("scale", c_float))


class AttentionStruct(ctypes.Structure):
    """`Attention` of `attention.c`."""

    _fields_ = (
        ("length", c_int64),
        ("heads", c_int64),
        ("dim", c_int64),
        ("packed", c_void_p),
        ("weights", c_void_p),
        ("dropout", DropoutStruct),
        ("portable", c_int64),
    )


class CopiesStruct(ctypes.Structure):
    """`Copies` of `copies.c`."""

    _fields_ = (
        ("length", c_int64),
        ("asked", c_int64),
        ("dim", c_int64),
        ("wide", c_int64),
        ("items", c_void_p),
        ("positions", c_void_p),
        ("embedded", c_void_p),
        ("copying", c_void_p),
        ("read", c_void_p),
        ("pointing", c_void_p),
        ("offset", c_void_p),
        ("home", c_void_p),
        ("portable", c_int64),
    )


class ReachingStruct(ctypes.Structure):
    """`Reaching` of `reaching.c`."""

    _fields_ = (
        ("length", c_int64),
        ("dim", c_int64),
        ("width", c_int64),
        ("wide", c_int64),
        ("parts", c_int64),
        ("items", c_void_p),
        ("positions", c_void_p),
        ("states", c_void_p),
        ("table", c_void_p),
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("windows", c_void_p),
        ("copying", c_void_p),
        ("pointing", c_void_p),
        ("offset", c_void_p),
        ("unheard", c_void_p),
        ("logits", c_void_p),
        ("portable", c_int64),
    )


class CopiesGradientsStruct(ctypes.Structure):
    """`CopiesGradients` of `copies.c`."""

    _fields_ = (
        ("values", c_void_p),
        ("embedded", c_void_p),
        ("copying", c_void_p),
        ("read", c_void_p),
        ("pointing", c_void_p),
        ("offset", c_void_p),
    )


_LOSS = [POINTER(LogitsStruct), POINTER(LossStruct)]
_RUNNING = [*_LOSS, POINTER(RunningStruct)]

ABI = 3
"""Counts the changes of `SIGNATURES` and of structures; the library has a function of that name (`rowpass.c`)."""

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
    "abaca_rank_bytes": (c_int64, [POINTER(LogitsStruct)]),
    "abaca_rank_rows": (
        None,
        [POINTER(LogitsStruct), c_void_p, *[c_int64] * 3, c_void_p, c_int64, *[c_void_p] * 3],
    ),
    "abaca_beaten_rows": (
        None,
        [POINTER(LogitsStruct), c_void_p, c_void_p, *[c_int64] * 4, c_void_p, c_int64, c_void_p],
    ),
    "abaca_copies_floats": (c_int64, [POINTER(CopiesStruct)]),
    "abaca_copies": (None, [POINTER(CopiesStruct), *[c_int64] * 3, *[c_void_p] * 3]),
    "abaca_copies_back": (
        None,
        [POINTER(CopiesStruct), POINTER(CopiesGradientsStruct), c_int64, c_int64, c_void_p],
    ),
    "abaca_reaching_words": (c_int64, [POINTER(ReachingStruct)]),
    "abaca_reaching": (None, [POINTER(ReachingStruct), c_int64, c_int64, c_void_p, c_void_p]),
    "abaca_dropout": (None, [c_void_p, c_void_p, c_int64, POINTER(DropoutStruct), c_int64]),
    "abaca_gelu": (None, [*[c_void_p] * 3, c_int64, c_int64]),
    "abaca_mix": (None, [*[c_int64] * 6, *[c_void_p] * 5, c_int64]),
    "abaca_mix_back": (None, [*[c_int64] * 3, *[c_void_p] * 3]),
    "abaca_panels_floats": (c_int64, [c_int64, c_int64]),
    "abaca_panels": (None, [c_void_p, c_int64, c_int64, c_void_p]),
    "abaca_multiply": (None, [c_void_p, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_int64]),
    "abaca_attention_floats": (c_int64, [POINTER(AttentionStruct)]),
    "abaca_attend": (None, [POINTER(AttentionStruct), c_int64, c_int64, c_void_p, c_void_p]),
    "abaca_attend_back": (None, [POINTER(AttentionStruct), c_int64, c_int64, c_void_p, c_void_p, c_void_p]),
    "abaca_gru_step": (None, [c_int64, c_int64, *[c_void_p] * 4, c_int64]),
    "abaca_gru_back": (None, [c_int64, c_int64, *[c_void_p] * 5, c_int64]),
    "abaca_top_k": (c_int64, [c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_void_p]),
    "abaca_exp": (c_double, [c_void_p, c_int64, c_float, c_int64]),
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """The loaded library; None where the package was built without a compiler."""
    here = Path(__file__).parent
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = here / f"_rowpass{suffix}"
        if path.exists():
            loaded = ctypes.CDLL(str(path))
            if getattr(loaded, f"abaca_abi_{ABI}", None) is None:
                warnings.warn(f"{path.name} was built from other sources and is not used; install anew", stacklevel=2)
                return None
            for name, (result, arguments) in SIGNATURES.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
            return loaded
    return None


def function(name: str) -> Callable[..., Any]:
    """A function of the library, which is known to be there."""
    return getattr(library(), name)  # type: ignore[no-any-return]


def mode() -> Mode | None:
    """Which primitives run; None where torch does the work."""
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "0", "1", "portable"):
        raise SpecError(f"got {SWITCH}={switch!r}, expected 0, 1 or portable")
    loaded = library() if switch != "0" else None
    if loaded is None:
        return None
    return "avx2" if switch != "portable" and loaded.abaca_uses_avx2() else "portable"

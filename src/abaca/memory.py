"""Freed memory that is reused instead of returned to the operating system.

Every batch frees some dozen megabytes and allocates them again. By default glibc returns them to the system in between.
Allocating them again page by page takes a fifth of the time of an evaluation. Only commands change this setting; the
library does not.
"""

import ctypes
from typing import Any

TRIM, MMAP, ARENAS = -1, -3, -8
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h."""

KEPT = 256 << 20
"""Freed bytes that are kept."""

LARGE = 32 << 20
"""Allocations of at least this size are returned as soon as they are freed."""


def keep_memory() -> bool:
    """Ask the C library; whether it is one that can (glibc)."""
    ask = _function("mallopt")
    return ask is not None and bool(ask(MMAP, LARGE) and ask(TRIM, KEPT))


def share_memory() -> bool:
    """Let all threads that are yet to come allocate from one place, where what one leaves another can use.

    Otherwise each has its own: a server whose models are read by now this, now that thread grows for a long while.
    """
    ask = _function("mallopt")
    return ask is not None and bool(ask(ARENAS, 1))


def give_back() -> None:
    """Return freed memory now, also that of other threads, such as the one that read an older model."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _function(name: str) -> Any:
    """A function of the C library; None where it has none of that name."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):
        return None

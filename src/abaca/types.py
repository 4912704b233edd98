"""Small types that several components share."""

import operator
from collections.abc import Sequence
from typing import Any

Id = str | int
"""A raw id of a user or an item, as the log spells it."""

Ids = Sequence[Id]

Record = dict[str, Any]
"""The record of an epoch of a run."""

PAD = -1
"""Marks the absence of an item in an array; never an index, never has probability."""


def whole_number(value: Any) -> int | None:
    """A whole number of Python's, NumPy's or torch's as Python's; None for anything else, True and False too."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None

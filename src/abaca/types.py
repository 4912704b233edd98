"""Small types that several rooms share."""

import operator
from collections.abc import Sequence
from typing import Any

Id = str | int
"""A raw id of a user or an item, as the log spells it."""

Ids = Sequence[Id]

Record = dict[str, Any]
"""What a run writes down of an epoch."""

PAD = -1
"""Stands in an array where there is no item; never an index, never has probability."""


def whole_number(value: Any) -> int | None:
    """A whole number of Python's, NumPy's or torch's as Python's; None for anything else, True and False too."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None

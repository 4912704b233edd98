"""Small types that several rooms share."""

from collections.abc import Sequence

Id = str | int
"""A raw id of a user or an item, as the log spells it."""

Ids = Sequence[Id]

PAD = -1
"""Stands in an array where there is no item; never an index, never has probability."""

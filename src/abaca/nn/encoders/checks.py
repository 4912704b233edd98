"""Checks that the options of all encoders share."""

import numbers

from abaca.errors import SpecError
from abaca.types import whole_number


def check_sizes(**sizes: int) -> None:
    """A size is a whole number of at least 1."""
    for name, size in sizes.items():
        if (whole_number(size) or 0) < 1:
            raise SpecError(f"{name} must be a whole number of at least 1, got {size!r}")


def check_shares(**shares: float) -> None:
    """What is dropped is a share below 1."""
    for name, share in shares.items():
        if not isinstance(share, numbers.Real) or not 0 <= share < 1:
            raise SpecError(f"{name} must be a number from 0 to below 1, got {share!r}")

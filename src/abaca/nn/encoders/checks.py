"""Checks that the options of all encoders share."""

from abaca.errors import SpecError


def check_sizes(**sizes: int) -> None:
    """A size is a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise SpecError(f"{name} must be a whole number of at least 1, got {size!r}")


def check_shares(**shares: float) -> None:
    """What is dropped is a share below 1."""
    for name, share in shares.items():
        if not isinstance(share, int | float) or not 0 <= share < 1:
            raise SpecError(f"{name} must be a number from 0 to below 1, got {share!r}")

"""Sizes of the models that benchmarks make: the paper's, or the defaults of `abaca train`."""

from abaca.errors import SpecError

DROPOUT = 0.1

BATCH_TARGETS = 800
"""Targets of a step."""


SIZES = ("defaults", "paper")


def sizes_of(encoder: str, which: str) -> dict[str, float]:
    """An encoder's options: its own defaults, or the paper's sizes."""
    if which not in SIZES:
        raise SpecError(f"sizes are {' or '.join(SIZES)}, got '{which}'")
    return paper_sizes(encoder) if which == "paper" else {}


def paper_sizes(encoder: str) -> dict[str, float]:
    """An encoder's options: states of 64, a dropout of 0.1."""
    return {"dropout": DROPOUT, "hidden": 64} if encoder == "gru4rec" else {"dropout": DROPOUT}

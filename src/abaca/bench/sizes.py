"""Sizes that all benchmarks share: the paper's, which are not always the defaults."""

DROPOUT = 0.1

BATCH_TARGETS = 800
"""Targets of a step."""


def paper_sizes(encoder: str) -> dict[str, float]:
    """An encoder's options: states of 64, a dropout of 0.1."""
    return {"dropout": DROPOUT, "hidden": 64} if encoder == "gru4rec" else {"dropout": DROPOUT}

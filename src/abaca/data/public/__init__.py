"""The paper's public data sets: where they are, and how each becomes a log."""

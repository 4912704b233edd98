"""How fast it is here: contenders that do the same work, measured side by side."""

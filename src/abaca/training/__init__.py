"""Training: the loop, a run in a folder, and what is kept on disk."""

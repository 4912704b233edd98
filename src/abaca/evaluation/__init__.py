"""Evaluation: rankers, full ranking, metrics and baselines."""

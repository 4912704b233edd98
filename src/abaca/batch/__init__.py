"""Batch: the answers to a file of histories, as a file."""

from abaca.batch.run import BatchReport, recommend_file

__all__ = ["BatchReport", "recommend_file"]

"""Repetition statistics, figures and the HTML report."""

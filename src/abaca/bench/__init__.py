"""Benchmarks on the current machine: contenders that do the same work, measured in turns."""

"""Benchmarks of the machine at hand: contenders that do the same work, measured in turns."""

"""The runs that a search within a budget compares."""

from collections.abc import Container, Sequence
from dataclasses import asdict, fields, replace
from itertools import zip_longest
from typing import Any

from abaca.auto import around
from abaca.options import TrainingOptions
from abaca.training.run import Run


def candidates(runs: Sequence[Run], fixed: Container[str]) -> tuple[Run, ...]:
    """Each run as it is, then each with other options, one change at a time; fixed options stay."""
    groups = []
    for run in runs:
        changes = around({**asdict(run.options), **run.encoder_options}, fixed)
        groups.append([_changed(run, change) for change in changes])
    return tuple(run for row in zip_longest(*groups) for run in row if run is not None)


def _changed(run: Run, change: dict[str, Any]) -> Run:
    of_training = {field.name for field in fields(TrainingOptions)}
    options = replace(run.options, **{name: value for name, value in change.items() if name in of_training})
    sizes = run.encoder_options | {name: value for name, value in change.items() if name not in of_training}
    return replace(run, options=options, encoder_options=sizes)

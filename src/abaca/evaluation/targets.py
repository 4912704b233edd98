"""What an evaluation is asked: cutoffs and targets, checked."""

from collections.abc import Sequence

import numpy as np

from abaca.data.sequences import Sequences, Targets
from abaca.errors import SequencesError, SpecError
from abaca.evaluation.metrics import Ints
from abaca.types import whole_number


def checked_cutoffs(given: Sequence[int]) -> tuple[int, ...]:
    """The cutoffs, ascending, each once."""
    try:
        found = [whole_number(cutoff) or 0 for cutoff in given]
    except TypeError:
        raise SpecError(f"got cutoffs {given!r}, expected a list such as (5, 10)") from None
    if not found or min(found) < 1:
        raise SpecError(f"got cutoffs {tuple(given)}, expected one or more whole numbers of at least 1")
    return tuple(sorted(set(found)))


def targets_of(sequences: Sequences, targets: str | Targets) -> tuple[str, Ints, Ints]:
    """Name the split and give its users and positions."""
    splits = {"test": sequences.test, "valid": sequences.valid}
    if not (targets in splits if isinstance(targets, str) else isinstance(targets, Targets)):
        raise SpecError(f"got targets {targets!r}, expected 'test', 'valid' or Targets")
    split = targets if isinstance(targets, str) else "chosen"
    found = splits[targets] if isinstance(targets, str) else targets
    if not len(found.users):
        raise SequencesError(f"{sequences.source}: no {split} targets to rank; prepare a longer log or another split")
    return split, np.asarray(found.users, dtype=np.int64), np.asarray(found.positions, dtype=np.int64)

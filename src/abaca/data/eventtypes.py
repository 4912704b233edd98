"""The types of a log's events: which are kept, which are targets, and what a manifest says of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abaca.data.log import BaseLog
from abaca.data.sequences import EVENTS
from abaca.data.splits import Wanted
from abaca.errors import LogError, SpecError
from abaca.histories import MOST_TYPES, EventTypes

Names = Sequence[str] | None


def type_names(log: BaseLog, events: Names, targets_of: Names) -> tuple[str, ...]:
    """The types of the events that are kept, by name."""
    counts = log.event_counts(log.rows)
    column, without = log.columns.event, log.rows - sum(counts.values())
    if events is None and len(counts) > MOST_TYPES:
        raise SpecError(
            f"column {column!r} has {len(counts):,} types of events, {MOST_TYPES} at most are read; "
            "keep some with `events`"
        )
    if events is None and without:
        raise LogError(f"{without:,} interactions have nothing in column {column!r}; keep the others with `events`")
    names = sorted(counts if events is None else set(events) & counts.keys())
    unknown = [name for name in targets_of or () if name not in names]
    if unknown or not names:
        wrong = f"`targets_of` {unknown[0]!r}" if unknown else f"`events` {', '.join(events or ())}"
        raise SpecError(
            f"{wrong} is no type of the events that are kept; column {column!r} has "
            f"{', '.join(list(counts)[:MOST_TYPES])}"
        )
    return tuple(names)


def wanted_targets(folder: Path, types: tuple[str, ...], targets_of: Names) -> Wanted | None:
    """The interactions that may be targets; None for all."""
    if targets_of is None or set(targets_of) == set(types):
        return None
    named = " or ".join(targets_of)
    places = np.flatnonzero(np.isin(_events(folder), [types.index(name) for name in targets_of]))
    if not len(places):
        raise LogError(f"no event of type {named} is left after the filters; widen them")
    return Wanted(places, f"events of type {named}")


def type_facts(folder: Path, types: tuple[str, ...], targets_of: Names) -> dict[str, Any]:
    """What the manifest says: names, those that are targets, the most common of these, and how many events of each."""
    counts = np.bincount(_events(folder), minlength=len(types)).tolist()
    targets = [number for number, name in enumerate(types) if name in (targets_of or types)]
    found = EventTypes(types, tuple(targets), max(targets, key=lambda number: int(counts[number])))
    return {"event_types": found.to_json() | {"counts": dict(zip(types, counts, strict=True))}}


def _events(folder: Path) -> npt.NDArray[np.uint8]:
    return np.asarray(np.load(folder / EVENTS, mmap_mode="r"))

"""The data of a run, opened once for all its processes, and the place of its model, checked before anything is read."""

import os
import weakref
from collections.abc import Callable, Container
from dataclasses import fields
from pathlib import Path
from typing import Any

from abaca.data.folder import check_apart
from abaca.data.log import Log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences, is_prepared
from abaca.data.temporary import Temporary
from abaca.errors import LogError, ModelError, SpecError
from abaca.training.group import Group


def verified(data: Any, items: Any) -> Sequences:
    """A prepared folder as it is, its files compared with their checksums."""
    if items is not None:
        raise SpecError("the data is prepared already; give the item table when preparing it")
    sequences = data if isinstance(data, Sequences) else Sequences.open(data)
    sequences.verify()
    return sequences


def prepared(log: Log, items: Any, options: PrepareOptions) -> Sequences:
    """A log as sequences in a temporary folder, which is deleted with them."""
    temporary = Temporary()
    try:
        sequences = prepare(log, temporary.path / "sequences", options=options, items=items)
    except BaseException:
        temporary.close()
        raise
    weakref.finalize(sequences, temporary.close)
    return sequences


def opened_together(group: Group, work: Callable[[], Sequences]) -> Sequences:
    """What all processes read: the first of each machine prepares a log or verifies a prepared folder."""
    own = group.lead(work)
    path = group.of_machine(None if own is None else own.path)
    sequences = Sequences.open(path) if own is None else own
    if len(set(group.gather(sequences.fingerprint))) > 1:
        raise LogError("the machines of this run read different logs; give the same files to all of them")
    return sequences


def check_place(data: Any, where: Path | None, given: Container[str]) -> None:
    """Refuse a run that would fail, before anything is read."""
    of_preparing = [field.name for field in fields(PrepareOptions) if field.name in given]
    if is_prepared(data) and of_preparing:
        names = ", ".join(f"`{name}`" for name in of_preparing)
        raise SpecError(f"the data is prepared already: {names} must be given to `abaca prepare`")
    if where is not None:
        path = data if isinstance(data, str | os.PathLike) else getattr(data, "path", None)
        check_apart(where, None if path is None else Path(path))
        check_not_prepared(where)


def check_not_prepared(folder: Path) -> None:
    """Refuse to write a model into a prepared folder."""
    if is_prepared(folder):
        raise ModelError(f"{folder} is a prepared folder; give the model a folder of its own")

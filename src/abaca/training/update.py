"""Updating a trained model: new events are counted, or the weights are trained on, and new items enter.

Both speeds prepare the whole log, the ledger and the new rows, as the first training did. Counts are then exactly those
of a model that was counted in the whole log at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow

from abaca.data.batches import Replay
from abaca.data.catalogue import Catalogue
from abaca.data.ledger import join, last_time, rows_of
from abaca.data.log import Log
from abaca.data.prepare import PrepareOptions
from abaca.data.sequences import Sequences, Targets
from abaca.data.splits import share
from abaca.errors import LogError, ModelError, QueryError, SpecError
from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.habits import Clock
from abaca.evidence.transitions import Transitions
from abaca.histories import Ints
from abaca.training.checkpoint import RULE, Saved
from abaca.training.drift import calibration, drift
from abaca.training.fold import carried, known_items
from abaca.training.newitems import NewItems, with_items
from abaca.training.run import Run, period_of
from abaca.types import Id

EPOCHS = 1
SLOWER = 4.0
"""The learning rate of an update is that of training, divided by it."""


@dataclass(frozen=True)
class UpdateOptions:
    """How a model is updated."""

    train: bool = False
    """Train the weights on; else new events are only counted."""
    whole: bool = False
    """The log holds the old rows too, so that a model without a ledger can be updated."""
    retire: Sequence[Id] = ()
    """Ids of items that are never recommended again; as part of a history they still count."""
    epochs: int = EPOCHS
    """Passes over the whole log, with `train`."""
    lr: float | None = None
    """Highest learning rate, with `train`; None for a quarter of that of training."""
    replay: float = 1.0
    """The share of the old rows that each pass reads, with `train`; new rows are always read."""
    items: Any = None
    """An item table with the columns of all items; None keeps the columns of the items that are known."""

    def __post_init__(self) -> None:
        if not self.train and (self.epochs, self.lr, self.replay) != (EPOCHS, None, 1.0):
            raise SpecError("`epochs`, `lr` and `replay` belong to `train=True`; counting has none of them")
        if isinstance(self.retire, str | bytes):
            raise SpecError(f"`retire` is a list of ids, not {self.retire!r}")
        if not 0 <= self.replay <= 1:
            raise SpecError(f"`replay` is a share between 0 and 1, got {self.replay!r}")


class NewRows(NamedTuple):
    """The whole log of an update, and what is new in it."""

    table: pyarrow.Table
    added: int
    skipped: int
    since: float | None
    """The last time of the old rows; None without times."""


def new_rows(saved: Saved, log: Log, options: UpdateOptions) -> NewRows:
    """The ledger with the rows of a log that are later; or a log that is whole."""
    if saved.encoder == RULE:
        raise ModelError(f"'{saved.output}' is a baseline, which counts in seconds; train it on the whole log")
    found = _whole(saved, log) if options.whole else _later(saved.read_ledger(), log)
    if not found.added and not options.retire and saved.training["everything"]:
        at = "" if found.since is None else f" after the model's last time, {found.since:.15g}"
        raise LogError(
            f"{', '.join(log.names)} has no rows{at}: there is nothing to update; a new training reads events that "
            "came late"
        )
    return found


def _later(ledger: pyarrow.Table, log: Log) -> NewRows:
    joined = join(ledger, log)
    return NewRows(joined.table, joined.added, joined.skipped, last_time(ledger))


def _whole(saved: Saved, log: Log) -> NewRows:
    table, since, before = rows_of(log), saved.training.get("last_time"), saved.training.get("rows") or 0
    old = min(before, table.num_rows)
    if since is not None and "time" in table.column_names:
        old = int(np.count_nonzero(table["time"].to_numpy() <= since))
    if old < before:
        raise LogError(
            f"{', '.join(log.names)} has {old:,} old rows, the model was trained on {before:,}: it is not the whole "
            "log; leave `whole` out for a log of new rows"
        )
    return NewRows(table, table.num_rows - old, old, since)


def prepare_options(saved: Saved, *, train: bool) -> PrepareOptions:
    """How the whole log is prepared: as at first, but without an end.

    Counts take every row after the first training, as a server that learns does: also those of rare users and items.
    """
    options = PrepareOptions(**saved.training["prepared"])
    for name in ("valid_from", "test_from") if train else ():
        cut = getattr(options, name)
        if cut is not None and share(cut) is None:
            raise SpecError(
                f"the model was split at {cut}, so new rows are after its cuts; train a new one with a later `{name}`"
            )
    if train:
        return replace(options, until=None)
    whole = replace(options, until=None, split="leave-one-out", valid_from=None, test_from=None, target="last")
    return replace(whole, hold_out_items=0.0, rare_until=_trained_until(saved))


def _trained_until(saved: Saved) -> float | None:
    """The last time of the first training; None without times."""
    updates = saved.training.get("updates")
    found: float | None = updates[0]["since"] if updates else saved.training.get("last_time")
    return found


def counted(saved: Saved, sequences: Sequences) -> Saved:
    """The model with the counts of all rows; items that it does not know come last, by their first time."""
    number, catalogue = _numbers(saved.catalogue, sequences)
    rows = sequences.training(everything=True)
    rows = replace(rows, items=number[rows.items])
    known = np.where(np.arange(catalogue.size) < saved.catalogue.size, np.arange(catalogue.size), -1)
    evidence = saved.evidence
    if evidence is not None:
        evidence = replace(evidence, clock=Clock.of(rows), transitions=Transitions.count(rows, catalogue.size))
    grown = catalogue.size > saved.catalogue.size
    return replace(
        saved,
        ranks=carried(saved, known, rows, catalogue.columns) if grown else saved.ranks,
        catalogue=catalogue,
        evidence=evidence,
        popularity=np.bincount(rows.items, minlength=catalogue.size),
        index=None if grown else saved.index,
        training=saved.training | _facts(sequences),
    )


def _facts(sequences: Sequences) -> dict[str, Any]:
    """The rows that were counted; none of them is held out."""
    counts = sequences.manifest["counts"]
    sizes = {key: counts[key] for key in ("read", "interactions", "users", "items", "dropped", "bad_rows")}
    period = period_of(sequences)
    return {"everything": True, "fingerprint": sequences.fingerprint, "counts": sizes, "period": period}


def _numbers(before: Catalogue, sequences: Sequences) -> tuple[Ints, Catalogue]:
    """The number of each item of the sequences in the model's catalogue, and that catalogue with the new ones."""
    found = Catalogue(sequences.catalogue.ids, None, sequences.catalogue.columns)
    number = known_items(before, found)
    new = np.flatnonzero(number < 0)
    new = new[np.argsort(np.array(found.ids)[new], kind="stable")]
    if sequences.times is not None:
        first = np.full(len(found), np.inf)
        np.minimum.at(first, np.asarray(sequences.items), np.asarray(sequences.times))
        new = new[np.argsort(first[new], kind="stable")]
    number[new] = before.size + np.arange(len(new))
    old, nothing = before.known(), [None] * len(found)
    columns = {
        name: [*values, *(found.columns.get(name, nothing)[item] for item in new)]
        for name, values in old.columns.items()
    }
    ids: list[Any] = [*old.ids, *(found.ids[item] for item in new)]
    return number, Catalogue(ids, None, columns)


def check_types(saved: Saved, sequences: Sequences) -> None:
    """Refuse events of a type that the model does not know."""
    known, found = (None if types is None else set(types.names) for types in (saved.types, sequences.types))
    if known != found:
        new = ", ".join(sorted((found or set()) - (known or set())))
        raise LogError(f"the log has events of type {new}, which the model does not know; train a new one")


def keep_columns(before: Catalogue, found: Catalogue) -> None:
    """Items that a new item table lacks keep the values that they had."""
    ids: list[Any] = list(found.ids)
    for place, id in enumerate(ids):
        item = before.index(id)
        if item is not None and all(values[place] is None for values in found.columns.values()):
            for name in found.columns.keys() & before.columns.keys():
                found.columns[name][place] = before.columns[name][item]


def with_cold_items(before: Saved, after: Saved) -> Saved:
    """The trained model with the items that only their features made known: the log has none of their events."""
    if before.model.features is None:
        return after
    ids: list[Any] = list(before.catalogue.known().ids)
    cold = [item for item, id in enumerate(ids) if after.catalogue.index(id) is None]
    columns = {
        name: [before.catalogue.columns[name][item] if name in before.catalogue.columns else None for item in cold]
        for name in after.catalogue.columns
    }
    return with_items(after, NewItems([ids[item] for item in cold], columns)) if cold else after


def hold_out_new(sequences: Sequences, since: float | None) -> None:
    """Keep the validation targets that are new: a model that saw everything has seen the others."""
    users, positions = sequences.valid
    is_new = np.zeros(len(users), dtype=bool)
    if since is not None and sequences.times is not None:
        is_new = np.asarray(sequences.times[positions] > since)
    sequences.valid = Targets(users[is_new], positions[is_new])


def replay(sequences: Sequences, rows: NewRows, options: UpdateOptions) -> Replay | None:
    """Which windows a pass reads: those with new targets, and a share of the others; None for all."""
    if options.replay == 1:
        return None
    if rows.since is None or sequences.times is None:
        raise SpecError("`replay` needs a log with times, which tell new rows from old ones; leave it out")
    return Replay(np.asarray(sequences.times > rows.since), options.replay)


def further_run(run: Run, saved: Saved, sequences: Sequences, rows: NewRows, options: UpdateOptions) -> Run:
    """The run of a model that trains its weights on: a few epochs from where they are, at a lower learning rate."""
    if saved.training["everything"]:
        hold_out_new(sequences, rows.since)
    rate = options.lr or run.options.lr / SLOWER
    slower = replace(run.options, epochs=options.epochs, lr=rate, stop_after=0, patience=0)
    kept = replay(sequences, rows, options)
    return replace(run, options=slower, fitted=saved.evidence, start_from=saved, replay=kept)


def recorded(before: Saved, after: Saved, rows: NewRows, sequences: Sequences, options: UpdateOptions) -> Saved:
    """The updated model with the record of what it was updated with."""
    training = before.training
    entry = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "how": "weights" if options.train else "counts",
        "rows": rows.added,
        "skipped": rows.skipped,
        "since": rows.since,
        "until": last_time(rows.table),
        "items": after.catalogue.size - before.catalogue.size,
        "fingerprint": sequences.fingerprint,
        "drift": _drift(before, sequences, rows.since),
        **({"epochs": options.epochs, "lr": options.lr, "replay": options.replay} if options.train else {}),
    }
    retired = list(dict.fromkeys([*before.retired, *_known_ids(after.catalogue, options.retire)]))
    kept = {key: training[key] for key in ("options", "source", "encoder_options", "best_epoch") if key in training}
    facts = {
        "everything": training["everything"] or not options.train,
        "updates": [*training.get("updates", ()), entry],
        "rows": rows.table.num_rows,
        "last_time": last_time(rows.table),
        **({"retired": retired} if retired else {}),
    }
    ledger = None if before.ledger is None else rows.table
    return replace(after, training=after.training | kept | facts, ledger=ledger)


def _drift(before: Saved, sequences: Sequences, since: float | None) -> dict[str, list[float]] | None:
    """How the new rows differ from the old ones, and from what the model predicted for them."""
    found = drift(sequences.training(everything=True), since)
    if found is None or since is None:
        return found
    ranker = ModelRanker(before.model, before.training["options"]["window"], evidence=before.evidence)
    predicted = calibration(ranker, before.catalogue, sequences, since)
    return found if predicted is None else {**found, "calibration": predicted}


def _known_ids(catalogue: Catalogue, ids: Sequence[Id]) -> list[Id]:
    """Ids of items as the catalogue spells them."""
    found = [(id, catalogue.index(id)) for id in ids]
    unknown = [id for id, item in found if item is None]
    if unknown:
        raise QueryError(
            f"{unknown[0]!r} cannot be retired: the model knows no such item; check the id, or the file's name"
        )
    return [catalogue.ids[item] for _, item in found if item is not None]

"""Preparing: filter a log, put it in order, number its items, split it, and write the sequences.

The rules are here, in `splits.py` and in `arrays.py`. An engine runs the steps that read all rows.
"""

import dataclasses
import datetime
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow

from abaca.data import arrays, splits
from abaca.data.database import enough_room
from abaca.data.engine import Engine, Ints
from abaca.data.eventtypes import type_facts, type_names, wanted_targets
from abaca.data.folder import check_apart, new_folder, write_manifest
from abaca.data.itemtable import read_items, write_catalogue, write_users
from abaca.data.log import BaseLog
from abaca.data.reading.values import parse_time
from abaca.data.sequences import COUNTED, Sequences
from abaca.errors import LogError, SpecError
from abaca.types import whole_number

Progress = Callable[[str], None]


class Training(NamedTuple):
    """The rows of an engine that are for training, and the numbers of their items."""

    lengths: Ints  # (users,) how many of each user's rows, by code
    order: Ints  # (items,) the codes of the items that training may see, by index
    size: int
    """V: the catalogue."""


Counting = Callable[[Engine, Training], dict[str, np.ndarray]]
"""Counts the transitions of training rows, as arrays by name."""


@dataclass(frozen=True)
class PrepareOptions:
    """How a log becomes sequences."""

    min_user: int = 5
    """Drop users with fewer interactions; with `min_item`, until nothing changes."""

    min_item: int = 1
    """Drop items with fewer interactions; 1 keeps all, as the paper mostly does."""

    rare_until: float | None = None
    """`min_user` and `min_item` spare users and items with an interaction after this time: an update counts them."""

    drop_consecutive: bool = False
    """Of a user's consecutive interactions with the same item keep the first only."""

    since: float | str | None = None
    """Keep interactions at this time or later: a number like the log's, or an ISO date."""

    until: float | str | None = None
    """Keep interactions before this time."""

    events: tuple[str, ...] | None = None
    """Keep interactions whose event column has one of these values."""

    types: bool = False
    """Keep the type of each event, so that a model reads it."""

    targets_of: tuple[str, ...] | None = None
    """Types of events that are targets; the others are only read. It implies `types`."""

    time_precision: Literal["exact", "single"] = "exact"
    """Order by exact times, or by times in single precision, as RecBole and so the paper do.
    Seconds since 1970 then have steps of 64 or 128; within a step the order is that of the file."""

    split: Literal["leave-one-out", "time"] = "leave-one-out"
    """Hold out the last two interactions of each user, or what happens after two moments."""

    valid_from: float | str | None = None
    """Split by time: when validation begins, as a number, ISO date or share; None is '80%'."""

    test_from: float | str | None = None
    """Split by time: when test begins; None is '90%'."""

    target: splits.TargetChoice = "last"
    """Split by time: which interactions of a user after a cut are targets."""

    hold_out_items: float = 0.0
    """Share of the items, drawn at random, whose interactions are taken out of training: a test of cold items."""

    def __post_init__(self) -> None:
        for name in ("min_user", "min_item"):
            least = whole_number(getattr(self, name)) or 0
            if least < 1:
                raise SpecError(
                    f"`{name}` is a whole number of at least 1, which keeps all; got {getattr(self, name)!r}"
                )
            object.__setattr__(self, name, least)
        if self.split not in ("leave-one-out", "time"):
            raise SpecError(f"`split` {self.split!r} is not known; it is leave-one-out or time")
        if self.time_precision not in ("exact", "single"):
            raise SpecError(f"`time_precision` {self.time_precision!r} is not known; it is exact or single")
        if self.target not in ("last", "first", "all"):
            raise SpecError(f"`target` {self.target!r} is not known; it is last, first or all")
        if not 0 <= self.hold_out_items < 1:
            raise SpecError(f"`hold_out_items` must be a share from 0 to below 1, got {self.hold_out_items}")
        by_time = (self.valid_from, self.test_from, self.target) != (None, None, "last")
        if self.split == "leave-one-out" and by_time:
            raise SpecError(
                "`valid_from`, `test_from` and `target` belong to `split='time'`; leave one out has no cuts"
            )
        for option in (self.valid_from, self.test_from):
            part = splits.share(option)
            if part is not None and not 0 < part < 1:
                raise SpecError(f"a cut at {option} leaves nothing on one side; give a share between 0% and 100%")
        for name in ("events", "targets_of"):
            values = getattr(self, name)
            if values is not None and (isinstance(values, str) or not isinstance(values, Collection) or not values):
                raise SpecError(f"{name} is a list of at least one value, not {values!r}")
            object.__setattr__(self, name, None if values is None else tuple(values))
        object.__setattr__(self, "types", self.types or self.targets_of is not None)
        for name in ("since", "until", "valid_from", "test_from"):
            object.__setattr__(self, name, _plain(getattr(self, name)))


def _plain(moment: Any) -> Any:
    """A moment as a number or text: not as NumPy's number nor as Python's date."""
    if isinstance(moment, datetime.date):
        return moment.isoformat()
    return moment.item() if isinstance(moment, np.generic) else moment


def prepare(
    log: BaseLog,
    path: str | Path,
    *,
    options: PrepareOptions | None = None,
    items: Any = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    counting: Counting | None = None,
) -> Sequences:
    """Write the sequences of a log into a folder, all of it or nothing, and open them.

    `items` is an item table (a file or a table in memory) whose columns go into the catalogue.
    Only a prepared folder is ever replaced, and only with `overwrite=True`. `counting` counts transitions with the
    engine, so that training need not.
    """
    options, tell = options or PrepareOptions(), progress or (lambda step: None)
    _check_columns(log, options)
    check_apart(Path(path), log.path)
    with enough_room(), new_folder(Path(path), overwrite) as folder:
        tell(f"filtering {log.rows:,} interactions")
        engine = log.engine()
        facts, training = _write(log, engine, folder, options, items, tell)
        if counting is not None:
            tell("counting transitions")
            np.savez(folder / COUNTED, allow_pickle=False, **counting(engine, training))
        write_manifest(folder, facts)
        engine.close()
    return Sequences.open(path)


def _check_columns(log: BaseLog, options: PrepareOptions) -> None:
    """Refuse options that need a column which the log does not have."""
    named = "events" if options.events is not None else "targets_of" if options.targets_of is not None else "types"
    needed = options.types or options.events is not None
    if needed and log.without_event is not None:
        raise SpecError(f"`{named}` needs event types, and {log.without_event} has no such column, as other files have")
    if needed and not log.has_event:
        raise SpecError(f"`{named}` needs a column of event types; pass `event=COLUMN`")
    if log.has_time:
        return
    if options.split == "time":
        raise SpecError("a split by time needs times, and the log has none; pass `time=COLUMN`, or leave one out")
    if options.time_precision == "single":
        raise SpecError("`time_precision` needs times, and the log has none; pass `time=COLUMN`")
    if (options.since, options.until) != (None, None):
        raise SpecError("`since` and `until` need times, and the log has none; pass `time=COLUMN`")


def _filter(log: BaseLog, engine: Engine, options: PrepareOptions, types: tuple[str, ...]) -> Counter[str]:
    """Apply the filters; returns how many interactions each of them dropped.

    The filters by count run until none of them changes anything.
    """
    bounds = [
        None if given is None else parse_time(given, f"`{name}`", engine.latest(), dates=log.dates)
        for name, given in (("since", options.since), ("until", options.until))
    ]
    dropped = Counter[str]()
    other = engine.keep(options.events, *bounds, single=options.time_precision == "single", types=types)
    if options.events is not None:
        dropped["events"] = other
    if bounds != [None, None]:
        dropped["time range"] = log.rows - other - engine.count()
    filters: dict[str, Callable[[], None]] = {}
    if options.drop_consecutive:
        filters["consecutive duplicates"] = engine.drop_consecutive
    if options.min_user > 1:
        filters["min-user"] = partial(engine.drop_rare, "user", options.min_user, options.rare_until)
    if options.min_item > 1:
        filters["min-item"] = partial(engine.drop_rare, "item", options.min_item, options.rare_until)
    before, left = -1, engine.count()
    while left != before:
        before = left
        for name, drop in filters.items():
            drop()
            left, had = engine.count(), left
            dropped[name] += had - left
    if not left:
        raise _nothing_left(log, dropped)
    return dropped


def _nothing_left(log: BaseLog, dropped: Counter[str]) -> LogError:
    """Which filters dropped everything, with a hint for each."""
    causes = [filter for filter, count in dropped.items() if count]
    hints = {"min-user": "lower `min_user`", "min-item": "lower `min_item`", "time range": "widen `since` or `until`"}
    if "events" in causes:
        values = ", ".join(f"{event} ({count:,})" for event, count in log.event_counts().items()) or "no value"
        hints["events"] = f"column {log.columns.event!r} has {values}: choose among them, repeat `events` for several"
    shares = ", ".join(f"{filter} dropped {dropped[filter]:,}" for filter in causes)
    cures = [hints[filter] for filter in causes if filter in hints]
    return LogError("; ".join([f"nothing is left of {log.rows:,} interactions: {shares}", *cures]))


def _write(
    log: BaseLog, engine: Engine, folder: Path, options: PrepareOptions, items: Any, tell: Progress
) -> tuple[dict[str, Any], Training]:
    """Write all files but the manifest; what it says, and which rows are for training."""
    types = type_names(log, options.events, options.targets_of) if options.types else ()
    dropped = _filter(log, engine, options, types)
    ids = pyarrow.Table.from_batches(engine.ids("item")).column("id").combine_chunks()
    table = None if items is None else read_items(items, log.columns.item, ids)
    if table is not None and table.repeated:
        dropped["rows of the item table after the first of their id"] = table.repeated
    sizes = _sizes(log, engine, options)
    offsets = sizes.offsets
    tell(f"ordering {offsets[-1]:,} interactions of {len(offsets) - 1:,} users")
    arrays.write_ordered(engine.ordered(), folder, int(offsets[-1]), timed=log.has_time, typed=bool(types))
    wanted = wanted_targets(folder, types, options.targets_of) if types else None
    split = _split(sizes, options, wanted)
    everywhere, training = arrays.training_counts(folder, offsets, split.train_end, len(ids))
    held = _held_out(everywhere, options.hold_out_items)
    order = arrays.item_order(everywhere, training, held)
    seen = (everywhere if options.split == "leave-one-out" else training) > 0
    size = int(np.count_nonzero(seen & ~held))
    for_training = Training(split.train_end - offsets[:-1], order[:size], size)
    if held.any():
        items_before = np.load(folder / "items.npy", mmap_mode="r")
        split, offsets, kept = splits.hold_out(split, offsets, items_before, held)
        dropped["interactions of held-out items"] = int(np.count_nonzero(~kept))
        arrays.keep_only(folder, kept)
    arrays.renumber(folder, order, len(ids))
    tell("writing the catalogue and checksums")
    parts = {"offsets": offsets, "train_end": split.train_end, "valid": split.valid, "test": split.test}
    for part, array in parts.items():
        np.save(folder / f"{part}.npy", np.ascontiguousarray(array), allow_pickle=False)
    write_catalogue(folder / "catalogue.parquet", ids, order, table)
    write_users(folder / "users.parquet", engine.ids("user"))
    facts: dict[str, Any] = {
        "options": dataclasses.asdict(options),
        "source": _source(log) | {"last_time": engine.latest()},
        "split": {"kind": options.split, "rule": split.rule, "cuts": split.cuts},
        "catalogue": size,
        "counts": _counts(log, folder, split, sizes.offsets, size) | {"items": len(order), "dropped": dict(dropped)},
    }
    if types:
        facts |= type_facts(folder, types, options.targets_of)
    if wanted is not None:
        facts["counts"]["training_targets"] = wanted.between(offsets[:-1] + 1, split.train_end)
    return facts, for_training


def _held_out(everywhere: Ints, share: float) -> splits.Bools:
    """Which item codes are held out: the same ones for the same log and share."""
    held = np.zeros(len(everywhere), dtype=bool)
    present = np.flatnonzero(everywhere)
    held[np.random.default_rng(0).permutation(present)[: round(share * len(present))]] = True
    return held


class _Sizes(NamedTuple):
    offsets: Ints
    before: tuple[Ints, Ints]
    """Interactions of each user before the cuts."""
    cuts: tuple[float, float] | None


def _sizes(log: BaseLog, engine: Engine, options: PrepareOptions) -> _Sizes:
    cuts = None
    if options.split == "time":
        cuts = splits.find_cuts(engine, options.valid_from, options.test_from, dates=log.dates)
    lengths, before_valid, before_test = engine.lengths(cuts)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return _Sizes(offsets, (before_valid, before_test), cuts)


def _split(sizes: _Sizes, options: PrepareOptions, wanted: splits.Wanted | None) -> splits.Split:
    if sizes.cuts is None:
        return splits.leave_one_out(sizes.offsets, wanted)
    return splits.by_time(sizes.offsets, sizes.before, sizes.cuts, options.target, wanted)


def _counts(log: BaseLog, folder: Path, split: splits.Split, offsets: Ints, size: int) -> dict[str, Any]:
    items = np.load(folder / "items.npy", mmap_mode="r")
    lengths = split.train_end - offsets[:-1]
    return {
        "users": len(lengths),
        "interactions": len(items),
        "read": log.rows,
        "bad_rows": log.bad_rows,
        "training_interactions": int(lengths.sum()),
        "training_targets": int(np.maximum(lengths - 1, 0).sum()),
        "valid_targets": len(split.valid),
        "test_targets": len(split.test),
        "targets_without_history": split.without_history,
        "valid_cold_targets": int(np.count_nonzero(items[split.valid[:, 1]] >= size)),
        "test_cold_targets": int(np.count_nonzero(items[split.test[:, 1]] >= size)),
    }


def _source(log: BaseLog) -> dict[str, Any]:
    return {
        "files": list(log.names),
        "columns": log.columns._asdict(),
        "passed_over": log.passed_over,
        "on_bad_row": log.on_bad_row,
        "order": "time, then file order" if log.has_time else "file order",
    }

"""A second engine in a few lines of Python prepares the same folder as DuckDB, byte for byte."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from abaca.data.engine import Ints, Role
from abaca.data.log import Log, read_log
from abaca.data.prepare import PrepareOptions, prepare

from .samples import ROWS, table

PLACES = {"user": 0, "item": 1}


class PlainEngine:
    """The kept interactions are a list of (user, item, (time, rest), row, event), in file order."""

    def __init__(self, log: Log) -> None:
        self.timed = log.has_time
        rows = log.database.rows('SELECT "user", item, "time", rest, "row", event FROM log ORDER BY "row"')
        self.rows = [(user, item, (time, rest), row, event) for user, item, time, rest, row, event in rows]
        self.codes = {role: sorted({row[place] for row in self.rows}) for role, place in PLACES.items()}

    def latest(self) -> float | None:
        return max(row[2][0] for row in self.rows) if self.timed else None

    def keep(
        self,
        events: Sequence[str] | None,
        since: float | None,
        until: float | None,
        *,
        single: bool,
        types: Sequence[str] = (),
    ) -> int:
        self.types = list(types)
        before = len(self.rows)
        self.rows = [row for row in self.rows if events is None or row[4] in events]
        other = before - len(self.rows)
        self.rows = [row for row in self.rows if since is None or row[2][0] >= since]
        self.rows = [row for row in self.rows if until is None or row[2][0] < until]
        if single:
            self.rows = [(*row[:2], (float(np.float32(row[2][0])), 0), *row[3:]) for row in self.rows]
        return other

    def count(self) -> int:
        return len(self.rows)

    def drop_consecutive(self) -> None:
        ordered = self._ordered()
        same = [False, *(self._sort(a) == self._sort(b) for a, b in pairwise(ordered))]
        self.rows = [row for row, dropped in zip(ordered, same, strict=True) if not dropped]

    def drop_rare(self, role: Role, least: int, unless_after: float | None) -> None:
        counts = Counter(row[PLACES[role]] for row in self.rows)
        late = {row[PLACES[role]] for row in self.rows if unless_after is not None and row[2][0] > unless_after}
        self.rows = [row for row in self.rows if counts[row[PLACES[role]]] >= least or row[PLACES[role]] in late]

    def span(self) -> tuple[float, float]:
        times = [row[2][0] for row in self.rows]
        return min(times), max(times)

    def time_at(self, place: int) -> float:
        return float(sorted(row[2][0] for row in self.rows)[place])

    def lengths(self, cuts: tuple[float, float] | None) -> tuple[Ints, Ints, Ints]:
        whole = Counter(row[0] for row in self.rows)
        parts = [whole, *(Counter(row[0] for row in self.rows if row[2][0] < cut) for cut in cuts or ())]
        parts += [Counter()] * (3 - len(parts))
        first, second, third = (np.array([part[user] for user in sorted(whole)], np.int64) for part in parts)
        return first, second, third

    def ordered(self) -> Iterator[pyarrow.RecordBatch]:
        rows = self._ordered()
        items = pyarrow.array([self.codes["item"].index(row[1]) for row in rows], pyarrow.int32())
        times = pyarrow.array([row[2][0] for row in rows], pyarrow.float64())
        columns = {"item": items, "time": times}
        if self.types:
            columns["type"] = pyarrow.array([self.types.index(row[4]) for row in rows], pyarrow.uint8())
        yield pyarrow.record_batch(columns)

    def ids(self, role: Role) -> Iterator[pyarrow.RecordBatch]:
        kept = {row[0] for row in self.rows}
        yield pyarrow.record_batch({"id": [id for id in self.codes[role] if role == "item" or id in kept]})

    def close(self) -> None:
        self.rows = []

    def _sort(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*row[:2], row[4]) if self.types else row[:2]

    def _ordered(self) -> list[tuple[Any, ...]]:
        return sorted(self.rows, key=lambda row: (row[0], row[2] if self.timed else 0, row[3]))


def random_log(seed: int) -> pyarrow.Table:
    """Users with ties, repeats and events; many times differ only beyond what a double holds."""
    rng = np.random.default_rng(seed)
    count = 300
    times = 2**60 + rng.integers(0, 4000, count)
    return pyarrow.table(
        {
            "user": rng.integers(0, 25, count),
            "item": [f"i{item}" for item in rng.integers(0, 12, count)],
            "time": times,
            "event": rng.choice(["view", "buy"], count),
        }
    )


@pytest.mark.parametrize(
    "options",
    [
        {"min_user": 1},
        {"min_user": 6, "min_item": 19, "drop_consecutive": True},
        {"min_user": 3, "events": ("buy",), "since": 2**60 + 1000, "until": float(2**60 + 3900)},
        {"min_user": 3, "time_precision": "single"},
        {"min_user": 12, "min_item": 24, "rare_until": float(2**60 + 3584)},
        {"min_user": 2, "split": "time", "target": "all", "valid_from": "60%"},
        {"min_user": 3, "types": True, "drop_consecutive": True},
        {"min_user": 3, "targets_of": ("buy",), "split": "time"},
    ],
    ids=str,
)
def test_both_engines_write_the_same_folder(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = {"item": ["i3", "i4"], "title": ["Three", "Four"]}
    with read_log(random_log(3)) as log:
        ours = prepare(log, tmp_path / "duckdb", options=PrepareOptions(**options), items=items)
        monkeypatch.setattr(Log, "engine", lambda log: PlainEngine(log))
        plain = prepare(log, tmp_path / "plain", options=PrepareOptions(**options), items=items)
    assert plain.manifest["counts"] == ours.manifest["counts"]
    assert plain.manifest["split"] == ours.manifest["split"]
    assert plain.fingerprint == ours.fingerprint
    assert plain.catalogue == ours.catalogue
    names = ("items", "times", "offsets", "train_end", "valid", "test")
    for name in (*names, "events") if PrepareOptions(**options).types else names:
        assert (plain.path / f"{name}.npy").read_bytes() == (ours.path / f"{name}.npy").read_bytes()


def test_without_times_the_order_of_the_file_is_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = PrepareOptions(min_user=1)
    with read_log(table(ROWS).drop_columns(["time"])) as log:
        ours = prepare(log, tmp_path / "duckdb", options=options)
        monkeypatch.setattr(Log, "engine", lambda log: PlainEngine(log))
        assert prepare(log, tmp_path / "plain", options=options).fingerprint == ours.fingerprint

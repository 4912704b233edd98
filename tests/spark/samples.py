"""Logs for both engines: with ties, full of bad rows, with events and exact times."""

import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

GOOD_LINES = b"user,item,time,event\nann,tea,1,view\n"

BAD_LINES = {
    "missing user": b",tea,2,view\n",
    "missing item": b'bob,"",2,buy\n',
    "unreadable time": b"bob,tea,n/a,view\n",
    "ragged line": b"bob,tea\n",
    "wrong encoding": b"bob,th\xe9,2,view\n",
    "broken quotes": b'bob,"tea"s,2,view\n',
}

TYPES = ("view", "buy", "it's", "a\\b")
"""Types of events, some with signs that literals escape."""


def bad_csv(folder: Path, rows: int = 200, seed: int = 0) -> Path:
    """A CSV file in which one line in five is bad, blank or quoted."""
    rng = np.random.default_rng(seed)
    path = folder / f"log-{seed}.csv"
    other = [*BAD_LINES.values(), b"\n", b'"u, 1","say ""tea""",3,"buy"\n', "ü,茶,4,view\n".encode(), b"a,b,c,d,e\n"]
    lines = [b"user,item,time,event\n"]
    for _ in range(rows):
        user, item, time, type = rng.integers(0, [12, 9, 5, 2])
        lines.append(f"u{user},i{item},{time},{TYPES[type]}\n".encode())
        lines += [other[rng.integers(len(other))]] * bool(rng.random() < 0.2)
    path.write_bytes(b"".join(lines))
    return path


def bad_json(folder: Path) -> Path:
    """JSON lines of which some are no JSON, no objects, or lack a value."""
    rng = np.random.default_rng(0)
    bad = [
        b"not json",
        b"[1]",
        b"",
        b'{"user": 1, "time": 3}',
        b'{"user": "x", "item": 2, "time": 1}',
        b'{"user": 1, "item": 2, "time": "soon"}',
        b'{"user": 1, "item": 2, "time": 1, "event": "\xe9"}',
    ]
    lines = []
    for _ in range(100):
        user, item, time = rng.integers(0, [9, 7, 5]).tolist()
        lines.append(json.dumps({"user": user, "item": item, "time": time, "event": "view"}).encode())
        lines += [bad[rng.integers(len(bad))]] * bool(rng.random() < 0.2)
    path = folder / "log.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def exact_log(rows: int = 400) -> pyarrow.Table:
    """Ties, repeats, ids beyond ASCII, types of events, and times that differ beyond what a double holds."""
    rng = np.random.default_rng(3)
    items = np.array(["i1", "i10", "i2", "é", "Z", "茶", "😀", "\uffff", "it's", "a b"])
    return pyarrow.table(
        {
            "user": rng.integers(-5, 20, rows),
            "item": items[rng.integers(0, len(items), rows)],
            "time": 2**60 + rng.integers(0, 4000, rows),
            "event": np.array(TYPES)[rng.integers(0, len(TYPES), rows)],
        }
    )


def tied_files(folder: Path) -> Path:
    """Parquet files whose times are nearly all equal, so that the order of files and rows decides."""
    rng = np.random.default_rng(4)
    folder.mkdir()
    for name, rows in (("b.parquet", 300), ("a.parquet", 30), ("c d.parquet", 900)):
        table = pyarrow.table(
            {
                "customer": [f"c{user}" for user in rng.integers(0, 40, rows)],
                "sku": rng.integers(0, 25, rows),
                "ts": pyarrow.array(rng.integers(0, 3, rows) * 86_400_000_000, pyarrow.timestamp("us", "UTC")),
            }
        )
        pyarrow.parquet.write_table(table, folder / name, row_group_size=100)
    return folder

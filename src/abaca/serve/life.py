"""The life of a store: what it holds, copies of it, one user's data, and an end for old rows.

A backup is a SQLite file with the tables of a store, whatever database the store is in. It is as of one moment, also
while servers write. Restoring adds what is missing: what was erased since the backup stays away.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from abaca.durable import whole_file
from abaca.errors import StoreError
from abaca.serve.erasure import AUDIT, bury
from abaca.serve.events import ADD, Store
from abaca.serve.feedback import ADD_FEEDBACK
from abaca.serve.layout import FIND_SALT, FIND_VERSION, Run, make_layout
from abaca.serve.sqlite import NUMBERED

COPIED = {
    "abaca_events": 'place, id, "user", item, time, type',
    "abaca_feedback": 'place, id, "user", item, time, kind, model',
    "abaca_erased": 'key, "until"',
    "abaca_audit": "place, time, who, what, subject",
}
"""The columns of the tables that a backup holds, beside version and salt."""
TOGETHER = 1000
"""Rows that are stored in one transaction."""

Read = Callable[[str], Iterator[Sequence[Any]]]


def figures(store: Store) -> dict[str, Any]:
    """What a store holds; it reads every row. A damaged store cannot be counted."""
    ((version,),) = store._read(FIND_VERSION)
    if faults := store.faults():
        return {"version": version, "faults": faults}
    ((events, users, first, last),) = store._read(
        'SELECT count(*), count(DISTINCT "user"), min(time), max(time) FROM abaca_events'
    )
    counts = {name: store._read(f"SELECT count(*) FROM abaca_{name}")[0][0] for name in ("feedback", "erased", "audit")}
    ends = {"first": None if first is None else moment(first), "last": None if last is None else moment(last)}
    return {"version": version, "events": events, "users": users, **ends, **counts, "faults": []}


def export_user(store: Store, user: str, who: str) -> dict[str, Any]:
    """All that is stored of a user, with times."""
    events = store._read('SELECT id, item, time, type FROM abaca_events WHERE "user" = ? ORDER BY time, place', user)
    feedback = store._read(
        'SELECT id, item, kind, model, time FROM abaca_feedback WHERE "user" = ? ORDER BY time, place', user
    )
    store._transact(lambda run: run(AUDIT, time.time(), who, "export", store.subject(user)).rowcount)
    return {
        "user": user,
        "subject": store.subject(user),
        "exported": moment(time.time()),
        "events": [_dated(zip(("id", "item", "time", "type"), row, strict=True)) for row in events],
        "feedback": [_dated(zip(("id", "item", "kind", "model", "time"), row, strict=True)) for row in feedback],
    }


def _dated(fields: Any) -> dict[str, Any]:
    row = dict(fields)
    return {**row, "when": moment(row["time"])}


def moment(seconds: float) -> str | None:
    """Seconds since 1970 as ISO 8601; None for a time beyond the calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None


def backup(store: Store, path: Path) -> dict[str, int]:
    """Write a copy of a store, as of one moment; a whole file or nothing. The rows of each table."""
    with whole_file(path, StoreError) as part, store.snapshot() as read:
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as to:
                return _copy(read, to)
        except sqlite3.OperationalError as error:
            raise OSError(str(error)) from error


def _copy(read: Read, to: sqlite3.Connection) -> dict[str, int]:
    to.execute("PRAGMA journal_mode = OFF")  # the file counts only when it is complete
    to.execute("PRAGMA synchronous = OFF")  # and is synced as a whole
    to.execute("BEGIN")
    make_layout(lambda sql, *values: to.execute(sql, values), "the backup", *NUMBERED)
    counts = {}
    for table, columns in COPIED.items():
        signs = ", ".join("?" * (columns.count(",") + 1))
        cursor = to.executemany(
            f"INSERT INTO {table} ({columns}) VALUES ({signs})", read(f"SELECT {columns} FROM {table}")
        )
        counts[table.removeprefix("abaca_")] = max(cursor.rowcount, 0)
    ((salt,),) = read(FIND_SALT)
    to.execute("UPDATE abaca_secret SET salt = ?", (salt,))
    to.execute("COMMIT")
    return counts


def restore(store: Store, path: Path, who: str) -> dict[str, int]:
    """Add what a backup holds and a store lacks; the new events and feedback. It can be repeated."""
    with closing(_opened(path)) as source:
        ((salt,),) = source.execute(FIND_SALT)
        if salt != store.salt:
            _take_salt(store, salt, path)
        erased = source.execute(f"SELECT {COPIED['abaca_erased']} FROM abaca_erased").fetchall()
        store._transact(lambda run: bury(run, erased))
        added: dict[str, int] = {}
        for name, sql in (("events", ADD), ("feedback", ADD_FEEDBACK)):
            columns = COPIED[f"abaca_{name}"].removeprefix("place, ")
            rows, added[name] = source.execute(f"SELECT {columns} FROM abaca_{name} ORDER BY place"), 0
            while some := list(islice(rows, TOGETHER)):
                added[name] += store.add([some], sql)[0]
        lines = source.execute("SELECT time, who, what, subject FROM abaca_audit ORDER BY place").fetchall()
    store._transact(lambda run: _note(run, lines, who, path.name))
    return added


def _opened(path: Path) -> sqlite3.Connection:
    """A backup, once it is known to be whole."""
    try:
        source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        found = source.execute(FIND_VERSION).fetchone()[0], source.execute("PRAGMA integrity_check(1)").fetchone()[0]
        tables = {name for (name,) in source.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error as error:
        raise StoreError(f"{path} is no backup of a store ({error}); give one of `abaca store backup`") from error
    if found[1] != "ok" or not tables.issuperset(COPIED):
        source.close()
        raise StoreError(f"{path} is damaged or no backup ({found[1]}); give another one")
    return source


def _take_salt(store: Store, salt: str, path: Path) -> None:
    """Make an empty store the one of the backup; tombstones of another one could not be read."""

    def take(run: Run) -> int:
        for table in COPIED:
            if run(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None:
                raise StoreError(f"{path} is a backup of another store; restore it into a new one")
        return int(run("UPDATE abaca_secret SET salt = ?", salt).rowcount)

    store._transact(take)
    store.salt = salt


def _note(run: Run, lines: list[Any], who: str, name: str) -> int:
    """Keep the audit of the backup where the store has none, and note the restoring."""
    if run("SELECT 1 FROM abaca_audit LIMIT 1").fetchone() is None:
        for line in lines:
            run(AUDIT, *line)
    return int(run(AUDIT, time.time(), who, "restore", name).rowcount)

"""Erasing users: their rows go, and tombstones stay, so that a late copy of an event does not bring a user back.

A tombstone is a digest with the store's salt, of the user or of an event's id. An event is refused if its id was
erased, or if its user was erased at its time or later. Later events of the same user are taken: the user came back.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

from abaca.serve.layout import FIND_SALT, Run

ALWAYS = 1e300
"""Until when the id of an erased event is refused."""
TIME = 3
"""Where a row has its time."""
AT_ONCE = 500
"""Keys that one query asks for."""

Rows = Sequence[Sequence[Any]]

ANY = "SELECT 1 FROM abaca_erased LIMIT 1"
FIND = 'SELECT key, "until" FROM abaca_erased WHERE key IN ({keys})'
BURY = (
    'INSERT INTO abaca_erased (key, "until") VALUES {rows} ON CONFLICT (key) DO UPDATE SET "until" = '
    'CASE WHEN excluded."until" > abaca_erased."until" THEN excluded."until" ELSE abaca_erased."until" END'
)
AUDIT = "INSERT INTO abaca_audit (time, who, what, subject) VALUES (?, ?, ?, ?)"
OF_USER = ("abaca_events", "abaca_feedback")


def key_of(salt: str, kind: str, name: str) -> str:
    """The digest of a user or of an event's id; whoever has the salt can only try names."""
    return hashlib.sha256(f"{salt}\0{kind}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()


def _salt(run: Run) -> str:
    """The salt of the store now: restoring a backup into an empty store may have changed it."""
    return str(run(FIND_SALT).fetchone()[0])


def without_erased(run: Run, batches: Sequence[Rows]) -> list[Rows]:
    """Batches without rows that a tombstone refuses; a row begins with id, user, item and time."""
    if run(ANY).fetchone() is None:
        return list(batches)
    salt = _salt(run)
    keys = {
        (kind, row[place]): key_of(salt, kind, row[place])
        for rows in batches
        for row in rows
        for place, kind in enumerate(("id", "user"))
    }
    until: dict[str, float] = {}
    wanted = list(keys.values())
    for begin in range(0, len(wanted), AT_ONCE):
        some = wanted[begin : begin + AT_ONCE]
        until.update(run(FIND.format(keys=", ".join("?" * len(some))), *some).fetchall())

    def is_erased(row: Sequence[Any]) -> bool:
        found = (until.get(keys[kind, row[place]]) for place, kind in enumerate(("id", "user")))
        return any(moment is not None and row[TIME] <= moment for moment in found)

    return [[row for row in rows if not is_erased(row)] for rows in batches]


def bury(run: Run, tombstones: Sequence[tuple[str, float]]) -> int:
    """Add tombstones, each key once; the later moment counts. Their number."""
    for begin in range(0, len(tombstones), AT_ONCE):
        some = tombstones[begin : begin + AT_ONCE]
        run(BURY.format(rows=", ".join(["(?, ?)"] * len(some))), *(value for row in some for value in row))
    return len(tombstones)


def erase(run: Run, user: str, who: str) -> int:
    """Delete the rows of a user in a transaction, and bury the user; the number of events."""
    salt, now, deleted = _salt(run), time.time(), []
    for table in OF_USER:
        ids = run(f'SELECT id FROM {table} WHERE "user" = ?', user).fetchall()
        bury(run, [(key_of(salt, "id", id), ALWAYS) for (id,) in ids])
        deleted.append(run(f'DELETE FROM {table} WHERE "user" = ?', user).rowcount)
    bury(run, [(key_of(salt, "user", user), now)])
    run(AUDIT, now, who, "erase", key_of(salt, "user", user)[:16])
    return int(deleted[0])


def prune(run: Run, before: float, who: str) -> int:
    """Delete all rows before a time; their number."""
    deleted = sum(int(run(f"DELETE FROM {table} WHERE time < ?", before).rowcount) for table in OF_USER)
    run(AUDIT, time.time(), who, "prune", f"before {before:.0f}")
    return deleted

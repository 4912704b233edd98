"""The tables of a store and their version: new stores are made, older ones migrated, newer ones refused."""

import secrets
from collections.abc import Callable
from typing import Any

from abaca.errors import StoreError

VERSION = 2
"""Of the tables. Version 1 had no types, tombstones, audit and secret; it is migrated when it is opened."""

Run = Callable[..., Any]
"""Runs a statement with values in a transaction and returns its cursor."""

STORE = "CREATE TABLE IF NOT EXISTS abaca_store (version INTEGER NOT NULL)"
FIND_VERSION = "SELECT max(version) FROM abaca_store"
FIND_SALT = "SELECT salt FROM abaca_secret"
TABLES = (
    """
    CREATE TABLE IF NOT EXISTS abaca_events (
      place {number} PRIMARY KEY{numbered},
      id TEXT NOT NULL UNIQUE,
      "user" TEXT NOT NULL,
      item TEXT NOT NULL,
      time DOUBLE PRECISION NOT NULL,
      type TEXT
    )
    """,
    'CREATE INDEX IF NOT EXISTS abaca_events_of_user ON abaca_events ("user", time, place)',
    """
    CREATE TABLE IF NOT EXISTS abaca_feedback (
      place {number} PRIMARY KEY{numbered},
      id TEXT NOT NULL UNIQUE,
      "user" TEXT NOT NULL,
      item TEXT NOT NULL,
      time DOUBLE PRECISION NOT NULL,
      kind TEXT NOT NULL,
      model TEXT NOT NULL
    )
    """,
    'CREATE INDEX IF NOT EXISTS abaca_feedback_of_user ON abaca_feedback ("user", item, kind, time)',
    # tombstones: digests of erased users and of the ids of their events, never the ids themselves
    'CREATE TABLE IF NOT EXISTS abaca_erased (key TEXT PRIMARY KEY, "until" DOUBLE PRECISION NOT NULL)',
    """
    CREATE TABLE IF NOT EXISTS abaca_audit (
      place {number} PRIMARY KEY{numbered},
      time DOUBLE PRECISION NOT NULL,
      who TEXT NOT NULL,
      what TEXT NOT NULL,
      subject TEXT NOT NULL
    )
    """,
    "CREATE TABLE IF NOT EXISTS abaca_secret (salt TEXT NOT NULL)",
)
ADDED_COLUMNS = {"abaca_events": {"type": "TEXT"}}
"""Columns that tables of an earlier version lack; they are empty in its rows."""


def make_layout(run: Run, where: str, number: str, numbered: str = "") -> str:
    """Make or migrate the tables in a transaction; the store's salt, by which tombstones are digested."""
    run(STORE)
    found = run(FIND_VERSION).fetchone()[0]
    check_version(found, where)
    for statement in TABLES:
        run(statement.format(number=number, numbered=numbered))
    _add_columns(run)
    if found is None:
        run("INSERT INTO abaca_store (version) VALUES (?)", VERSION)
    elif found < VERSION:
        run("UPDATE abaca_store SET version = ?", VERSION)
    if run(FIND_SALT).fetchone() is None:
        run("INSERT INTO abaca_secret (salt) VALUES (?)", secrets.token_hex(16))
    return str(run(FIND_SALT).fetchone()[0])


def _add_columns(run: Run) -> None:
    """Add the columns that are missing."""
    for table, columns in ADDED_COLUMNS.items():
        known = {column[0] for column in run(f"SELECT * FROM {table} LIMIT 0").description}
        for name in columns.keys() - known:
            run(f"ALTER TABLE {table} ADD COLUMN {name} {columns[name]}")


def check_version(found: int | None, where: str) -> None:
    """Refuse tables of a version that this release cannot read."""
    if found is not None and not 1 <= found <= VERSION:
        raise StoreError(
            f"{where} has tables of version {found}, this release reads versions 1 to {VERSION}; update abaca"
        )

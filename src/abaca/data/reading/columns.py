"""Which column of a log holds the user, the item, the time and the event."""

import re
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from abaca.errors import LogError

USERS = (
    *("user", "customer", "client", "visitor", "member", "household", "account", "reviewer", "player", "student"),
    *("listener", "session"),
)
ITEMS = (
    *("item", "product", "sku", "article", "movie", "track", "song", "artist", "video", "book", "game", "app"),
    *("business", "venue", "location", "poi", "skill", "streamer", "page", "good"),
)
KNOWN = {
    "user": (*(name + end for name in USERS for end in ("id", "key", "")), "username"),
    "item": (*(name + end for name in ITEMS for end in ("id", "key", "")), "stockcode", "parentasin", "asin", "isbn"),
    "time": (
        *("timestamp", "time", "ts", "datetime", "date", "eventtime", "eventtimestamp", "unixtime", "unixreviewtime"),
        *("createdat", "purchasedat", "transactiontimestamp", "transactiontime", "transactiondate", "invoicedate"),
        *("orderdate", "ratingtimestamp", "checkintime", "starttime"),
    ),
    "event": ("eventtype", "event", "actiontype", "action", "behaviortype", "behavior", "behaviourtype", "behaviour"),
}
"""Names that are recognised, in lower case and without signs. Of several in a log the first here is
taken: an id before a key before a name, a user before a customer."""


class Columns(NamedTuple):
    """The names of a log's columns; None where it has no such column."""

    user: str
    item: str
    time: str | None = None
    event: str | None = None


class Wanted(NamedTuple):
    """The requested column names; None means: recognise it."""

    user: str | None = None
    item: str | None = None
    time: str | None = None
    event: str | None = None
    before: Columns | None = None
    """The columns of an earlier log, taken before any other that is recognised."""


def choose(found: Sequence[str], wanted: Wanted, where: str) -> Columns:
    """The columns to read: those requested, else those recognised."""
    user = _column("user", found, wanted, where)
    item = _column("item", found, wanted, where)
    if user is None or item is None:
        missing = "user" if user is None else "item"
        raise LogError(
            f"{where}: no column looks like the {missing}; the first line names the columns {_listed(found)}; "
            f"pass `{missing}=COLUMN`"
        )
    chosen = Columns(user, item, _column("time", found, wanted, where), _column("event", found, wanted, where))
    for (role, column), (other, same) in combinations(chosen._asdict().items(), 2):
        if column is not None and column == same:
            raise LogError(
                f"{where}: column {column!r} cannot be both the {role} and the {other}; pass `{role}` and `{other}`"
            )
    return chosen


def candidates(role: str, found: Sequence[str]) -> list[str]:
    """The columns recognised for a role, the one to take first."""
    ranks = {known: rank for rank, known in enumerate(KNOWN[role])}
    known = [column for column in found if _plain(column) in ranks]
    return sorted(known, key=lambda column: ranks[_plain(column)])


def passed_over(found: Sequence[str], wanted: Wanted, chosen: Columns) -> dict[str, list[str]]:
    """Other columns recognised for a role, if none was requested for it."""
    rivals = {
        role: [column for column in candidates(role, found) if column not in chosen]
        for role in Columns._fields
        if getattr(wanted, role) is None
    }
    return {role: columns for role, columns in rivals.items() if columns}


def check_once(column: str, found: Sequence[str], where: str) -> None:
    """Refuse a column name that occurs twice."""
    if (count := list(found).count(column)) > 1:
        raise LogError(f"{where}: {count} columns are named {column!r}; rename them, so that each name is there once")


def _column(role: str, found: Sequence[str], wanted: Wanted, where: str) -> str | None:
    column: str | None = getattr(wanted, role)
    if column is not None and column not in found:
        raise LogError(
            f"{where}: there is no column {column!r}; it has {_listed(found)}; pass `{role}=COLUMN` with one of them"
        )
    if column is None:
        before, free = getattr(wanted.before, role, None), [name for name in found if name not in wanted]
        column = before if before in free else recognise(role, free, where)
    if column is not None:
        check_once(column, found, where)
    return column


def recognise(role: str, found: Sequence[str], where: str) -> str | None:
    """The column recognised for a role, if there is one; two equal matches are an error."""
    known = candidates(role, found)
    alike = [column for column in known if _plain(column) == _plain(known[0]) and column != known[0]]
    if alike:
        raise LogError(
            f"{where}: columns {_listed([known[0], *alike])} look alike for the {role}; pass `{role}=COLUMN`"
        )
    return known[0] if known else None


def _plain(column: str) -> str:
    return re.sub(r"[\W_]+", "", column.lower())


def _listed(found: Sequence[str]) -> str:
    shown = ", ".join(repr(column) for column in found[:20])
    return shown + (f" and {len(found) - 20} more" if len(found) > 20 else "")

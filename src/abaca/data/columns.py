"""Which column of a log holds the user, the item, the time and the event."""

import re
from collections.abc import Sequence
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
"""Names that are recognised, in lower case and without signs; the first that a log has is taken."""


class Columns(NamedTuple):
    """The names of a log's columns; None where it has no such column."""

    user: str
    item: str
    time: str | None = None
    event: str | None = None


class Wanted(NamedTuple):
    """The column names that were asked for; None means: recognise it."""

    user: str | None = None
    item: str | None = None
    time: str | None = None
    event: str | None = None


def choose(found: Sequence[str], wanted: Wanted, where: str) -> Columns:
    """The columns to read, as asked for or recognised among those found; an error names what was found."""
    user = _column("user", found, wanted.user, where)
    item = _column("item", found, wanted.item, where)
    if user is None or item is None:
        missing = "user" if user is None else "item"
        raise LogError(
            f"{where}: no column looks like the {missing}; the first line names the columns {_listed(found)}; "
            f"pass --{missing} COLUMN"
        )
    if user == item:
        raise LogError(f"{where}: column {user!r} cannot be both the user and the item; pass --user and --item")
    time = _column("time", found, wanted.time, where)
    return Columns(user, item, time, _column("event", found, wanted.event, where))


def recognise(role: str, found: Sequence[str]) -> str | None:
    """The column that is known to play a role, if there is one."""
    plain = {re.sub(r"[\W_]+", "", column.lower()): column for column in reversed(found)}
    return next((plain[known] for known in KNOWN[role] if known in plain), None)


def _column(role: str, found: Sequence[str], wanted: str | None, where: str) -> str | None:
    if wanted is None:
        return recognise(role, found)
    if wanted not in found:
        raise LogError(
            f"{where}: there is no column {wanted!r}; it has {_listed(found)}; pass --{role} with one of them"
        )
    return wanted


def _listed(found: Sequence[str]) -> str:
    shown = ", ".join(repr(column) for column in found[:20])
    return shown + (f" and {len(found) - 20} more" if len(found) > 20 else "")

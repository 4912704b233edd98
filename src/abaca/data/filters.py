"""Filters: which interactions of a log are kept, counted by what drops the others."""

from collections import Counter
from collections.abc import Sequence

from abaca.data.log import Log
from abaca.data.reading.values import parse_time
from abaca.data.store import Store, number, text
from abaca.errors import SpecError

Dropped = Counter[str]
"""How many interactions each filter dropped; a filter that ran and dropped nothing has 0."""


def code_ids(store: Store) -> None:
    """Number users and items by id: `user_codes(id, code)`, `item_codes(id, code)`."""
    for role in ("user", "item"):
        ids = f'SELECT DISTINCT "{role}" AS id FROM log'
        store.replace(
            f"{role}_codes", f"SELECT id, (row_number() OVER (ORDER BY id) - 1)::INTEGER AS code FROM ({ids})"
        )


def keep_events_and_times(
    log: Log, events: Sequence[str] | None, since: float | str | None, until: float | str | None, *, single: bool
) -> Dropped:
    """Make `kept(row, user, item, time)`, in codes, of the interactions of these events with since ≤ time < until.

    What is kept of a time is all of it, or what a number of single precision can hold.
    """
    if events is not None and log.without_event is not None:
        raise SpecError(f"`events` needs event types, and {log.without_event} has no such column, as other files have")
    if events is not None and not log.has_event:
        raise SpecError("`events` needs a column that says what an interaction is; pass `event=COLUMN`")
    if not log.has_time and not (since is None and until is None):
        raise SpecError("`since` and `until` need times, and the log has none; pass `time=COLUMN`")
    store, dropped = log.store, Counter[str]()
    is_event = "true" if events is None else event_sql(events)
    bounds = [
        f'"time" {sign} {number(parse_time(store, moment, name, dates=log.dates))}'
        for sign, moment, name in ((">=", since, "`since`"), ("<", until, "`until`"))
        if moment is not None
    ]
    in_range = " AND ".join(bounds) or "true"
    code_ids(store)
    time = '"time"::FLOAT::DOUBLE' if single else '"time"'
    store.replace(
        "kept",
        f'SELECT "row", u.code AS "user", i.code AS item, {time} AS "time" FROM log '
        'JOIN user_codes u ON u.id = log."user" JOIN item_codes i ON i.id = log.item '
        f"WHERE {is_event} AND {in_range}",
    )
    if events is not None:
        dropped["events"] = store.value(f"SELECT count(*) FROM log WHERE NOT ({is_event})")
    if bounds:
        dropped["time range"] = store.value(f"SELECT count(*) FROM log WHERE {is_event} AND NOT ({in_range})")
    return dropped


def event_sql(events: Sequence[str]) -> str:
    """Whether an interaction is one of these events."""
    return f"coalesce(event IN ({', '.join(text(str(event)) for event in events)}), false)"


def keep_frequent(store: Store, min_user: int, min_item: int, *, drop_consecutive: bool) -> Dropped:
    """Shrink `kept` until no filter changes it: consecutive duplicates, users with few interactions, rare items."""
    dropped, changed = Counter[str](), True
    while changed:
        changed = False
        if drop_consecutive:
            changed |= _shrink(store, dropped, "consecutive duplicates", without_consecutive("kept"))
        if min_user > 1:
            changed |= _shrink(store, dropped, "min-user", _with_at_least("user", min_user))
        if min_item > 1:
            changed |= _shrink(store, dropped, "min-item", _with_at_least("item", min_item))
    return dropped


def _shrink(store: Store, dropped: Dropped, filter: str, sql: str) -> bool:
    before = store.value("SELECT count(*) FROM kept")
    store.replace("kept", sql)
    lost = before - store.value("SELECT count(*) FROM kept")
    dropped[filter] += lost
    return bool(lost)


def _with_at_least(role: str, least: int) -> str:
    frequent = f'SELECT "{role}" FROM kept GROUP BY "{role}" HAVING count(*) >= {least}'
    return f'SELECT * FROM kept WHERE "{role}" IN ({frequent})'


def without_consecutive(rows: str) -> str:
    """Of a user's consecutive interactions with the same item the first only."""
    before = 'lag(item) OVER (PARTITION BY "user" ORDER BY "time", "row")'
    return f"SELECT * FROM {rows} QUALIFY {before} IS DISTINCT FROM item"

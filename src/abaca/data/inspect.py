"""Inspecting a log before training."""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from abaca.data.database import Database
from abaca.data.log import Log
from abaca.data.splits import as_date

QUANTILES = {"min": 0.0, "25%": 0.25, "50%": 0.5, "75%": 0.75, "90%": 0.9, "99%": 0.99, "max": 1.0}

GIGAFLOPS = 15.0
"""Assumed for one core in training, everything included."""


@dataclass(frozen=True)
class LogSummary:
    """What is in a log."""

    names: tuple[str, ...]
    """Its files."""
    columns: dict[str, str | None]
    """Which column was taken for the user, the item, the time and the event."""
    passed_over: dict[str, list[str]]
    """Columns that look like one of them too and were not taken."""
    users: int
    items: int
    interactions: int
    lengths: dict[str, int]
    """Interactions per user: min, 25%, 50%, 75%, 90%, 99%, max."""
    repeat_share: float
    """Of all interactions, those whose item the user had before."""
    last_repeat_share: float
    """Of the users with at least two interactions, those whose last item they had before."""
    tied_share: float | None
    """Of all interactions, those at the time of another of the same user; None without times."""
    duplicates: int
    """Interactions that are the same user, item and time once more."""
    times: tuple[float, float] | None
    """First and last time, as the log has them."""
    dates: tuple[str, str] | None
    """The same as ISO dates, where they are plausibly unix seconds or milliseconds."""
    spaced: int
    """Interactions whose user or item has blanks around it, which make it another id."""
    events: dict[str, int]
    """The most frequent values of the event column, at most ten, with their interactions."""
    bad_rows: dict[str, int]
    """Rows left out, by what was wrong."""
    prepared_bytes: int
    """About what the prepared folder takes on disk; it is memory-mapped, not loaded."""
    epoch_seconds: float
    """About what one epoch of training takes on this machine's cores, see `epoch_seconds`."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return dataclasses.asdict(self) | {"names": list(self.names)}


def inspect(log: Log) -> LogSummary:
    """Count what is in a log; all of it in DuckDB."""
    database = log.database
    users, items = database.row('SELECT count(DISTINCT "user"), count(DISTINCT item) FROM log')
    times = database.row('SELECT min("time"), max("time") FROM log') if log.has_time else None
    dates = (as_date(times[0]), as_date(times[1])) if times is not None else (None, None)
    pairs = database.value('SELECT count(*) FROM (SELECT DISTINCT "user", item FROM log)')
    distinct = database.value('SELECT count(*) FROM (SELECT DISTINCT "user", item, "time", rest FROM log)')
    return LogSummary(
        names=log.names,
        columns=log.columns._asdict(),
        passed_over=log.passed_over,
        users=users,
        items=items,
        interactions=log.rows,
        lengths=_lengths(database),
        repeat_share=(log.rows - pairs) / log.rows,
        last_repeat_share=_last_repeat_share(database),
        tied_share=_tied(database) / log.rows if log.has_time else None,
        duplicates=log.rows - distinct if log.has_time else 0,
        times=None if times is None else (times[0], times[1]),
        dates=None if dates[0] is None or dates[1] is None else (dates[0], dates[1]),
        spaced=_spaced(database),
        events=log.event_counts(),
        bad_rows=log.bad_rows,
        prepared_bytes=prepared_bytes(log.rows, users, items, timed=log.has_time),
        epoch_seconds=epoch_seconds(max(log.rows - 3 * users, 0), items, cores=os.cpu_count() or 1),
    )


def prepared_bytes(interactions: int, users: int, items: int, *, timed: bool) -> int:
    """Bytes of items and times per interaction, and of offset, split, targets and id per user."""
    return interactions * (12 if timed else 4) + users * (8 + 8 + 32 + 8) + items * 8


def epoch_seconds(targets: int, items: int, *, cores: int, size: int = 64) -> float:
    """A rough estimate: each target costs 6 · V · d operations, forward and backward.

    It assumes GIGAFLOPS per core. With a small catalogue encoder and overlap cost more.
    """
    return 6.0 * targets * items * size / (GIGAFLOPS * 1e9 * cores)


def _lengths(database: Database) -> dict[str, int]:
    shares = ", ".join(str(share) for share in QUANTILES.values())
    per_user = 'SELECT count(*) AS n FROM log GROUP BY "user"'
    found = database.value(f"SELECT quantile_disc(n, [{shares}]) FROM ({per_user})")
    return dict(zip(QUANTILES, (int(length) for length in found), strict=True))


def _last_repeat_share(database: Database) -> float:
    order = '{t: coalesce("time", 0), s: rest, r: "row"}'
    last = f'SELECT "user", max_by(item, {order}) AS item, count(*) AS n FROM log GROUP BY "user"'
    counted = 'SELECT "user", item, count(*) AS times FROM log GROUP BY "user", item'
    share = database.value(
        f"SELECT avg((times > 1)::INTEGER) FROM ({last}) l JOIN ({counted}) c "
        'ON l."user" = c."user" AND l.item = c.item WHERE n > 1'
    )
    return float(share or 0.0)


def _tied(database: Database) -> int:
    groups = 'SELECT count(*) AS n FROM log GROUP BY "user", "time", rest HAVING count(*) > 1'
    return int(database.value(f"SELECT coalesce(sum(n), 0) FROM ({groups})"))


def _spaced(database: Database) -> int:
    spaced = " OR ".join(f"regexp_matches({role}::VARCHAR, '^\\s|\\s$')" for role in ('"user"', "item"))
    return int(database.value(f"SELECT count(*) FROM log WHERE {spaced}"))

"""Reading an interaction log, from files or a table in memory, into one DuckDB table."""

import os
from pathlib import Path
from typing import Any, Literal, Self

from abaca.data.database import Database, enough_room
from abaca.data.engine import Engine, SQLEngine, Tables
from abaca.data.reading.columns import Columns, Wanted, choose
from abaca.data.reading.formats import LogFile, open_files
from abaca.data.reading.staging import Found, Staging
from abaca.data.reading.tables import is_table, to_arrow
from abaca.errors import LogError, SpecError

OnBadRow = Literal["error", "skip"]


class BaseLog:
    """What is known of an interaction log, whichever engine holds its rows."""

    def __init__(self, found: Found, rows: int, names: tuple[str, ...], path: Path | None = None) -> None:
        self.path = path
        """The file or folder it was read from; None for a table."""
        self.names = names
        """File names, without their folders."""
        self.columns: Columns = found.columns
        """The columns that were read, as the log names them."""
        self.passed_over: dict[str, list[str]] = found.passed_over
        """Columns that were recognised for a role too and not taken, by role."""
        self.dates = found.dates
        """Whether times are dates, in seconds; else they are numbers as they were given."""
        self.without_event: str | None = found.without_event
        """A file without a column of event types, where others have one."""
        self.on_bad_row: OnBadRow = "skip" if found.skip else "error"
        self.bad_rows: dict[str, int] = dict(found.bad_rows)
        """How many rows were left out, by what was wrong with them."""
        self.rows = rows
        if rows == 0:
            bad = sum(self.bad_rows.values())
            why = f"all {bad} rows were bad and skipped" if bad else "there is no interaction after the column names"
            shown = names[0] if len(names) == 1 else f"{len(names)} files"
            raise LogError(f"{shown}: the log is empty: {why}; check that this is the right file")

    @property
    def has_time(self) -> bool:
        """Whether the log has times; without, file order is the order."""
        return self.columns.time is not None

    @property
    def has_event(self) -> bool:
        """Whether the log has a column of event types."""
        return self.columns.event is not None

    def tables(self) -> Tables:
        """The tables that hold the rows, for an engine."""
        raise NotImplementedError

    def engine(self) -> Engine:
        """What prepares the log."""
        return SQLEngine(self.tables())

    def event_counts(self, most: int = 10) -> dict[str, int]:
        """The values of the event column with their interactions, most first; at most this many."""
        tables = self.tables()
        counted = (
            f"SELECT log.event AS event, count(*) AS n FROM {tables.named('log')} AS log WHERE log.event IS NOT NULL "
            f"GROUP BY log.event ORDER BY n DESC, event LIMIT {most}"
        )
        rows = [row for batch in tables.batches(counted) for row in batch.to_pylist()]
        return {row["event"]: row["n"] for row in rows}

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"Log({', '.join(self.names)}: {self.rows} interactions)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what holds the rows."""


class Log(BaseLog):
    """An interaction log as the view `log(row, user, item, time, rest, event)` of a DuckDB database.

    `row` is the place in the log: files by path, then rows. `time` is a DOUBLE, seconds for dates,
    else the given number. `rest` is what a large integer has beyond the DOUBLE.
    """

    def __init__(self, database: Database, found: Found, names: tuple[str, ...], path: Path | None = None) -> None:
        self.database = database
        super().__init__(found, database.value("SELECT count(*) FROM log"), names, path)

    def tables(self) -> Tables:
        return self.database

    def close(self) -> None:
        """Delete the temporary database; losing the object does so too."""
        self.database.close()


def read_log(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    event: str | None = None,
    on_bad_row: OnBadRow = "error",
    like: Columns | None = None,
) -> Log:
    """Read a log from a file, a folder of files, or a pandas, polars or Arrow table.

    Columns are those named, else those of the earlier log it is `like`, else recognised.
    Ids are text or integers and kept as they are, blanks too; those of CSV and TSV are text.
    Without a time column, file order (by path, then row) is the order.
    A bad row is an error with its line; `on_bad_row="skip"` leaves such rows out and counts them.
    """
    if on_bad_row not in ("error", "skip"):
        raise SpecError(f"`on_bad_row` is error or skip, got {on_bad_row!r}")
    if isinstance(source, Log):
        return source
    database = Database()
    try:
        with enough_room():
            return _read(
                database, source, Staging(database, Wanted(user, item, time, event, like), skip=on_bad_row == "skip")
            )
    except BaseException:
        database.close()
        raise


def _read(database: Database, source: Any, staging: Staging) -> Log:
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        files = open_files(path)
        check_stray([file for file in files if file.columns], staging.wanted)
        for file in files:
            if file.columns:
                staging.add_file(file)
        names = tuple(file.name for file in files)
    elif is_table(source):
        path = None
        staging.add_table(to_arrow(source))
        names = ("table",)
    else:
        raise LogError(
            f"a log is a file, a folder or a table, not a {type(source).__name__}; collect lazy frames first"
        )
    shown = names[0] if len(names) == 1 else f"{len(names)} files"
    if not staging.begun:
        raise LogError(f"{shown}: the log is empty; it needs a first line that names the columns, and interactions")
    database.run(
        'CREATE VIEW log AS SELECT rowid AS "row", "user", item, "time", rest, event FROM staged WHERE bad = 0'
    )
    return Log(database, staging.found(), names, path)


def check_stray(files: list[LogFile], wanted: Wanted) -> None:
    """Refuse a folder in which some files have the columns of a log and some do not."""
    faults: dict[str, LogError] = {}
    for file in files:
        try:
            choose(file.columns, wanted, file.name)
        except LogError as error:
            faults[file.name] = error
    if faults and len(faults) < len(files):
        name, fault = next(iter(faults.items()))
        raise LogError(f"{fault}; or move {name} out of the folder if it is no part of the log") from fault

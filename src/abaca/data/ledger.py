"""The ledger: the rows of a log as a table, kept beside a model so that later rows can be added to them.

Columns are user, item and, where the log has them, time and event. Rows are in the order of time; rows of the same time
are in the order of the log. Reading the table again as a log gives the same interactions in the same order.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute as compute

from abaca.data.catalogue import INTEGER
from abaca.data.engine import ORDER
from abaca.data.log import Log, read_log
from abaca.data.reading.values import UNITS, unix_unit
from abaca.errors import LogError

ROLES = ("user", "item", "time", "event")


class Joined(NamedTuple):
    """A ledger with later rows at its end."""

    table: pyarrow.Table
    added: int
    """Rows that are new."""
    skipped: int
    """Rows before the last time of the ledger, and those at that time that it has already."""


def rows_of(log: Log) -> pyarrow.Table:
    """The rows of a log, in order."""
    taken = [role for role in ROLES if getattr(log.columns, role) is not None]
    fields = ", ".join(f'"{role}"' for role in taken)
    return log.database.batches(f"SELECT {fields} FROM log ORDER BY {ORDER}").read_all()


def as_log(table: pyarrow.Table) -> Log:
    """A ledger as a log."""
    user, item, time, event = (role if role in table.column_names else None for role in ROLES)
    return read_log(table, user=user, item=item, time=time, event=event)


def last_time(table: pyarrow.Table) -> float | None:
    """The last time of a ledger; None without times."""
    if "time" not in table.column_names:
        return None
    found: float | None = compute.max(table["time"]).as_py()
    return found


def join(before: pyarrow.Table, log: Log) -> Joined:
    """The rows of a ledger, and after them those of a log that are new; without times, all of them.

    New are later rows, and those at the last time of the ledger that it does not have.
    """
    missing = [role for role in before.column_names if getattr(log.columns, role) is None]
    if missing:
        raise LogError(f"{', '.join(log.names)} has no column of {' and '.join(missing)}s, the training log had one")
    rows = rows_of(log).select(before.column_names)
    last, read = last_time(before), rows.num_rows
    if last is not None:
        rows = _in_unit(rows, log, last)
        rows = rows.filter(compute.greater_equal(rows["time"], last))
    for role in ("user", "item"):
        rows = _spelled(rows, role, before[role].type, skip=log.on_bad_row == "skip")
    rows = rows.cast(before.schema)
    if last is not None:
        ties, known = (part.filter(compute.equal(part["time"], last)) for part in (rows, before))
        rows = pyarrow.concat_tables([_without(ties, known), rows.filter(compute.greater(rows["time"], last))])
    joined = pyarrow.concat_tables([before, rows])
    return Joined(joined, rows.num_rows, read - rows.num_rows)


def _without(rows: pyarrow.Table, known: pyarrow.Table) -> pyarrow.Table:
    """Rows without those that are known; of equal rows as many stay as are not known."""
    left, new = Counter(_as_tuples(known)), []
    for row in _as_tuples(rows):
        new.append(not left[row])
        left[row] -= left[row] > 0
    return rows.filter(pyarrow.array(new, type=pyarrow.bool_()))


def _as_tuples(table: pyarrow.Table) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[role].to_pylist() for role in table.column_names), strict=True)


def _in_unit(rows: pyarrow.Table, log: Log, last: float) -> pyarrow.Table:
    """Rows whose times, where both count from 1970, have the unit of the ledger."""
    latest = last_time(rows)
    own = "seconds" if log.dates else None if latest is None else unix_unit(latest)
    unit = unix_unit(last)
    if own is None or unit is None or own == unit:
        return rows
    factor = UNITS[unit] / UNITS[own]
    return rows.set_column(rows.column_names.index("time"), "time", compute.multiply(rows["time"], factor))


def _spelled(rows: pyarrow.Table, role: str, kind: pyarrow.DataType, *, skip: bool) -> pyarrow.Table:
    """Rows with ids as the ledger spells them: 7 for "7" where its ids are integers."""
    if pyarrow.types.is_integer(kind) and not pyarrow.types.is_integer(rows[role].type):
        spells = compute.match_substring_regex(rows[role], f"^({INTEGER.pattern})$")
        if not skip and not (compute.all(spells).as_py() or not rows.num_rows):
            other = rows.filter(compute.invert(spells))[role][0]
            raise LogError(
                f"{role} {other.as_py()!r} is not an integer, as the {role}s of the training log are; fix the log, or "
                "leave such rows out with `on_bad_row='skip'`"
            )
        rows = rows.filter(spells)
    return rows.set_column(rows.column_names.index(role), role, rows[role].cast(kind))

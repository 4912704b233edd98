"""`abaca store check`, `backup`, `restore`, `export`, `erase` and `prune`."""

import getpass
import json as jsons
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.durable import write_text
from abaca.errors import BusyError, SpecError, StoreError

if TYPE_CHECKING:
    from abaca.serve.events import Store

SECONDS = 3600.0
"""Longest time of a statement: some read or delete everything."""
AGES = {"d": 86_400.0, "w": 604_800.0, "m": 30 * 86_400.0, "y": 365 * 86_400.0}

STORE = "A SQLite file, or postgresql://USER@HOST/NAME."
StoreArgument = Annotated[
    str,
    typer.Argument(metavar="STORE", envvar="ABACA_STORE", show_envvar=False, help=f"{STORE} Or set ABACA_STORE."),
]
GivenStore = Annotated[str, typer.Argument(metavar="STORE", help=STORE)]
"""Before another argument STORE is always given: one that is forgotten must not shift the other into its place."""
User = Annotated[str, typer.Argument(metavar="USER", help="The id of a user, as events have it.")]


@contextmanager
def opened_store(address: str, *, new: bool = False) -> Iterator["Store"]:
    """A store within a block; one that is not there is made only with `new`."""
    from abaca.serve.store import open_store

    if not new and "://" not in address and not Path(address).is_file():
        raise StoreError(f"{address} does not exist; give the file of a store")
    store = open_store(address, SECONDS)
    try:
        yield store
    except BusyError as error:
        raise StoreError(f"{error}; try again when the store can be used") from error
    finally:
        store.close()


def _who() -> str:
    try:
        return f"{getpass.getuser()} at the command line"
    except (OSError, KeyError):
        return "the command line"


def check(store: StoreArgument, json: Json = False) -> None:
    """Count what a store holds, and look for damage; the exit code is 1 where there is some.

    Example: [bold]abaca store check events.db[/]
    """
    from abaca.serve.life import figures

    with opened_store(store) as opened:
        found = figures(opened)
    if json:
        show.as_json(found)
    else:
        for name, value in found.items():
            shown = "; ".join(value) or "none" if isinstance(value, list) else value
            show.console().print(f"{name:<9} {escape(str(shown))}", soft_wrap=True, highlight=False)
    if found["faults"]:
        raise typer.Exit(1)


def backup(
    store: GivenStore,
    to: Annotated[Path, typer.Argument(metavar="FILE", help="The copy: a SQLite file; one that is there is replaced.")],
) -> None:
    """Copy a store into a file, as of one moment, also while a server writes to it.

    Example: [bold]abaca store backup events.db backup.db[/]
    """
    from abaca.serve.life import backup as write

    with opened_store(store) as opened:
        counts = write(opened, to)
    show.console().print(f"{escape(str(to))}: {_counted(counts)}", soft_wrap=True, highlight=False)


def restore(
    store: GivenStore,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `abaca store backup` wrote.")],
) -> None:
    """Add what a backup holds and a store lacks. Users who were erased since the backup stay erased.

    Example: [bold]abaca store restore events.db backup.db[/]
    """
    from abaca.serve.life import restore as add

    if not source.is_file():
        raise StoreError(f"{source} does not exist; give a file that `abaca store backup` wrote")
    with opened_store(store, new=True) as opened:
        counts = add(opened, source, _who())
    show.console().print(f"restored {_counted(counts)}", soft_wrap=True, highlight=False)


def export(
    store: GivenStore,
    user: User,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write it here; else it is printed.")] = None,
) -> None:
    """Write all that a store holds of a user, with times, as JSON.

    Example: [bold]abaca store export events.db c7 --to c7.json[/]
    """
    from abaca.serve.life import export_user

    with opened_store(store) as opened:
        found = export_user(opened, user, _who())
    if to is None:
        return show.as_json(found)
    write_text(to, jsons.dumps(found, indent=1, ensure_ascii=False) + "\n", StoreError)
    show.console().print(f"{escape(str(to))}: {len(found['events'])} events", soft_wrap=True, highlight=False)
    return None


def erase(store: GivenStore, user: User, json: Json = False) -> None:
    """Delete all that a store holds of a user; copies of the events that arrive later are refused.

    Example: [bold]abaca store erase events.db c7[/]

    A server with --learn keeps its counts until it is reloaded: send DELETE /users/USER to it instead.
    """
    with opened_store(store) as opened:
        deleted = opened.forget(user, _who())
        _vacuum(opened)
    show.as_json({"deleted": deleted}) if json else show.console().print(f"{deleted} events deleted")


def prune(
    store: StoreArgument,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Such as 90d, 12w, 6m (of 30 days) or 2y (of 365).")
    ],
    json: Json = False,
) -> None:
    """Delete all events and all feedback that are older than an age.

    Example: [bold]abaca store prune events.db --older-than 2y[/]
    """
    seconds = seconds_of(older_than)
    with opened_store(store) as opened:
        deleted = opened.prune(time.time() - seconds, _who())
        _vacuum(opened)
    show.as_json({"deleted": deleted}) if json else show.console().print(f"{deleted} rows deleted")


def seconds_of(age: str) -> float:
    """The seconds of an age such as 90d."""
    written = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([dwmy])", age.strip().lower())
    if written is None:
        raise SpecError(f"--older-than {age!r} is not an age; write a number with d, w, m or y, such as 90d or 2y")
    return float(written[1]) * AGES[written[2]]


def _vacuum(store: "Store") -> None:
    """Take deleted rows out of a PostgreSQL database, which keeps them until then."""
    vacuum = getattr(store, "vacuum", None)
    if vacuum is not None:
        vacuum()


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def add_to(group: typer.Typer) -> None:
    for command in (check, backup, restore, export, erase, prune):
        group.command(command.__name__)(command)

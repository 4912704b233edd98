"""Options that several commands share: which columns a log has, and how it is prepared."""

from pathlib import Path
from typing import Annotated, Any

import typer

from abaca.data.log import Log, read_log
from abaca.data.sequences import is_prepared
from abaca.errors import SpecError

User = Annotated[str | None, typer.Option("--user", help="Column of users; recognised when not given.")]
Item = Annotated[str | None, typer.Option("--item", help="Column of items; recognised when not given.")]
Time = Annotated[
    str | None, typer.Option("--time", help="Column of times (a number or an ISO date); without one, file order.")
]
Event = Annotated[str | None, typer.Option("--event", help="Column of event types, which the model reads.")]
Events = Annotated[
    list[str] | None, typer.Option("--events", help="Keep these values of the event column; repeatable.")
]
TargetsOf = Annotated[
    list[str] | None,
    typer.Option("--targets-of", help="Predict events of this type, learn from all; repeatable.", metavar="TYPE"),
]
OnBadRow = Annotated[
    str | None, typer.Option("--on-bad-row", help="error: stop and report the line; skip: omit the row and count it.")
]
LOG_HELP = "CSV, TSV, Parquet, JSON lines (also compressed), RecBole .inter, or a folder of such files."
Source = Annotated[Path, typer.Argument(metavar="LOG", help=LOG_HELP)]
Data = Annotated[
    Path, typer.Argument(metavar="LOG|SEQUENCES", help="A log (file or folder), or a folder made by `abaca prepare`.")
]
Items = Annotated[
    Path | None,
    typer.Option("--items", help="Item table (id, title, …), stored with the sequences and the model."),
]
Engine = Annotated[
    str, typer.Option("--engine", help="duckdb: on this machine; spark: the log is a path that Spark reads.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--spark", metavar="KEY=VALUE", help="A setting of Spark, such as spark.master=local[4]; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def on_spark(engine: str, settings: list[str] | None) -> bool:
    """Whether Spark is to run, whose session is then started."""
    if engine not in ("duckdb", "spark"):
        raise SpecError(f"`engine` {engine!r} is not known; it is duckdb or spark")
    if engine == "duckdb":
        if settings:
            raise SpecError("`spark` has settings of Spark and needs `engine=spark`")
        return False
    from abaca.spark.session import session, settings_of

    session(settings_of(settings or []))
    return True


def reads_types(event: str | None, events: list[str] | None) -> bool:
    """Whether a column of types was named, and more than one type is kept."""
    return event is not None and len(events or ()) != 1


def open_log(
    source: Path, columns: dict[str, str | None], on_bad_row: str | None, like: dict[str, Any] | None = None
) -> Log:
    """Read a log with the columns given, or else like an earlier one."""
    if is_prepared(source):
        raise SpecError(f"{source} is prepared already; give the log it was made of")
    if is_model(source):
        raise SpecError(f"{source} is a model directory, not a log")
    given: dict[str, Any] = {} if on_bad_row is None else {"on_bad_row": on_bad_row}
    return read_log(source, **{**(like or {}), **given, **columns})


def open_data(
    source: Path, columns: dict[str, str | None], on_bad_row: str | None, like: dict[str, Any] | None = None
) -> Any:
    """A prepared folder as its path, anything else as a log."""
    if not is_prepared(source):
        return open_log(source, columns, on_bad_row, like)
    given = [f"`{name}`" for name, value in {**columns, "on_bad_row": on_bad_row}.items() if value is not None]
    if given:
        raise SpecError(f"{source} is prepared already: {', '.join(given)} must be given to `abaca prepare`")
    return source


def is_model(path: Path) -> bool:
    """Whether a folder looks like a model directory; without loading torch."""
    return (path / "model.json").is_file()

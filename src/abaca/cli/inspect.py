"""`abaca inspect`: what is in a log, before training."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from abaca.cli import show
from abaca.cli.columns import Event, Item, Json, OnBadRow, Time, User, open_log
from abaca.data.inspect import LogSummary, inspect
from abaca.data.log import Log
from abaca.data.sequences import Sequences, is_prepared
from abaca.durable import whole_file
from abaca.errors import SpecError
from abaca.study.datasets import Census, census, dataset_table, source_name
from abaca.study.repetition import Repetition, repetition
from abaca.study.table import WRITERS

DRAWN = (".svg", ".pdf", ".png")


def command(
    logs: Annotated[
        list[Path],
        typer.Argument(metavar="LOG…", help="A log (file or folder) or a prepared folder; several to compare them."),
    ],
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    on_bad_row: OnBadRow = "skip",
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure", help="Plot the probability of a repeat by length, as in the paper: .svg, .pdf or .png."
        ),
    ] = None,
    table: Annotated[Path | None, typer.Option("--table", help="Write the counts as a table: .md or .csv.")] = None,
    json: Json = False,
) -> None:
    """Report the contents of a log: users, items, repeats, times and bad rows.

    Bad rows are counted; `prepare` and `train` stop at one of them, unless `--on-bad-row skip` is given.

    Example: [bold]abaca inspect purchases.csv --user customer --item sku --figure repeats.svg[/]
    """
    _check_ending(figure, "--figure", DRAWN)
    _check_ending(table, "--table", tuple(f".{ending}" for ending in WRITERS))
    columns = {"user": user, "item": item, "time": time, "event": event}
    rows: list[Census] = []
    lines: dict[str, Repetition] = {}
    for path, name in zip(logs, _names(logs), strict=True):
        source: Log | Sequences = Sequences.open(path) if is_prepared(path) else open_log(path, columns, on_bad_row)
        if len(logs) == 1 and isinstance(source, Log):
            _show_log(inspect(source), json)
        if len(logs) > 1 or table is not None or isinstance(source, Sequences):
            rows.append(census(source, name))
        if figure is not None:
            lines[name] = repetition(source)
        if isinstance(source, Log):
            source.close()
    if len(logs) > 1 or is_prepared(logs[0]):
        _show_rows(rows, json)
    if table is not None:
        _write(table, WRITERS[table.suffix[1:]](dataset_table(rows)).encode())
    if figure is not None:
        _draw(figure, lines)


def _check_ending(path: Path | None, option: str, endings: tuple[str, ...]) -> None:
    if path is not None and path.suffix not in endings:
        raise SpecError(f"{option} {path}: the file name must end in one of {', '.join(endings)}")


def _names(logs: list[Path]) -> list[str]:
    """The name of each data set; its path where two have the same name."""
    names = [source_name(path) for path in logs]
    return [name if names.count(name) == 1 else str(path) for name, path in zip(names, logs, strict=True)]


def _draw(to: Path, lines: dict[str, Repetition]) -> None:
    from abaca.study.repetition_figure import repetition_figure

    drawn = repetition_figure(lines)
    made = {".svg": lambda: drawn.svg(alone=True).encode(), ".pdf": drawn.pdf, ".png": drawn.png}
    _write(to, made[to.suffix]())


def _write(to: Path, content: bytes) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(to) as part:
        part.write_bytes(content)
    show.errors_to().print(f"wrote {escape(str(to))}", soft_wrap=True)


def _show_log(summary: LogSummary, json: bool) -> None:
    if json:
        show.as_json(summary.to_json())
        return
    shown = Table(title=escape(", ".join(summary.names)), title_justify="left", show_header=False)
    shown.add_column(style="bold")
    shown.add_column()
    for label, value in _rows(summary):
        shown.add_row(label, escape(value))
    show.console().print(shown)


def _show_rows(rows: list[Census], json: bool) -> None:
    if json:
        show.as_json([row.to_json() for row in rows])
        return
    made = dataset_table(rows)
    shown = Table(header_style="bold")
    shown.add_column("")
    for head, below in made.heads:
        for column in below:
            shown.add_column(f"{head}\n{column}".strip(), justify="right")
    for line in made.lines:
        shown.add_row(escape(line.name), *(cell.text for cell in line.cells))
    show.console().print(shown)


def _rows(summary: LogSummary) -> list[tuple[str, str]]:
    lengths = ", ".join(f"{name} {value:,}" for name, value in summary.lengths.items())
    times = "none: file order is the order"
    if summary.times is not None:
        times = " to ".join(summary.dates or (f"{moment:g}" for moment in summary.times))
    bad = ", ".join(f"{kind}: {count:,}" for kind, count in summary.bad_rows.items() if count)
    events = ", ".join(f"{event} {count:,}" for event, count in summary.events.items())
    return [
        ("columns", show.columns(summary.columns, summary.passed_over)),
        ("users", f"{summary.users:,}"),
        ("items", f"{summary.items:,}"),
        ("interactions", f"{summary.interactions:,}"),
        ("interactions per user", lengths),
        ("repeats", f"{summary.repeat_share:.1%} of all interactions, {summary.last_repeat_share:.1%} of last ones"),
        ("time", times),
        ("events", events or "–"),
        ("ties in time", "–" if summary.tied_share is None else f"{summary.tied_share:.1%} of interactions"),
        ("exact duplicates", f"{summary.duplicates:,}"),
        (
            "blanks around ids",
            f"{summary.spaced:,} interactions: ' 7' is another id than '7'" if summary.spaced else "none",
        ),
        ("bad rows", bad or "none"),
        ("prepared, on disk", f"about {show.size(summary.prepared_bytes)}"),
        ("an epoch of training", f"about {show.duration(summary.epoch_seconds)} here"),
    ]


def add_to(app: typer.Typer) -> None:
    app.command("inspect")(command)

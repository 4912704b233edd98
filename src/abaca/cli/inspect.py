"""`abaca inspect`: what is in a log, before training."""

import typer
from rich.markup import escape
from rich.table import Table

from abaca.cli import show
from abaca.cli.columns import Event, Item, Json, OnBadRow, Source, Time, User, open_log
from abaca.data.inspect import LogSummary, inspect


def command(
    log: Source,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    on_bad_row: OnBadRow = "skip",
    json: Json = False,
) -> None:
    """Show what a person needs to know of a log before training on it.

    Bad rows are counted here and do not stop; `prepare` and `train` stop at them unless told to skip.

    Example: [bold]abaca inspect purchases.csv --user customer --item sku[/]
    """
    source = open_log(log, {"user": user, "item": item, "time": time, "event": event}, on_bad_row)
    summary = inspect(source)
    if json:
        show.as_json(summary.to_json())
        return
    shown = Table(title=escape(", ".join(summary.names)), title_justify="left", show_header=False)
    shown.add_column(style="bold")
    shown.add_column()
    for label, value in _rows(summary):
        shown.add_row(label, escape(value))
    show.console().print(shown)


def _rows(summary: LogSummary) -> list[tuple[str, str]]:
    lengths = ", ".join(f"{name} {value:,}" for name, value in summary.lengths.items())
    times = "none: file order is the order"
    if summary.times is not None:
        times = " to ".join(summary.dates or (f"{moment:g}" for moment in summary.times))
    bad = ", ".join(f"{kind}: {count:,}" for kind, count in summary.bad_rows.items() if count)
    return [
        ("columns", show.columns(summary.columns, summary.passed_over)),
        ("users", f"{summary.users:,}"),
        ("items", f"{summary.items:,}"),
        ("interactions", f"{summary.interactions:,}"),
        ("interactions per user", lengths),
        ("repeats", f"{summary.repeat_share:.1%} of all interactions, {summary.last_repeat_share:.1%} of last ones"),
        ("time", times),
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

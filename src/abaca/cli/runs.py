"""`abaca runs`: the runs of a folder side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.display import duration, sparkline
from abaca.training.records import RunSummary, differing, epochs_text, figure_text, read_runs, value_text


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder with model directories, at any depth.")],
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Also write one HTML file with tables and curves.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the runs of a folder side by side: options that differ, figures and curves.

    Runs that are not finished are shown too. The best validation figure comes first. A curve is the validation figure
    after each epoch, all on one scale, or the loss of a run without validation.

    Example: [bold]abaca runs models/ --page runs.html[/]
    """
    runs = read_runs(folder)
    if page is not None:
        from abaca.durable import write_text
        from abaca.study.runpage import runs_page

        write_text(page, runs_page(runs, str(folder)))
    if json:
        return show.as_json([run.to_json() for run in runs])
    out = show.console()
    out.print(_table(runs, str(folder)))
    _print_same(runs)
    if page is not None:
        out.print(f"page: {page}", markup=False, soft_wrap=True)
    return None


def _table(runs: Sequence[RunSummary], folder: str) -> Table:
    """A row for each run; columns for the options that are not the same everywhere."""
    shown = Table(title=escape(folder), title_justify="left", header_style="bold")
    names = differing(runs)
    evidence = any(run.with_evidence is not None for run in runs)
    shown.add_column("run", overflow="fold")
    for name in names:
        shown.add_column(name, overflow="fold")
    metrics = {run.metric for run in runs if run.metric}
    figure = f"validation\n{metrics.pop() if len(metrics) == 1 else 'figure'}"
    for head in ("trained", figure, *(["with\nevidence"] if evidence else []), "time"):
        shown.add_column(head, justify="right")
    shown.add_column("curve", no_wrap=True)
    bounds = _bounds(runs)
    for run in runs:
        options = [escape(value_text(run.options.get(name))) for name in names]
        cells = [figure_text(run.best), *([figure_text(run.with_evidence)] if evidence else [])]
        curve = sparkline(run.curve, *bounds.get(run.metric, _own(run.curve)))
        shown.add_row(escape(run.name), *options, epochs_text(run), *cells, duration(run.seconds), curve)
    return shown


def _bounds(runs: Sequence[RunSummary]) -> dict[str | None, tuple[float, float]]:
    """The lowest and highest figure of each validation metric over all runs."""
    every: dict[str | None, list[float]] = {}
    for run in runs:
        if run.metric is not None:
            every.setdefault(run.metric, []).extend(run.curve)
    return {metric: _own(values) for metric, values in every.items()}


def _own(values: Sequence[float]) -> tuple[float, float]:
    return min(values, default=0.0), max(values, default=0.0)


def _print_same(runs: Sequence[RunSummary]) -> None:
    """The main options that all runs share."""
    known = next((run.options for run in runs if run.options), {})
    names = differing(runs)
    same = [f"{name} {known[name]}" for name in ("encoder", "output", "data", "epochs", "lr", "seed") if name in known]
    if kept := [words for words in same if words.split()[0] not in names]:
        show.console().print(escape(f"the same in all: {', '.join(kept)}"), soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    app.command("runs")(command)

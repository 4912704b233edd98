"""`abaca bench`: how fast it is here."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.markup import escape
from rich.table import Table

from abaca.bench import report
from abaca.bench.loss import LossBench
from abaca.bench.measure import LEAST_REPETITIONS, Bench, Measurement, machine, measure, settings
from abaca.cli import show
from abaca.cli.columns import Json
from abaca.errors import SpecError

bench = typer.Typer(no_args_is_help=True, help="Measure how fast it is here: CPU time, wall time and peak memory.")

Repetitions = Annotated[
    int, typer.Option("--repetitions", help=f"Rounds in which contenders take turns, at least {LEAST_REPETITIONS}.")
]
Threads = Annotated[int, typer.Option("--threads", help="CPU threads.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Measure this contender; can be given several times.")]
Memory = Annotated[bool, typer.Option(help="Measure each contender's peak memory too, in a process of its own.")]
To = Annotated[
    Path | None, typer.Option("--to", metavar="FOLDER", help="Write JSON, a Markdown table and a figure there.")
]


@bench.command("loss")
def loss(
    items: Annotated[int, typer.Option("--items", help="Size of the catalogue.")] = LossBench.items,
    rows: Annotated[int, typer.Option("--rows", help="Positions that are trained at once.")] = LossBench.rows,
    dim: Annotated[int, typer.Option("--dim", help="Size of item embeddings.")] = LossBench.dim,
    history: Annotated[int, typer.Option("--history", help="Length of the histories.")] = LossBench.history,
    threads: Threads = 1,
    repetitions: Repetitions = LEAST_REPETITIONS,
    only: Only = None,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """Loss and all gradients of each output layer, against the three matrix products that nothing can avoid.

    Example: [bold]abaca bench loss --items 50000 --rows 6400[/]
    """
    _use_threads(threads)
    run(LossBench(items, rows, dim, history), "loss", only or [], repetitions, memory, to, json)


def run(what: Bench, name: str, only: list[str], repetitions: int, memory: bool, to: Path | None, json: bool) -> None:
    """Measure with a progress bar and show the outcome."""
    with show.counting(what.title) as advance:
        found = measure(what, only, repetitions, memory, advance)
    tell(what, name, found, to, json)


def tell(what: Bench, name: str, found: list[Measurement], to: Path | None, json: bool) -> None:
    """Print the measurements, and write them down where that is asked for."""
    plain, here = [one.to_json() for one in found], machine()
    if to is not None:
        document = {"bench": name, "settings": settings(what), "machine": here, "results": plain}
        table, picture = (make(what.title, found, here) for make in (report.markdown, report.figure))
        for path in report.write(to, name, document, table, picture):
            show.errors_to().print(f"wrote {escape(str(path))}", soft_wrap=True)
    if json:
        show.as_json(plain)
    else:
        show.console().print(_table(what.title, found))


def _table(title: str, found: list[Measurement]) -> Table:
    cells = report.columns(found)
    shown = Table("", title=title, title_justify="left", header_style="bold")
    for column in cells:
        shown.add_column(column, justify="right")
    for one in found:
        shown.add_row(escape(one.name), *(fill(one) for fill in cells.values()))
    return shown


def _use_threads(threads: int) -> None:
    if threads < 1:
        raise SpecError(f"--threads must be at least 1, got {threads}")
    torch.set_num_threads(threads)


def add_to(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")

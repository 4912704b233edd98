"""`abaca fetch`: a public data set → a log."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.data.public import download
from abaca.data.public.fetch import Fetched, fetch
from abaca.data.public.sources import Recipe, find_recipe, recipes
from abaca.errors import SpecError


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The data set, see --list.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the data sets.")] = False,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Its folder is made in this one.")] = Path("data"),
    place: Annotated[
        str,
        typer.Option("--from", help="publisher; or recbole: the archive in RecBole's format, which the paper used."),
    ] = "publisher",
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="URL", help="Download the same file from this address, such as a mirror."),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Accept a file whose size or checksum differs.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Convert again what was fetched before.")] = False,
    json: Json = False,
) -> None:
    """Fetch one of the paper's data sets and turn it into a log that `prepare` and `train` read.

    A stopped download is resumed. A file that cannot be downloaded freely must be obtained by hand: the message states
    its source and the folder for it. The licence is the publisher's; Abaca contains no data.

    Example: [bold]abaca fetch ml-1m[/]
    """
    if listed:
        _list(json)
        return
    if name is None:
        raise SpecError("which data set? give its NAME, or --list to see all")
    recipe = find_recipe(name)
    if not json:
        _introduce(recipe)
    with _downloading(recipe.name) as progress:
        made = fetch(
            recipe, to, place=place, address=address, verified=not no_verify, overwrite=overwrite, progress=progress
        )
    if json:
        show.as_json({**made.facts, "log": str(made.log), "next": made.prepare_command()})
        return
    _tell(made)


def _list(json: bool) -> None:
    if json:
        show.as_json([_facts(recipe) for recipe in recipes().values()])
        return
    shown = Table(title="Public data sets, counts before filtering", title_justify="left", header_style="bold")
    for column in ("name", "what", "users", "items", "interactions"):
        shown.add_column(column, justify="left" if column in ("name", "what") else "right")
    for column in ("repeats, in the paper", "its filters", "from its publisher", "from RecBole"):
        shown.add_column(column)
    for recipe in recipes().values():
        shown.add_row(*(escape(cell) for cell in _cells(recipe)))
    show.console().print(shown)


def _cells(recipe: Recipe) -> list[str]:
    filters = f"user ≥ {recipe.min_user}" + (f", item ≥ {recipe.min_item}" if recipe.min_item > 1 else "")
    counts = (recipe.users, recipe.items, recipe.interactions)
    return [
        recipe.name,
        f"{recipe.title}: {recipe.kind}",
        *("?" if count is None else f"{count:,}" for count in counts),
        "with" if recipe.repeats else "without",
        filters,
        "by hand" if recipe.publisher.address is None else "download",
        "–" if recipe.recbole is None else "download",
    ]


def _facts(recipe: Recipe) -> dict[str, object]:
    return {
        "name": recipe.name,
        "title": recipe.title,
        "items_are": recipe.kind,
        **{name: getattr(recipe, name) for name in ("page", "licence", "cite", "note", "repeats")},
        "filters": {"min_user": recipe.min_user, "min_item": recipe.min_item},
        "counts": recipe.counts,
        "publisher": recipe.publisher.address,
        "by_hand": recipe.publisher.by_hand,
        "recbole": recipe.recbole and recipe.recbole.address,
    }


def _introduce(recipe: Recipe) -> None:
    out = show.console()
    out.print(f"[bold]{escape(recipe.title)}[/]: {recipe.kind}  [dim]{escape(recipe.page)}[/]", soft_wrap=True)
    if recipe.note:
        out.print(escape(f"note: {recipe.note}"), soft_wrap=True)
    out.print(escape(f"licence: {recipe.licence}"), soft_wrap=True)
    out.print(escape(f"cite: {recipe.cite}"), soft_wrap=True)


@contextmanager
def _downloading(name: str) -> Iterator[download.Progress]:
    """A bar of bytes and speed; it stays active while the file is unpacked and converted."""
    with Progress(
        SpinnerColumn(),
        TextColumn(f"{escape(name)}: download and convert"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=show.errors_to(),
        transient=True,
    ) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _tell(made: Fetched) -> None:
    out, counts = show.console(), made.facts["counts"]
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    agree = "as expected" if made.recipe.counts and not made.surprises else "before filters"
    out.print(f"[bold]{escape(str(made.log))}[/]: {said}, {agree}", soft_wrap=True)
    for what, (found, due) in made.surprises.items():
        out.print(f"  [yellow]{what}: {found:,} where {due:,} are expected[/]")
    for fault, number in made.facts.get("bad_rows", {}).items():
        out.print(f"  left out: {escape(fault)}: {number:,}")
    out.print(f"next: {escape(shlex.join(made.prepare_command()))}", soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    app.command("fetch")(command)

"""`abaca similar`: the items nearest to an item."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.recommender import load


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory.")],
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The id of an item.")],
    n: Annotated[int, typer.Option("-n", help="Number of items.")] = 10,
    json: Json = False,
) -> None:
    """Show the items that are most similar to an item, by the cosine of their vectors.

    Example: [bold]abaca similar model/ milk -n 5[/]
    """
    found = load(model, exact=True).similar(item, n)
    if json:
        return show.as_json([near._asdict() for near in found])
    shown = Table("", "item", "name", "similarity", title=f"similar to {escape(item)}", header_style="bold")
    for place, near in enumerate(found, 1):
        shown.add_row(str(place), escape(str(near.id)), escape(near.name), f"{near.similarity:.3f}")
    return show.console().print(shown)


def add_to(app: typer.Typer) -> None:
    app.command("similar")(command)

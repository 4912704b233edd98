"""`abaca card`: the card of a model."""

from pathlib import Path
from typing import Annotated

import typer

from abaca.cli.columns import Event, Item, OnBadRow, Time, User, open_data


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory.")],
    log: Annotated[
        Path | None,
        typer.Argument(metavar="[LOG|SEQUENCES]", help="What it was trained on; the model is evaluated on it."),
    ] = None,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    on_bad_row: OnBadRow = None,
) -> None:
    """Write and print the card of a model: data, options, figures, and what it must not be used for.

    The card is MODEL/card.md. With a log, the model and the baselines are ranked on its test targets, and the card
    has their figures from then on.

    Example: [bold]abaca card model/ purchases.csv[/]
    """
    from abaca.card import make_card
    from abaca.recommender import load

    data = None
    if log is not None:
        columns = {"user": user, "item": item, "time": time, "event": event}
        data = open_data(log, columns, on_bad_row, load(model).reading)
    typer.echo(make_card(model, data), nl=False)


def add_to(app: typer.Typer) -> None:
    app.command("card")(command)

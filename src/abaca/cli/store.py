"""`abaca store`: the store of a server."""

import typer

from abaca.cli import store_life, store_report

group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
store_life.add_to(group)
store_report.add_to(group)


@group.callback()
def command() -> None:
    """Work with the store of a server: check, back up, restore, export or erase a user, prune, report.

    Example: [bold]abaca store backup events.db backup.db[/]
    """


def add_to(app: typer.Typer) -> None:
    app.add_typer(group, name="store")

"""`abaca store`: the store of a server."""

import typer

from abaca.cli import store_report

group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
store_report.add_to(group)


@group.callback()
def command() -> None:
    """Work with the store of a server: report what came of recommendations.

    Example: [bold]abaca store report events.db[/]
    """


def add_to(app: typer.Typer) -> None:
    app.add_typer(group, name="store")

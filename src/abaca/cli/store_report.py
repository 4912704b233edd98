"""`abaca store report`: hit rates of models, from feedback."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.cli.store_life import StoreArgument, opened_store

if TYPE_CHECKING:
    from abaca.serve.report import ModelRates, Rate


def command(
    store: StoreArgument,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was shown since: seconds since 1970, or ISO 8601.")
    ] = None,
    json: Json = False,
) -> None:
    """Show how often recommended items were clicked and bought, for each model, with intervals of 95 %.

    An item that was shown to a user counts once. It is a hit if the user clicked or bought it at that time or later.
    Intervals treat users as independent, not items.

    Example: [bold]abaca store report events.db --since 2024-01-31[/]
    """
    from abaca.data.moments import moments_of
    from abaca.serve.feedback import per_user
    from abaca.serve.report import model_rates

    moment = float("-inf") if since is None else float(moments_of([_number(since)], "--since", "seconds")[0])
    with opened_store(store) as opened:
        rates = model_rates(per_user(opened, moment))
    if json:
        return show.as_json([one.to_json() for one in rates])
    return show.console().print(_table(rates) if rates else "there is no feedback; send it to POST /feedback")


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _table(rates: "list[ModelRates]") -> Table:
    shown = Table(header_style="bold")
    shown.add_column("model", overflow="fold")
    for head in (
        "users",
        "shown",
        "clicked",
        "bought",
        "click rate",
        "buy rate",
        "clicks: difference",
        "bought: difference",
    ):
        shown.add_column(head, justify="right")
    for one in rates:
        counts = (f"{count:,}" for count in (one.users, one.shown, one.clicked, one.bought))
        both = _text(one.click_rate), _text(one.buy_rate)
        shown.add_row(escape(one.model), *counts, *both, _text(one.click_difference), _text(one.buy_difference))
    return shown


def _text(rate: "Rate | None") -> str:
    """A rate with its interval."""
    if rate is None:
        return ""
    if rate.low is None or rate.high is None:
        return f"{rate.value:.4f}"
    return f"{rate.value:.4f} ({rate.low:.4f} to {rate.high:.4f})"


def add_to(group: typer.Typer) -> None:
    group.command("report")(command)

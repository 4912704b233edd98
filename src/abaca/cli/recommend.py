"""`abaca recommend`: what comes next after a history."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.types import Id

if TYPE_CHECKING:
    from abaca.recommender import Recommender


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory.")],
    history: Annotated[list[str], typer.Argument(metavar="ID …", help="The history, oldest first.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 10,
    repeats: Annotated[str, typer.Option("--repeats", help="auto (as learned), exclude or only.")] = "auto",
    max_repeat_share: Annotated[float, typer.Option("--max-repeat-share", help="Largest share of repeats.")] = 1.0,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="Never this id; repeatable.")] = None,
    candidate: Annotated[list[str] | None, typer.Option("--candidate", help="Only these ids; repeatable.")] = None,
    json: Json = False,
) -> None:
    """Say what comes next after a history of raw ids, with probability and reason.

    Example: [bold]abaca recommend model/ milk bread milk -n 5 --repeats exclude[/]
    """
    from abaca.recommender import load

    recommender = load(model)
    answer = recommender.recommend(
        _ids(recommender, history),
        n,
        repeats=repeats,
        max_repeat_share=max_repeat_share,
        exclude=_ids(recommender, exclude or []),
        candidates=None if candidate is None else _ids(recommender, candidate),
    )
    if json:
        show.as_json(answer.to_json())
        return
    out = show.console()
    if answer.unknown:
        out.print(f"[yellow]not known to the model:[/] {escape(', '.join(map(str, answer.unknown)))}")
    if answer.items:
        out.print(show.recommendations(answer, f"after {escape(' '.join(history))}"))
    else:
        out.print("nothing to recommend: the policy leaves no item (repeats, share of repeats, exclude, candidates)")
    if answer.repeat_probability is not None:
        out.print(f"probability that the next item is one of the history: {answer.repeat_probability:.1%}")


def _ids(recommender: "Recommender", texts: list[str]) -> list[Id]:
    """A shell has text only: where the catalogue's ids are integers, text that spells one is that integer."""
    assert recommender.saved is not None
    ids = recommender.saved.catalogue.ids
    if ids and isinstance(ids[0], int):
        return [int(text) if re.fullmatch(r"-?[0-9]+", text) else text for text in texts]
    return list(texts)


def add_to(app: typer.Typer) -> None:
    app.command("recommend")(command)

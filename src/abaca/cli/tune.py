"""`abaca tune`: search options with a budget; the best become a TOML file for `abaca train --config`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import Data, Event, Item, OnBadRow, Time, User
from abaca.cli.train import read_config
from abaca.data.prepare import PrepareOptions
from abaca.data.sequences import Sequences, is_prepared
from abaca.errors import SpecError
from abaca.options import DEFAULT_ENCODER, DEFAULT_OUTPUT
from abaca.study.extra import needs
from abaca.study.plan import DataSet
from abaca.study.runs import Workshop
from abaca.study.tuning import BEST, METRIC, Search, Tuning, read_space
from abaca.training.trainer import Callback


def command(
    log: Data,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where trials and best.toml go.")],
    encoder: Annotated[str | None, typer.Option("--encoder", help="gru4rec or sasrec.")] = None,
    output: Annotated[str | None, typer.Option("--output", help="Output layer, as in `abaca train`.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with options that stay.")] = None,
    space: Annotated[
        Path | None,
        typer.Option("--space", help="TOML file: option = \\[values], or { low = …, high = …, log = true }."),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials at most, earlier ones counted.")] = 30,
    minutes: Annotated[float, typer.Option("--minutes", help="No trial begins after so long; 0: no limit.")] = 0,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes of each trial at most.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of the search and of every trial.", show_default="0")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", help="CPU threads; 0: as torch chooses.")] = 0,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    on_bad_row: OnBadRow = "error",
) -> None:
    """Search learning rate, dropout, batch and size for the best validation NDCG@10, with Optuna.

    A trial that is behind the others is stopped early. Stop or kill the search at any moment: the same command goes on,
    also in the middle of a trial. Several at once share the trials.

    Example: [bold]abaca tune purchases.csv tuned/ --trials 40 --minutes 120[/]
    """
    fixed = {"seed": 0, **(read_config(config) if config else {}), **({} if seed is None else {"seed": seed})}
    model = encoder or fixed.pop("encoder", DEFAULT_ENCODER), output or fixed.pop("output", DEFAULT_OUTPUT)
    fixed = {name: value for name, value in fixed.items() if name not in ("encoder", "output")}
    if epochs is not None:
        fixed["epochs"] = epochs
    searched = read_space(space)
    search = Search(*model, {name: value for name, value in fixed.items() if name not in searched}, searched)
    needs("optuna", "study")
    if minutes < 0:
        raise SpecError(f"--minutes {minutes}: it is 0 or more")
    if threads:
        torch.set_num_threads(threads)
    columns = {"user": user, "item": item, "time": time, "event": event, "on_bad_row": on_bad_row}
    sequences = _sequences(log, folder, columns)
    tuning = Tuning(search, sequences, folder, fixed["seed"])
    before = tuning.finished
    if before:
        show.errors_to().print(f"{before} trials are done already", soft_wrap=True)
    try:
        found = tuning.run(trials, minutes, show.errors_to().print, Callback())
    except KeyboardInterrupt:
        show.errors_to().print("stopped; the same command goes on", soft_wrap=True)
        raise typer.Exit(130) from None
    out = show.console()
    out.print(
        f"best of {found.trials} trials ({found.pruned} stopped early): validation {METRIC.upper()} {found.figure:.4f}",
        soft_wrap=True,
    )
    for name in searched if "size" not in searched else [*searched, "dim", "hidden"]:
        if name in found.options:
            out.print(f"  {name} = {found.options[name]}")
    named = [
        word for name in ("user", "item", "time", "event") if columns[name] for word in (f"--{name}", columns[name])
    ]
    train = shlex.join(["abaca", "train", str(log), "MODEL", "--config", str(folder / BEST), *map(str, named)])
    out.print(escape(f"next: {train}"), soft_wrap=True)


def _sequences(log: Path, folder: Path, columns: dict[str, Any]) -> Sequences:
    """Prepared once, so that every trial has the same data, and again if the log has changed."""
    if is_prepared(log):
        return Sequences.open(log)
    if not log.exists():
        raise SpecError(f"{log} is not there")
    given = {name: value for name, value in columns.items() if value is not None}
    data = DataSet("log", log, {}, None, given, PrepareOptions(), None, None, {}, None)
    return Workshop(folder / "work").sequences(data)


def add_to(app: typer.Typer) -> None:
    app.command("tune")(command)

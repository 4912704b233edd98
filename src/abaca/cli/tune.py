"""`abaca tune`: search options within a budget, and write the best for `abaca train --config`."""

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
from abaca.extra import needs
from abaca.options import DEFAULT_ENCODER, DEFAULT_OUTPUT
from abaca.study.plan import DataSet
from abaca.study.runs import Workspace
from abaca.study.tuning import BEST, METRIC, Search, Tuning, read_space
from abaca.training.callbacks import Callback


def command(
    log: Data,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for trials and best.toml.")],
    encoder: Annotated[str | None, typer.Option("--encoder", help="gru4rec, sasrec or hstu.")] = None,
    output: Annotated[str | None, typer.Option("--output", help="Output layer, as in `abaca train`.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with fixed options.")] = None,
    space: Annotated[
        Path | None,
        typer.Option("--space", help="TOML file: option = \\[values], or { low = …, high = …, log = true }."),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials in all, earlier ones included.")] = 30,
    minutes: Annotated[float, typer.Option("--minutes", help="No trial begins after this time; 0: no limit.")] = 0,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Largest number of epochs of a trial.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of the search and of every trial.", show_default="0")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", help="CPU threads; 0: as torch chooses.")] = 0,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    on_bad_row: OnBadRow = "error",
) -> None:
    """Search learning rate, dropout, batch and size for the best validation NDCG@10, with Optuna.

    A trial that is behind the others ends early. After an interruption the same command continues, also within a
    trial. Several commands at once share the trials.

    Example: [bold]abaca tune purchases.csv tuned/ --trials 40 --minutes 120[/]
    """
    given = {"encoder": encoder, "output": output, "epochs": epochs, "seed": seed}
    usual: dict[str, Any] = {"encoder": DEFAULT_ENCODER, "output": DEFAULT_OUTPUT, "seed": 0}
    fixed = usual | (read_config(config) if config else {}) | {k: v for k, v in given.items() if v is not None}
    model, searched = (fixed.pop("encoder"), fixed.pop("output")), read_space(space)
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
        show.errors_to().print("stopped; the same command continues", soft_wrap=True)
        raise typer.Exit(130) from None
    out = show.console()
    best = f"validation {METRIC.upper()} {found.value:.4f}"
    out.print(f"best of {found.trials} trials ({found.pruned} ended early): {best}", soft_wrap=True)
    for name in searched if "size" not in searched else [*searched, "dim", "hidden"]:
        if name in found.options:
            out.print(f"  {name} = {found.options[name]}")
    roles = (role for role in ("user", "item", "time", "event") if columns[role])
    named = [word for role in roles for word in (f"--{role}", columns[role])]
    train = shlex.join(["abaca", "train", str(log), "MODEL", "--config", str(folder / BEST), *map(str, named)])
    out.print(escape(f"next: {train}"), soft_wrap=True)


def _sequences(log: Path, folder: Path, columns: dict[str, Any]) -> Sequences:
    """The prepared log, the same for every trial; prepared again if the log has changed."""
    if is_prepared(log):
        return Sequences.open(log)
    if not log.exists():
        raise SpecError(f"{log} does not exist")
    given = {name: value for name, value in columns.items() if value is not None}
    data = DataSet("log", log, {}, None, given, PrepareOptions(), None, None, {}, None)
    return Workspace(folder / "work").sequences(data)


def add_to(app: typer.Typer) -> None:
    app.command("tune")(command)

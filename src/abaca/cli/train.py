"""`abaca train`: log → model directory."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import Data, Event, Item, Items, OnBadRow, Time, User, open_data
from abaca.data.sequences import is_prepared
from abaca.errors import SpecError
from abaca.recommender import DEFAULT_ENCODER, DEFAULT_OUTPUT, Recommender
from abaca.training import TrainingOptions

DEFAULTS = TrainingOptions()


def _option(flag: str, text: str, default: Any = None) -> Any:
    return typer.Option(flag, help=text, show_default=str(default) if default is not None else False)


def command(
    log: Data,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model directory to write.")],
    encoder: Annotated[str | None, _option("--encoder", "gru4rec or sasrec.", DEFAULT_ENCODER)] = None,
    output: Annotated[
        str | None,
        _option("--output", "Output layer: softmax, +C, +CP, +CPR:100, +Mi, +nodup, mos:3, …", DEFAULT_OUTPUT),
    ] = None,
    config: Annotated[Path | None, _option("--config", "TOML file with any of these options; flags win.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    epochs: Annotated[int | None, _option("--epochs", "Passes at most.", DEFAULTS.epochs)] = None,
    lr: Annotated[float | None, _option("--lr", "Highest learning rate.", DEFAULTS.lr)] = None,
    schedule: Annotated[str | None, _option("--schedule", "cosine, linear or constant.", DEFAULTS.schedule)] = None,
    warmup: Annotated[int | None, _option("--warmup", "Steps of rising learning rate.", DEFAULTS.warmup)] = None,
    batch_targets: Annotated[
        int | None, _option("--batch-targets", "Targets per step.", DEFAULTS.batch_targets)
    ] = None,
    targets: Annotated[int | None, _option("--targets", "Targets a window trains.", DEFAULTS.targets)] = None,
    overlap: Annotated[
        int | None, _option("--overlap", "Leading items of a window without loss.", DEFAULTS.overlap)
    ] = None,
    window: Annotated[int | None, _option("--window", "Items seen when ranking.", DEFAULTS.window)] = None,
    weight_decay: Annotated[float | None, _option("--weight-decay", "Of AdamW.", DEFAULTS.weight_decay)] = None,
    clip: Annotated[float | None, _option("--clip", "Largest gradient norm; 0: none.", DEFAULTS.clip)] = None,
    average: Annotated[
        float | None, _option("--average", "Decay of averaged weights; 0: none.", DEFAULTS.average)
    ] = None,
    patience: Annotated[
        int | None, _option("--patience", "Epochs without gain before stopping; 0: never.", DEFAULTS.patience)
    ] = None,
    metric: Annotated[str | None, _option("--metric", "What validation maximises.", DEFAULTS.metric)] = None,
    seed: Annotated[int | None, _option("--seed", "Same seed, same model.", DEFAULTS.seed)] = None,
    dim: Annotated[int | None, _option("--dim", "Size of item embeddings.", 64)] = None,
    hidden: Annotated[int | None, _option("--hidden", "Size of the GRU's state (gru4rec).", 64)] = None,
    dropout: Annotated[float | None, _option("--dropout", "Of the encoder.", "the encoder's")] = None,
    threads: Annotated[int, typer.Option("--threads", help="CPU threads; 0: as torch chooses.")] = 0,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    items: Items = None,
    min_user: Annotated[int | None, _option("--min-user", "When preparing a log.", 5)] = None,
    min_item: Annotated[int | None, _option("--min-item", "When preparing a log.", 1)] = None,
    split: Annotated[
        str | None, _option("--split", "When preparing a log: leave-one-out or time.", "leave-one-out")
    ] = None,
    on_bad_row: OnBadRow = "error",
) -> None:
    """Train a model on a log, keeping the epoch that validates best.

    A log is prepared first (`abaca prepare` has all options for that); a prepared folder is used as it is. The run
    can be killed at any moment: [bold]--resume[/] goes on and ends with exactly the same weights.

    Example: [bold]abaca train purchases.csv model/ --output softmax+CPR:100+Mi --epochs 30[/]
    """
    given = {key: value for key, value in locals().items() if key in _TUNABLE and value is not None}
    options = {**(read_config(config) if config else {}), **given}
    if threads:
        torch.set_num_threads(threads)
    recommender = Recommender(options.pop("encoder", DEFAULT_ENCODER), options.pop("output", DEFAULT_OUTPUT), **options)
    _check_prepared(log, {"--min-user": min_user, "--min-item": min_item, "--split": split})
    data = open_data(log, {"user": user, "item": item, "time": time, "event": event}, on_bad_row)
    try:
        with show.Bar(recommender.training.epochs, recommender.training.metric) as bar:
            recommender.fit(data, folder=model, resume=resume, watch=bar, items=items)
    except KeyboardInterrupt:
        show.errors_to().print("stopped; the same command with --resume goes on", soft_wrap=True)
        raise typer.Exit(130) from None
    assert recommender.saved is not None
    training = recommender.saved.training
    figure = "" if training["best"] is None else (
        f": validation {recommender.training.metric} {training['best']:.4f} after epoch {training['best_epoch'] + 1}"
    )  # fmt: skip
    out = show.console()
    out.print(f"[bold]{escape(str(model))}[/] {recommender.encoder} {recommender.output}{figure}", soft_wrap=True)
    out.print(escape(f"next: abaca evaluate {model} {log} · abaca recommend {model} ID ID …"), soft_wrap=True)


_TUNABLE = {
    "encoder", "output", "epochs", "lr", "schedule", "warmup", "batch_targets", "targets", "overlap", "window",
    "weight_decay", "clip", "average", "patience", "metric", "seed", "dim", "hidden", "dropout", "min_user", "min_item",
    "split", "stop_after", "checkpoint_minutes",
}  # fmt: skip


def _check_prepared(source: Path, given: dict[str, Any]) -> None:
    """Refuse options of preparing where nothing is left to prepare."""
    useless = [flag for flag, value in given.items() if value is not None]
    if useless and is_prepared(source):
        raise SpecError(f"{source} is prepared already: {', '.join(useless)} must be given to `abaca prepare`")


def read_config(path: Path) -> dict[str, Any]:
    """A run described by a TOML file; a key that is not an option is refused."""
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path} is not there; --config takes a TOML file such as: epochs = 30") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from error
    for key in config:
        if key not in _TUNABLE:
            near = difflib.get_close_matches(key, _TUNABLE, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(sorted(_TUNABLE))}"
            raise SpecError(f"{path}: key '{key}' is not an option; {hint}")
    return config


def add_to(app: typer.Typer) -> None:
    app.command("train")(command)

"""`abaca train`: log → model directory."""

import logging
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from abaca.auto import Shape
from abaca.cli import show
from abaca.cli.columns import (
    Data,
    Event,
    Events,
    Item,
    Items,
    OnBadRow,
    TargetsOf,
    Time,
    User,
    open_data,
    reads_types,
)
from abaca.data.log import Log
from abaca.data.prepare import PrepareOptions
from abaca.display import duration
from abaca.errors import SpecError
from abaca.options import AUTO, DEFAULT_ENCODER, DEFAULT_OUTPUT, training_defaults
from abaca.study.toml import read_toml, refuse_unknown

if TYPE_CHECKING:
    from abaca.recommender import Recommender

DEFAULTS = training_defaults(DEFAULT_ENCODER)


def _option(flag: str, text: str, default: Any = None) -> Any:
    return typer.Option(flag, help=text, show_default=str(default) if default is not None else False)


def _suited(fixed: Any) -> str:
    """The default of an option that follows from the log, unless options are fixed."""
    return f"{AUTO}; fixed: {fixed}"


def _each(name: str) -> str:
    """An option's default where encoders differ."""
    found = {encoder: getattr(training_defaults(encoder), name) for encoder in ("gru4rec", "sasrec", "hstu")}
    return ", ".join(f"{encoder} {default:g}" for encoder, default in found.items())


def command(
    log: Data,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model directory to write.")],
    encoder: Annotated[
        str | None, _option("--encoder", "gru4rec, sasrec, hstu, or auto: what suits the log.", AUTO)
    ] = None,
    output: Annotated[
        str | None,
        _option("--output", "Output layer: softmax, +C, +CP, +CPR:100, +Mi, +habits, +followers, …", DEFAULT_OUTPUT),
    ] = None,
    options: Annotated[
        str | None,
        _option("--options", "auto: options that are not given suit the log; fixed: the same for every log.", "auto"),
    ] = None,
    baseline: Annotated[
        str | None,
        _option("--baseline", "Save a baseline instead of a model, such as 'personal frequency'."),
    ] = None,
    config: Annotated[
        Path | None,
        _option(
            "--config", "TOML file: encoder, output, and options of training, encoder and split; flags take precedence."
        ),
    ] = None,
    refit: Annotated[
        Path | None,
        typer.Option("--refit", metavar="MODEL", help="Train on everything, with the options and best epoch of MODEL."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="TIME", help="Search encoders and options within a time, such as 20m; train the best."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model or run.")] = False,
    updatable: Annotated[
        bool, typer.Option("--updatable", help="Keep a copy of the log in MODEL, for `abaca update`.")
    ] = False,
    epochs: Annotated[int | None, _option("--epochs", "Epochs at most.", _suited(DEFAULTS.epochs))] = None,
    lr: Annotated[float | None, _option("--lr", "Highest learning rate.", _suited(_each("lr")))] = None,
    schedule: Annotated[str | None, _option("--schedule", "cosine, linear or constant.", DEFAULTS.schedule)] = None,
    warmup: Annotated[int | None, _option("--warmup", "Steps of rising learning rate.", DEFAULTS.warmup)] = None,
    batch_targets: Annotated[
        int | None, _option("--batch-targets", "Targets per step.", _each("batch_targets"))
    ] = None,
    targets: Annotated[int | None, _option("--targets", "Targets a window trains.", _each("targets"))] = None,
    overlap: Annotated[
        int | None, _option("--overlap", "Leading items of a window without loss.", _each("overlap"))
    ] = None,
    window: Annotated[int | None, _option("--window", "Items seen when ranking.", _each("window"))] = None,
    weight_decay: Annotated[
        float | None, _option("--weight-decay", "Of AdamW, for item tables.", _suited(DEFAULTS.weight_decay))
    ] = None,
    clip: Annotated[float | None, _option("--clip", "Largest gradient norm; 0: none.", DEFAULTS.clip)] = None,
    average: Annotated[
        float | None, _option("--average", "Decay of averaged weights; 0: none.", DEFAULTS.average)
    ] = None,
    patience: Annotated[
        int | None, _option("--patience", "Epochs without gain before stopping; 0: never.", _suited(DEFAULTS.patience))
    ] = None,
    metric: Annotated[str | None, _option("--metric", "What validation maximises.", DEFAULTS.metric)] = None,
    share: Annotated[
        float | None,
        _option("--share", "Share of the other items that a step's loss reads; 1: all.", _suited(DEFAULTS.share)),
    ] = None,
    ahead: Annotated[
        float | None, _option("--ahead", "Share of targets that come soon, not next.", _suited(DEFAULTS.ahead))
    ] = None,
    start: Annotated[
        str | None, _option("--start", "Item vectors begin from counts or random.", _suited(DEFAULTS.start))
    ] = None,
    features: Annotated[
        str | None,
        _option("--features", "Columns of --items that describe items, as in brand,price,title; new ones are scored."),
    ] = None,
    feature_dropout: Annotated[
        float | None,
        _option("--feature-dropout", "Share of items known by features alone in a step.", DEFAULTS.feature_dropout),
    ] = None,
    seed: Annotated[int | None, _option("--seed", "Same seed, same model.", DEFAULTS.seed)] = None,
    dim: Annotated[int | None, _option("--dim", "Size of item embeddings.", _suited(64))] = None,
    hidden: Annotated[int | None, _option("--hidden", "Size of the GRU's state (gru4rec).", 128)] = None,
    dropout: Annotated[
        float | None, _option("--dropout", "Of the encoder.", _suited("gru4rec 0.35, sasrec 0.2, hstu 0.2"))
    ] = None,
    device: Annotated[str | None, _option("--device", "cpu, cuda, or auto: a GPU where there is one.", "auto")] = None,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", min=0, max=1024, help="CPU threads; 0: as torch chooses. A resumed run keeps its number."
        ),
    ] = 0,
    track: Annotated[
        list[str] | None,
        _option("--track", "Log the run: tensorboard:FOLDER, mlflow:FOLDER or ADDRESS, wandb:PROJECT; repeatable."),
    ] = None,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    events: Events = None,
    targets_of: TargetsOf = None,
    event_weights: Annotated[
        str | None,
        _option("--event-weights", "Types in the loss: view=0.2,buy=1, or auto: counted. Types not named: 1 or 0."),
    ] = None,
    items: Items = None,
    min_user: Annotated[int | None, _option("--min-user", "When preparing a log.", 5)] = None,
    min_item: Annotated[int | None, _option("--min-item", "When preparing a log.", 1)] = None,
    split: Annotated[
        str | None, _option("--split", "When preparing a log: leave-one-out or time.", "leave-one-out")
    ] = None,
    hold_out_items: Annotated[
        float | None, _option("--hold-out-items", "When preparing a log: share of items to hold out of training.", 0)
    ] = None,
    on_bad_row: OnBadRow = None,
) -> None:
    """Train a model on a log, keeping the epoch that validates best.

    A log is prepared first (`abaca prepare` has all options for that); a prepared folder is used as it is.
    [bold]--resume[/] continues a run that was stopped or killed. It ends with the same weights (on a GPU up to
    rounding).

    Example: [bold]abaca train purchases.csv model/ --output softmax+CPR:100+Mi --epochs 30[/]

    To train on everything before serving: [bold]abaca train purchases.csv final/ --refit model/[/]

    The best model within a time: [bold]abaca train purchases.csv model/ --budget 20m[/]

    By several processes: [bold]torchrun --nproc-per-node=2 -m abaca train purchases.csv model/[/]
    """
    given = {key: value for key, value in locals().items() if key in _TUNABLE and value is not None}
    if reads_types(event, events) and refit is None:
        given["types"] = True
    chosen = {**(read_config(config) if config else {}), **given}

    import torch

    from abaca.training.group import joined
    from abaca.training.state import held
    from abaca.training.trackers import tracker

    logging.getLogger("abaca.training").addHandler(logging.NullHandler())  # its warnings are part of the report
    if threads:
        torch.set_num_threads(threads)
    with joined() as group:
        trackers = [tracker(words) for words in track or ()] if not group.rank else []
        recommender = _recommender(chosen, refit)
        columns = {"user": user, "item": item, "time": time, "event": event}
        data = group.lead(lambda: open_data(log, columns, on_bad_row, recommender.reading)) or log
        if not group.rank:
            if resume and not overwrite and held(model) is None:
                show.errors_to().print(escape(f"{model} holds no run to resume: a new one begins"), soft_wrap=True)
            _warn(data, recommender.device.type)
        place: dict[str, Any] = {"folder": model, "resume": resume, "overwrite": overwrite, "items": items}
        try:
            what: dict[str, Any] = {"refit": refit is not None, "budget": budget, "updatable": updatable}
            recommender.fit(data, progress=True, callback=trackers, **what, **place)
        except KeyboardInterrupt:
            if not group.rank:
                show.errors_to().print("stopped; the same command with --resume continues", soft_wrap=True)
            raise typer.Exit(130) from None
    if group.rank:
        return  # the first process reports
    _report(recommender, log, model)
    if refit is None:
        _compare_with_baselines(recommender)


def _recommender(options: dict[str, Any], refit: Path | None) -> "Recommender":
    """A recommender with these options, or with those of a saved model that is trained again on everything."""
    from abaca.recommender import Recommender, load

    if refit is None:
        if "baseline" in options and options.keys() & {"encoder", "output"}:
            raise SpecError("a `baseline` has no encoder and no output layer: leave those out")
        encoder, output = options.pop("encoder", AUTO), options.pop("output", DEFAULT_OUTPUT)
        return Recommender(encoder, output, **options)
    device = options.pop("device", "auto")
    if options:
        given = ", ".join(f"`{name}`" for name in options)
        raise SpecError(f"`refit` trains with the options of {refit}: leave out {given}")
    return load(refit, device)


def _warn(data: Any, device: str) -> None:
    """Warn of conditions that make training inaccurate or slow."""
    from abaca.nn import ops

    if isinstance(data, Log) and not data.has_time:
        show.warn("no time column was recognised: rows are used in file order; --time names the column")
    if device == "cpu" and ops.instructions() is None:
        show.warn("there is no compiled loss for this machine: training takes about twice as long")


def _compare_with_baselines(recommender: "Recommender") -> None:
    """Warn where the best baseline is better than the model on the validation targets."""
    from abaca.evaluation.against import validate_baselines

    assert recommender.saved is not None
    assert recommender.sequences is not None
    metric, figure = recommender.training.metric, recommender.saved.figure
    if figure is None:
        return
    found = validate_baselines(recommender.sequences, metric)
    best = max(found, key=lambda name: found[name])
    if found[best] > figure:
        show.warn(
            f"the baseline '{best}' is better than the model: validation {metric} {found[best]:.4f} "
            f"against {figure:.4f}; train longer, or with other options (`abaca tune`)"
        )


def _report(recommender: "Recommender", log: Path, model: Path) -> None:
    """Print the validation figure, the columns that were read, and the next commands."""
    assert recommender.saved is not None
    assert recommender.sequences is not None
    training, source = recommender.saved.training, recommender.sequences.manifest["source"]
    figure = ""
    if training["best"] is not None:
        figure = f": validation {recommender.training.metric} {recommender.saved.figure:.4f}"
        network = f"network {training['best']:.4f} " if "with_evidence" in training else ""
        figure += f" ({network}after epoch {training['best_epoch'] + 1})"
    out = show.console()
    out.print(f"[bold]{escape(str(model))}[/] {recommender.encoder} {recommender.output}{figure}", soft_wrap=True)
    if "diverged" in training:
        show.warn(training["diverged"])
    if "budget" in training:
        spent, trials = training["budget"]["spent"], training["budget"]["trials"]
        count = "1 trial" if len(trials) == 1 else f"{len(trials)} trials"
        out.print(f"the best of {count}, found and trained in {duration(spent)}", soft_wrap=True)
    if recommender.chosen:
        listed = ", ".join(f"{name} {value}" for name, value in recommender.chosen.items())
        out.print(escape(f"options for {_size(recommender)}: {listed}"), soft_wrap=True)
    show.left_out(recommender.sequences.manifest["counts"])
    taken = show.columns(source["columns"], source.get("passed_over", {}))
    out.print(escape(f"columns: {taken}"), soft_wrap=True)
    evaluate = "" if training["everything"] else shlex.join(["abaca", "evaluate", str(model), str(log)]) + " · "
    recommend = shlex.join(["abaca", "recommend", str(model)])
    out.print(escape(f"next: {evaluate}{recommend} ID ID …"), soft_wrap=True)


def _size(recommender: "Recommender") -> str:
    """The size of the log that options were chosen by."""
    assert recommender.sequences is not None
    shape = Shape.of(recommender.sequences)
    rows = f"{shape.interactions:,} training interactions, {shape.length:.1f} a user"
    return f"{rows}, {100 * shape.repeats:.0f} % repeats, and {shape.items:,} items"


_TUNABLE = {
    "encoder", "options", "output", "epochs", "lr", "schedule", "warmup", "batch_targets", "targets", "overlap",
    "window", "weight_decay", "clip", "average", "patience", "metric", "share", "ahead", "start", "features",
    "feature_dropout", "seed", "dim", "hidden", "dropout", "min_user", "min_item", "split", "hold_out_items", "events",
    "types", "targets_of", "event_weights", "baseline", "stop_after", "checkpoint_minutes", "device",
}  # fmt: skip
_OF_PREPARE = {field.name for field in fields(PrepareOptions)} - _TUNABLE


class _Train(TyperCommand):
    """Explains the flags that only `abaca prepare` has."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for flag in (arg.split("=")[0] for arg in args):
            if flag.startswith("--") and flag[2:].replace("-", "_") in _OF_PREPARE:
                raise SpecError(f"{flag} is an option of `abaca prepare`; then train on the folder that it writes")
        return super().parse_args(ctx, args)


def read_config(path: Path) -> dict[str, Any]:
    """A run described by a TOML file; a key that is not an option is refused."""
    from abaca.nn.encoders import ENCODERS

    config = read_toml(path, "--config takes a TOML file such as: epochs = 30")
    known = _TUNABLE.union(*({field.name for field in fields(kind.Options)} for kind in ENCODERS.values()))
    of_prepare = sorted(_OF_PREPARE.intersection(config))
    if of_prepare:
        raise SpecError(f"{path}: key '{of_prepare[0]}' is an option of `abaca prepare`; train on the folder it writes")
    refuse_unknown(config, known, str(path))
    return config


def add_to(app: typer.Typer) -> None:
    app.command("train", cls=_Train)(command)

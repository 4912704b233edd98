"""`abaca update`: a model and new events → a model that knows them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import Event, Item, Json, OnBadRow, Time, User, open_log
from abaca.data.folder import check_apart
from abaca.data.idlist import read_ids
from abaca.errors import SpecError, UserError
from abaca.training.checkpoint import save_model
from abaca.training.drift import notes
from abaca.training.state import locked_run
from abaca.training.update import EPOCHS

if TYPE_CHECKING:
    from abaca.recommender import Recommender


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL [LOG] NEW_MODEL", help="The model, a log with new rows (not with --from-store), the result."
        ),
    ],
    train: Annotated[bool, typer.Option("--train", help="Train the weights on; else new rows are counted.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="LOG holds all rows, old and new.")] = False,
    from_store: Annotated[
        str | None,
        typer.Option("--from-store", metavar="STORE", help="Take the events of a server's store instead of a log."),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option("--retire", metavar="ID|@FILE", help="Never recommend this item, or those of a file; repeatable."),
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over all rows, with --train.")] = EPOCHS,
    lr: Annotated[
        float | None, typer.Option("--lr", help="Highest learning rate, with --train; else a quarter of training's.")
    ] = None,
    replay: Annotated[
        float, typer.Option("--replay", min=0, max=1, help="Share of the old rows that each pass reads, with --train.")
    ] = 1.0,
    items: Annotated[
        Path | None,
        typer.Option("--items", help="Item table (id, title, …) of all items; else only the old ones have columns."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    on_bad_row: OnBadRow = None,
    json: Json = False,
) -> None:
    """Take new events into a model: counted in seconds, or trained on with --train.

    Example: [bold]abaca update model/ today.csv updated/[/]

    Followers, item counts and catalogue become those of the whole log. Rows before the last time that the model knows
    are left out, and rows at that time that it has. The model must be trained with --updatable; else give the whole log
    with --whole.
    """
    model, source, updated = _places(paths, from_store)
    check_apart(updated, model)
    options: dict[str, Any] = {"train": train, "whole": whole, "retire": _ids(retire or []), "items": items}
    if train or (epochs, lr, replay) != (EPOCHS, None, 1.0):
        options |= {"epochs": epochs, "lr": lr, "replay": replay}

    from abaca.recommender import load

    with locked_run(updated, keep=not overwrite):
        recommender = load(model)
        if from_store is None:
            assert source is not None
            columns = {"user": user, "item": item, "time": time, "event": event}
            log: Any = open_log(source, columns, on_bad_row, recommender.reading)
        else:
            log = _stored(from_store, on_bad_row or "error", recommender)
        recommender.update(log, **options)
        assert recommender.saved is not None
        save_model(updated, recommender.saved)
    _tell(recommender, updated, json=json)


def _places(paths: list[Path], store: str | None) -> tuple[Path, Path | None, Path]:
    """The model, the log and the place of the updated model."""
    if store is not None and len(paths) == 2:
        return paths[0], None, paths[1]
    if store is None and len(paths) == 3:
        return paths[0], paths[1], paths[2]
    raise SpecError(
        "update takes a model, a log and the place of the new model: abaca update MODEL LOG NEW_MODEL; or, with "
        "--from-store STORE, only the models: abaca update MODEL NEW_MODEL --from-store STORE"
    )


def _ids(given: list[str]) -> list[str]:
    """Ids as given, and those of files, one in a line."""
    found: list[Any] = []
    for one in given:
        named = one.startswith("@")
        path = Path(one[1:] if named else one)
        found += read_ids(path) if named or path.is_file() else [one]
    return found


def _stored(address: str, on_bad_row: str, recommender: "Recommender") -> Any:
    """The events of a store as a log, with types where the model's log has them."""
    try:
        from abaca.serve.store import open_store, stored_rows
    except ImportError as error:
        raise UserError(f"--from-store needs the package {error.name}; pip install 'abaca[serve]'") from error
    import pyarrow

    from abaca.data.log import read_log

    store = open_store(address)
    try:
        rows, event = stored_rows(store), recommender.reading["like"].event
        if event is not None:  # an event without a type, or of one that the model does not know, has the usual one
            event, at, usual = "event", rows.column_names.index("event"), _usual_type(recommender)
            types = recommender.saved and recommender.saved.types
            given = rows["event"].to_pylist()
            found = [usual if one is None or (types and one not in types.names) else one for one in given]
            rows = rows.set_column(at, "event", pyarrow.array(found, type=pyarrow.string()))
        columns = {"user": "user", "item": "item", "time": "time", "event": event}
        return read_log(rows, **columns, on_bad_row=on_bad_row)  # type: ignore[arg-type]
    finally:
        store.close()


def _usual_type(recommender: "Recommender") -> str:
    """The type of events that were sent without one."""
    types, kept = recommender.saved and recommender.saved.types, recommender.learned.events
    return types.names[types.usual] if types else kept[0] if kept else ""


def _tell(recommender: "Recommender", model: Path, *, json: bool) -> None:
    saved = recommender.saved
    assert saved is not None
    update = saved.training["updates"][-1]
    for note in notes(update["drift"]):
        show.warn(f"the log has drifted: {note}; consider --train, or training anew")
    if json:
        return show.as_json({"model": str(model), **update, "figure": saved.figure})
    out = show.console()
    known = f" ({update['skipped']:,} are known, or earlier than the last time)" if update["skipped"] else ""
    validated = update["how"] == "weights" and saved.figure is not None
    figure = f", validation {recommender.training.metric} {saved.figure:.4f}" if validated else ""
    out.print(
        f"[bold]{escape(str(model))}[/] {update['how']} updated with {update['rows']:,} new rows{known}: "
        f"{saved.catalogue.size:,} items, {update['items']:,} more{figure}",
        soft_wrap=True,
    )
    return None


def add_to(app: typer.Typer) -> None:
    app.command("update")(command)

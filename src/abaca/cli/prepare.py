"""`abaca prepare`: log → sequences."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import (
    LOG_HELP,
    Engine,
    Event,
    Events,
    Item,
    Items,
    Json,
    OnBadRow,
    Settings,
    TargetsOf,
    Time,
    User,
    on_spark,
    open_log,
    reads_types,
)
from abaca.data.prepare import PrepareOptions, prepare
from abaca.errors import SpecError

MinUser = Annotated[int, typer.Option("--min-user", help="Drop users with fewer interactions, until nothing changes.")]
MinItem = Annotated[int, typer.Option("--min-item", help="Drop items with fewer interactions, until nothing changes.")]
Consecutive = Annotated[
    bool, typer.Option("--drop-consecutive", help="Of a user's consecutive interactions with one item keep the first.")
]
Since = Annotated[str | None, typer.Option("--since", help="Keep interactions at this time or later.")]
Until = Annotated[str | None, typer.Option("--until", help="Keep interactions before this time.")]
TimePrecision = Annotated[
    str,
    typer.Option(
        "--time-precision",
        help="exact, or single: order as RecBole does, which keeps times as 32-bit numbers (steps of 64 s and more).",
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        help="leave-one-out: each user's last two interactions are held out; time: what happens after two cuts.",
    ),
]
ValidFrom = Annotated[str | None, typer.Option("--valid-from", help="Split by time: a time, or a share such as 80%.")]
TestFrom = Annotated[str | None, typer.Option("--test-from", help="Split by time: a time, or a share such as 90%.")]
Target = Annotated[str, typer.Option("--target", help="Split by time: the last, the first or all after a cut.")]

HoldOut = Annotated[
    float,
    typer.Option("--hold-out-items", help="Share of items that training does not see, to measure cold items."),
]


def prepare_options(given: dict[str, Any]) -> PrepareOptions:
    """Options of preparing from a command's arguments."""
    events = given.pop("events")
    return PrepareOptions(events=tuple(events) if events else None, **given)


def command(
    log: Annotated[str, typer.Argument(metavar="LOG", help=LOG_HELP)],
    sequences: Annotated[Path, typer.Argument(metavar="SEQUENCES", help="The folder to write.")],
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    items: Items = None,
    min_user: MinUser = 5,
    min_item: MinItem = 1,
    drop_consecutive: Consecutive = False,
    since: Since = None,
    until: Until = None,
    events: Events = None,
    targets_of: TargetsOf = None,
    time_precision: TimePrecision = "exact",
    split: Split = "leave-one-out",
    valid_from: ValidFrom = None,
    test_from: TestFrom = None,
    target: Target = "last",
    hold_out_items: HoldOut = 0.0,
    on_bad_row: OnBadRow = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a prepared folder.")] = False,
    engine: Engine = "duckdb",
    spark: Settings = None,
    transitions: Annotated[
        bool, typer.Option("--transitions", help="With Spark, also count what training counts to fit evidence.")
    ] = False,
    json: Json = False,
) -> None:
    """Turn a log into sequences: filtered, in order, split; memory-mapped arrays with a manifest.

    Example: [bold]abaca prepare purchases.csv sequences/ --user customer --item sku --min-item 5[/]

    With Spark: [bold]abaca prepare s3a://bucket/log sequences/ --engine spark --spark spark.master=spark://host:7077[/]
    """
    options = prepare_options(
        {
            "min_user": min_user, "min_item": min_item, "drop_consecutive": drop_consecutive, "since": since,
            "types": reads_types(event, events), "targets_of": targets_of,
            "until": until, "events": events, "time_precision": time_precision, "split": split,
            "valid_from": valid_from, "test_from": test_from, "target": target,
            "hold_out_items": hold_out_items,
        }
    )  # fmt: skip
    columns = {"user": user, "item": item, "time": time, "event": event}
    given: dict[str, Any] = {"options": options, "items": items, "overwrite": overwrite}
    if on_spark(engine, spark):
        from abaca.spark import prepare as spark_prepare
        from abaca.spark import read_log

        reading: dict[str, Any] = columns | ({} if on_bad_row is None else {"on_bad_row": on_bad_row})
        made = spark_prepare(read_log(log, **reading), sequences, **given, transitions=transitions)
    elif transitions:
        raise SpecError("`transitions` are counted by Spark: pass `engine=spark`; training counts them itself")
    else:
        source = open_log(Path(log), columns, on_bad_row)
        with show.errors_to().status("preparing") as status:
            made = prepare(source, sequences, **given, progress=status.update)
    if json:
        show.as_json(made.manifest)
        return
    out = show.console()
    out.print(
        f"[bold]{escape(str(sequences))}[/]: {made.users:,} users, {made.catalogue.size:,} items, "
        f"{len(made.items):,} interactions; {made.training_targets:,} training, {len(made.valid.users):,} validation "
        f"and {len(made.test.users):,} test targets"
    )
    show.left_out(made.manifest["counts"])
    read = made.manifest["source"]
    out.print(escape(f"columns: {show.columns(read['columns'], read['passed_over'])}"), soft_wrap=True)
    out.print(escape(f"split: {made.manifest['split']['rule']}"), soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    app.command("prepare")(command)

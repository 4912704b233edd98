"""`abaca encode`: texts of an item table → a column of vectors."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.data.folder import check_apart
from abaca.durable import whole_file
from abaca.errors import UserError


def command(
    items: Annotated[Path, typer.Argument(metavar="ITEMS", help="The item table: CSV, Parquet or JSON lines.")],
    to: Annotated[Path, typer.Argument(metavar="TO", help="The Parquet file to write.")],
    column: Annotated[
        list[str], typer.Option("--column", help="A column of texts; repeatable, texts of an item are joined.")
    ],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            metavar="NAME",
            help="`minilm`, which needs the extra `text`, or module:function, which takes texts and gives vectors.",
        ),
    ] = "minilm",
    name: Annotated[str, typer.Option("--name", help="The name of the new column.")] = "text_vector",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Encode the texts of an item table with a sentence encoder, as a column of vectors for --features.

    Example: [bold]abaca encode items.csv described.parquet --column title --encoder my_encoder:encode[/]
    """
    import pyarrow.parquet

    from abaca.data.textvectors import encoder_of, read_item_file, with_vectors

    check_apart(to, items)
    if to.exists() and not overwrite:
        raise UserError(f"{to} exists; give another place, or `overwrite=True`")
    made = with_vectors(read_item_file(items), column, encoder_of(encoder), name)
    with whole_file(to) as part:
        pyarrow.parquet.write_table(made, part)
    width = max(len(vector) for vector in made[name].to_pylist() if vector is not None)
    show.console().print(
        f"[bold]{escape(str(to))}[/] {made.num_rows:,} items, column {escape(name)}: vectors of {width} numbers",
        soft_wrap=True,
    )


def add_to(app: typer.Typer) -> None:
    app.command("encode")(command)

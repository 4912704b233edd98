"""`abaca export`: a model that runs without torch."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.errors import SpecError
from abaca.export import export_onnx
from abaca.recommender import load


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory.")],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The file to write; MODEL.onnx by default."),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="The format: onnx.")] = "onnx",
    old_format: Annotated[str | None, typer.Option("--to", hidden=True, help="The old name of --format.")] = None,
    n: Annotated[int, typer.Option("-n", help="Number of items in an answer.")] = 100,
    json: Json = False,
) -> None:
    """Write encoder, output layer, evidence and top-n as one ONNX file, and the ids beside it as JSON.

    Example: [bold]abaca export model/ shop.onnx -n 20[/]

    The graph takes batches and histories of any size and needs onnxruntime only: no torch, no abaca.
    """
    if (old_format or format) != "onnx":
        raise SpecError(f"--format {old_format or format} is not known; it is onnx")
    recommender = load(model, exact=True)
    assert recommender.saved is not None
    path = file if file is not None else model.resolve().with_name(f"{model.resolve().name}.onnx")
    with show.errors_to().status("exporting"):
        export_onnx(recommender.saved, recommender.training.window, path, n)
    ids = path.with_suffix(".json")
    if json:
        return show.as_json({"onnx": str(path), "ids": str(ids)})
    return show.console().print(f"[bold]{escape(str(path))}[/], its ids in {escape(str(ids))}", soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    app.command("export")(command)

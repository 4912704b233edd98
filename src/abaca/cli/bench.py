"""`abaca bench`: the speed of Abaca on the current machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from rich.markup import escape
from rich.table import Table

from abaca.bench import report
from abaca.bench.evaluate import EvaluateBench
from abaca.bench.growth import HISTORIES, ITEMS, THREADS, GrowthBench
from abaca.bench.loss import LossBench
from abaca.bench.measure import LEAST_REPETITIONS, Bench, measure
from abaca.bench.step import StepBench
from abaca.cli import show
from abaca.cli.columns import Json
from abaca.data.sequences import is_prepared
from abaca.errors import SpecError
from abaca.nn.encoders import ENCODERS
from abaca.nn.outputs import OutputSpec

bench = typer.Typer(
    no_args_is_help=True,
    help="""Measure the speed of this machine: CPU time, wall time and peak memory.

    Example: [bold]abaca bench loss --items 50000 --rows 6400[/]
    """,
)

Repetitions = Annotated[
    int, typer.Option("--repetitions", help=f"Rounds in which contenders take turns, at least {LEAST_REPETITIONS}.")
]
Threads = Annotated[int, typer.Option("--threads", help="CPU threads.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Measure this contender; can be given several times.")]
Memory = Annotated[bool, typer.Option(help="Also measure each contender's peak memory, in a new process.")]
To = Annotated[
    Path | None, typer.Option("--to", metavar="FOLDER", help="Write JSON, a Markdown table and a figure there.")
]
Prepared = Annotated[Path, typer.Argument(metavar="SEQUENCES", help="A folder made by `abaca prepare`.")]
Encoders = Annotated[list[str] | None, typer.Option("--encoder", help="Only this encoder; several times.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Only this output layer; several times.")]


@bench.command("loss")
def loss(
    items: Annotated[int, typer.Option("--items", help="Size of the catalogue.")] = LossBench.items,
    rows: Annotated[int, typer.Option("--rows", help="Positions that are trained at once.")] = LossBench.rows,
    dim: Annotated[int, typer.Option("--dim", help="Size of item embeddings.")] = LossBench.dim,
    history: Annotated[int, typer.Option("--history", help="Length of the histories.")] = LossBench.history,
    threads: Threads = 1,
    repetitions: Repetitions = LEAST_REPETITIONS,
    only: Only = None,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """Loss and all gradients of each output layer, against the three matrix products of a softmax.

    Example: [bold]abaca bench loss --items 50000 --rows 6400[/]
    """
    run("loss", LossBench(items, rows, dim, history), Run(threads, repetitions, memory, to, json), only or ())


@bench.command("step")
def step(
    sequences: Prepared,
    encoders: Encoders = None,
    outputs: Outputs = None,
    targets: Annotated[int, typer.Option("--targets", help="Targets of a window.")] = StepBench.targets,
    overlap: Annotated[int, typer.Option("--overlap", help="Leading items without loss.")] = StepBench.overlap,
    batch_targets: Annotated[int, typer.Option("--batch-targets", help="Targets per step.")] = StepBench.batch_targets,
    steps: Annotated[int, typer.Option("--steps", help="Steps of a run.")] = StepBench.steps,
    threads: Threads = 1,
    repetitions: Repetitions = LEAST_REPETITIONS,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """The whole training step on a log: batches, encoder, output layer, loss, gradients, optimizer.

    Example: [bold]abaca bench step sequences/ --encoder sasrec[/]
    """
    chosen = _chosen_models(encoders, outputs, StepBench.outputs)
    what = StepBench(_checked(sequences), *chosen, targets, overlap, batch_targets, steps)
    run("step", what, Run(threads, repetitions, memory, to, json))


@bench.command("evaluate")
def evaluate(
    sequences: Prepared,
    encoders: Encoders = None,
    outputs: Outputs = None,
    threads: Threads = 1,
    repetitions: Repetitions = LEAST_REPETITIONS,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """Full ranking of a log's test targets, in all and given the encoder's states.

    Example: [bold]abaca bench evaluate sequences/ --encoder sasrec[/]
    """
    what = EvaluateBench(_checked(sequences), *_chosen_models(encoders, outputs, EvaluateBench.outputs))
    run("evaluate", what, Run(threads, repetitions, memory, to, json))


@bench.command("growth")
def growth(
    items: Annotated[str, typer.Option("--items", help="Sizes of the catalogue.")] = ",".join(map(str, ITEMS)),
    histories: Annotated[str, typer.Option("--histories", help="Lengths of histories.")] = ",".join(
        map(str, HISTORIES)
    ),
    threads: Annotated[str, typer.Option("--threads", help="Numbers of CPU threads.")] = ",".join(map(str, THREADS)),
    rows: Annotated[int, typer.Option("--rows", help="Positions of a step.")] = GrowthBench.rows,
    encoder: Annotated[str, typer.Option("--encoder", help="gru4rec, sasrec or hstu.")] = GrowthBench.encoder,
    output: Annotated[str, typer.Option("--output", help="Output layer.")] = GrowthBench.output,
    middle: Annotated[int, typer.Option("--middle", help="Catalogue while the others grow.")] = GrowthBench.middle,
    repetitions: Repetitions = LEAST_REPETITIONS,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """The cost of a training step by the size of the catalogue, the length of histories and the threads.

    Example: [bold]abaca bench growth --items 4000,50000,1000000 --histories 50,400 --threads 1,2[/]
    """
    sizes = (_sizes("--items", items), _sizes("--histories", histories), _sizes("--threads", threads))
    what = GrowthBench(*sizes, rows, encoder, output, middle)
    run("growth", what, Run(sizes[2][0], repetitions, memory, to, json))


class Run(NamedTuple):
    """The options that all benchmarks share."""

    threads: int
    repetitions: int
    memory: bool
    to: Path | None
    json: bool


def run(name: str, what: Bench, options: Run, only: Sequence[str] = ()) -> None:
    """Measure with a progress bar, write the files and print the table."""
    if options.threads < 1:
        raise SpecError(f"--threads must be at least 1, got {options.threads}")
    torch.set_num_threads(options.threads)
    with show.counting(what.title) as advance:
        found = measure(what, only, options.repetitions, options.memory, advance)
    for path in () if options.to is None else report.write(options.to, name, what, found):
        show.errors_to().print(f"wrote {escape(str(path))}", soft_wrap=True)
    if options.json:
        show.as_json([one.to_json() for one in found])
        return
    cells = report.columns(found)
    shown = Table("", title=what.title, title_justify="left", header_style="bold")
    for column in cells:
        shown.add_column(column, justify="right")
    for one in found:
        shown.add_row(escape(one.name), *(fill(one) for fill in cells.values()))
    show.console().print(shown)


def _checked(sequences: Path) -> Path:
    if not is_prepared(sequences):
        raise SpecError(f"{sequences} is not a prepared folder; abaca prepare LOG {sequences} makes one")
    return sequences


def _chosen_models(
    encoders: list[str] | None, outputs: list[str] | None, usual: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Encoders and output layers, as they are spelled in tables."""
    unknown = [encoder for encoder in encoders or () if encoder not in ENCODERS]
    if unknown:
        raise SpecError(f"encoder '{unknown[0]}' is not one of {', '.join(ENCODERS)}")
    return tuple(encoders or ENCODERS), tuple(str(OutputSpec.parse(output)) for output in outputs or usual)


def _sizes(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SpecError(f"{flag} '{text}' is not a list of whole numbers such as 1,2") from None


def add_to(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")

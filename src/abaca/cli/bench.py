"""`abaca bench`: how fast it is here."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape
from rich.table import Table

from abaca.bench import report
from abaca.bench.evaluate import EvaluateBench
from abaca.bench.growth import HISTORIES, ITEMS, THREADS, GrowthBench
from abaca.bench.learning import METRIC, Point, learn, learn_peer, pair_of
from abaca.bench.learning import figure as learning_figure
from abaca.bench.learning import table as learning_table
from abaca.bench.loss import LossBench
from abaca.bench.measure import LEAST_REPETITIONS, Bench, Measurement, machine, measure, settings
from abaca.bench.peer import Peer
from abaca.bench.peers import EVALUATION, PeersBench, faster
from abaca.bench.sizes import DROPOUT
from abaca.bench.step import StepBench
from abaca.cli import show
from abaca.cli.columns import Json
from abaca.data.sequences import Sequences, is_prepared
from abaca.errors import SpecError
from abaca.nn.encoders import ENCODERS
from abaca.nn.outputs import OutputSpec
from abaca.options import training_defaults

bench = typer.Typer(
    no_args_is_help=True,
    help="""Measure how fast it is here: CPU time, wall time and peak memory.

    Example: [bold]abaca bench loss --items 50000 --rows 6400[/]
    """,
)

Repetitions = Annotated[
    int, typer.Option("--repetitions", help=f"Rounds in which contenders take turns, at least {LEAST_REPETITIONS}.")
]
Threads = Annotated[int, typer.Option("--threads", help="CPU threads.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Measure this contender; can be given several times.")]
Memory = Annotated[bool, typer.Option(help="Measure each contender's peak memory too, in a process of its own.")]
To = Annotated[
    Path | None, typer.Option("--to", metavar="FOLDER", help="Write JSON, a Markdown table and a figure there.")
]
Prepared = Annotated[Path, typer.Argument(metavar="SEQUENCES", help="A folder made by `abaca prepare`.")]
Encoders = Annotated[list[str] | None, typer.Option("--encoder", help="Only this encoder; several times.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", help="Only this output layer; several times.")]
Rival = Annotated[Path, typer.Option("--peer", metavar="PYTHON", help="An interpreter that has RecBole 1.2.1.")]


def _listed(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


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
    """Loss and all gradients of each output layer, against the three matrix products that nothing can avoid.

    Example: [bold]abaca bench loss --items 50000 --rows 6400[/]
    """
    _use_threads(threads)
    run(LossBench(items, rows, dim, history), "loss", only or [], repetitions, memory, to, json)


@bench.command("step")
def step(
    sequences: Prepared,
    encoders: Encoders = None,
    outputs: Outputs = None,
    targets: Annotated[int, typer.Option("--targets", help="Targets a window trains.")] = StepBench.targets,
    overlap: Annotated[int, typer.Option("--overlap", help="Leading items without loss.")] = StepBench.overlap,
    batch_targets: Annotated[int, typer.Option("--batch-targets", help="Targets per step.")] = StepBench.batch_targets,
    steps: Annotated[int, typer.Option("--steps", help="Steps of a burst.")] = StepBench.steps,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Sizes of the encoders: defaults (as `abaca train`), or paper.")
    ] = StepBench.sizes,
    threads: Threads = 1,
    repetitions: Repetitions = LEAST_REPETITIONS,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """The whole training step on a log: batches, encoder, output layer, loss, gradients, optimizer.

    Example: [bold]abaca bench step sequences/ --encoder sasrec[/]
    """
    _use_threads(threads)
    chosen = _chosen_models(encoders, outputs, StepBench.outputs)
    what = StepBench(opened(sequences), *chosen, targets, overlap, batch_targets, steps, sizes)
    run(what, "step", [], repetitions, memory, to, json)


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
    _use_threads(threads)
    what = EvaluateBench(opened(sequences), *_chosen_models(encoders, outputs, EvaluateBench.outputs))
    run(what, "evaluate", [], repetitions, memory, to, json)


@bench.command("growth")
def growth(
    items: Annotated[str, typer.Option("--items", help="Sizes of the catalogue.")] = _listed(ITEMS),
    histories: Annotated[str, typer.Option("--histories", help="Lengths of histories.")] = _listed(HISTORIES),
    threads: Annotated[str, typer.Option("--threads", help="Numbers of CPU threads.")] = _listed(THREADS),
    rows: Annotated[int, typer.Option("--rows", help="Positions of a step.")] = GrowthBench.rows,
    encoder: Annotated[str, typer.Option("--encoder", help="gru4rec or sasrec.")] = GrowthBench.encoder,
    output: Annotated[str, typer.Option("--output", help="Output layer.")] = GrowthBench.output,
    middle: Annotated[int, typer.Option("--middle", help="Catalogue while the others grow.")] = GrowthBench.middle,
    repetitions: Repetitions = LEAST_REPETITIONS,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """How a training step grows with the catalogue, with the length of the histories and with threads.

    Example: [bold]abaca bench growth --items 4000,50000,1000000 --histories 50,400 --threads 1,2[/]
    """
    sizes = (_sizes("--items", items), _sizes("--histories", histories), _sizes("--threads", threads))
    _use_threads(sizes[2][0])
    run(GrowthBench(*sizes, rows, encoder, output, middle), "growth", [], repetitions, memory, to, json)


@bench.command("peers")
def peers(
    sequences: Prepared,
    peer: Rival,
    models: Annotated[list[str] | None, typer.Option("--model", help="Only this model of RecBole.")] = None,
    work: Annotated[list[str] | None, typer.Option("--work", help="Only training, or only evaluation.")] = None,
    steps: Annotated[int, typer.Option("--steps", help="Our steps of a burst.")] = PeersBench.steps,
    batch_targets: Annotated[
        int, typer.Option("--batch-targets", help="Our targets per step.")
    ] = PeersBench.batch_targets,
    peer_batches: Annotated[int, typer.Option(help="RecBole's batches of a burst.")] = PeersBench.peer_batches,
    peer_batch: Annotated[int, typer.Option(help="Targets of RecBole's batches.")] = PeersBench.peer_batch,
    trained: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", help="Evaluate this model of ours, trained on the same log, not a fresh one."),
    ] = None,
    repetitions: Repetitions = LEAST_REPETITIONS,
    memory: Memory = True,
    to: To = None,
    json: Json = False,
) -> None:
    """The same training and evaluation here and in RecBole 1.2.1, in turns, one thread each.

    RecBole needs an environment of its own: [bold]benchmarks/peers/setup.sh recbole/[/] makes it. It leaves autograd's
    anomaly detection on, which slows it down; it is measured with and without.

    Example: [bold]abaca bench peers sequences/ --peer recbole/bin/python[/]
    """
    _use_threads(1)
    chosen = tuple(models or PeersBench.models), tuple(work or PeersBench.work)
    sizes = steps, batch_targets, peer_batches, peer_batch
    what = PeersBench(opened(sequences), peer, *chosen, *sizes, trained=tuple(trained or ()))
    found = faster(measured(what, [], repetitions, memory))
    same = {pair.peer: what.sides.same_scores(pair) for pair in what.pairs} if EVALUATION in what.work else {}
    tell(what, "peers", found, to, json, {"same_scores": same, "peer": what.sides.peer.facts})
    for model, metrics in () if json else same.items():
        both = ", ".join(f"{name} {ours:.6f} and {theirs:.6f}" for name, (ours, theirs) in metrics.items())
        show.console().print(f"from the scores of {model}, here and there: {both}", soft_wrap=True)


@bench.command("learning")
def learning(
    sequences: Prepared,
    peer: Rival,
    model: Annotated[str, typer.Option("--model", help="A model of RecBole; ours is its rival.")] = "SASRecCPR",
    seconds: Annotated[float, typer.Option("--seconds", help="CPU time of training, each side.")] = 1200,
    points: Annotated[int, typer.Option("--points", help="How often to validate.")] = 20,
    to: To = None,
    json: Json = False,
) -> None:
    """Validation NDCG@10 against the CPU time spent on training, here and in RecBole 1.2.1, one thread each.

    Both train at the same time. Ours has the options of `abaca train` and the paper's sizes.

    Example: [bold]abaca bench learning sequences/ --peer recbole/bin/python --seconds 600 --to learning/[/]
    """
    if seconds <= 0 or points < 1:
        raise SpecError(f"--seconds and --points must be above 0, got {seconds} and {points}")
    _use_threads(1)
    pair, data = pair_of(model), Sequences.open(opened(sequences))
    there = Peer(peer, data, dropout=DROPOUT, train_batch=PeersBench.peer_batch)
    names = (f"abaca {pair.ours}", f"RecBole {pair.peer}")
    with ThreadPoolExecutor(1) as beside:  # RecBole has a process of its own
        theirs = beside.submit(learn_peer, pair, there, seconds, points, _teller(names[1]))
        tell = _teller(names[0])

        def tell_unless_alone(point: Point) -> None:
            tell(point)
            if theirs.done():
                theirs.result()  # an error of theirs ends ours too

        ours = learn(pair, data, training_defaults(pair.encoder), seconds, points, tell_unless_alone)
        curves = {names[0]: ours, names[1]: theirs.result()}
    plain = [{"name": name, **point._asdict()} for name, curve in curves.items() for point in curve]
    if to is not None:
        title = f"Validation {METRIC.upper()} against CPU time"
        document = {"bench": "learning", "machine": machine(), "peer": there.facts, "results": plain}
        table = learning_table(title, curves)
        report.write(to, "learning", document, table, learning_figure(title, curves))
    if json:
        show.as_json(plain)


def _teller(name: str) -> Callable[[Point], None]:
    def tell_point(point: Point) -> None:
        show.errors_to().print(
            f"{name}: {point.cpu_seconds:,.0f} s, {point.targets:,} targets, {METRIC} {point.value:.4f}", soft_wrap=True
        )

    return tell_point


def opened(sequences: Path) -> Path:
    """A prepared folder, after a look at it."""
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


def run(what: Bench, name: str, only: list[str], repetitions: int, memory: bool, to: Path | None, json: bool) -> None:
    """Measure and show the outcome."""
    tell(what, name, measured(what, only, repetitions, memory), to, json, {})


def measured(what: Bench, only: list[str], repetitions: int, memory: bool) -> list[Measurement]:
    """Measure with a progress bar."""
    with show.counting(what.title) as advance:
        return measure(what, only, repetitions, memory, advance)


def tell(what: Bench, name: str, found: list[Measurement], to: Path | None, json: bool, more: dict[str, Any]) -> None:
    """Print the measurements, and write them down where that is asked for."""
    plain, here = [one.to_json() for one in found], machine()
    if to is not None:
        document = {"bench": name, "settings": settings(what), "machine": here, **more, "results": plain}
        table, picture = (make(what.title, found, here) for make in (report.markdown, report.figure))
        for path in report.write(to, name, document, table, picture):
            show.errors_to().print(f"wrote {escape(str(path))}", soft_wrap=True)
    if json:
        show.as_json(plain)
    else:
        show.console().print(_table(what.title, found))


def _table(title: str, found: list[Measurement]) -> Table:
    cells = report.columns(found)
    shown = Table("", title=title, title_justify="left", header_style="bold")
    for column in cells:
        shown.add_column(column, justify="right")
    for one in found:
        shown.add_row(escape(one.name), *(fill(one) for fill in cells.values()))
    return shown


def _use_threads(threads: int) -> None:
    if threads < 1:
        raise SpecError(f"--threads must be at least 1, got {threads}")
    torch.set_num_threads(threads)


def add_to(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")

"""`abaca evaluate`: a model's numbers, or several models' and the baselines' side by side."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.cli.columns import Event, Item, Json, OnBadRow, Time, User, is_model, open_data
from abaca.data.sequences import Sequences
from abaca.errors import ModelError, SpecError
from abaca.evaluation.against import evaluate_baselines
from abaca.evaluation.baselines import BASELINES
from abaca.evaluation.cold import ColdSummary, evaluate_cold
from abaca.evaluation.evaluate import Evaluation, compare
from abaca.evaluation.lists import Lists

if TYPE_CHECKING:
    from abaca.recommender import Recommender


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL [MODEL …] LOG|SEQUENCES", help="Models, and last the data they were trained on."),
    ],
    at: Annotated[str, typer.Option("--at", help="Cutoffs, as in 5,10,20.")] = "10",
    targets: Annotated[str, typer.Option("--targets", help="test or valid.")] = "test",
    baselines: Annotated[
        bool, typer.Option(help="Add the baselines: popularity, habits, rules, a blend, counts.")
    ] = True,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Add lists of a file (user_id, item_id, score or rank), from rows before the targets; repeatable.",
        ),
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Ask at the time of each target.")] = False,
    user: User = None,
    item: Item = None,
    time: Time = None,
    event: Event = None,
    on_bad_row: OnBadRow = None,
    json: Json = False,
) -> None:
    """Rank every held-out target against the whole catalogue, and split the numbers by repeat and new.

    Each shelf is also ranked alone: items of the history on repeat targets, other items on new targets. Ties count
    against the target. A paired test compares several models with the first, and the first model with the best
    baseline.

    Example: [bold]abaca evaluate softmax/ cpr/ purchases.csv --at 5,10[/]
    """
    _check_order(paths)
    if targets not in ("test", "valid"):
        raise SpecError(f"--targets '{targets}' is not test or valid")
    cutoffs = _cutoffs(at)
    *folders, source = paths

    from abaca.recommender import load

    models = [load(folder) for folder in folders]
    columns = {"user": user, "item": item, "time": time, "event": event}
    data = open_data(source, columns, on_bad_row, models[0].reading)
    sequences = models[0].open(data)
    results = [
        _evaluate(model, sequences, targets, cutoffs, str(folder), now=now)
        for model, folder in zip(models, folders, strict=True)
    ]
    results = _told_apart(results, folders)
    cold = [
        replace(evaluate_cold(model.ranker(), sequences, targets, cutoffs).summarise(), name=result.name)
        for model, result in zip(models, results, strict=True)
        if result.catalogue > sequences.catalogue.size and result.summary.cold
    ]
    simple = evaluate_baselines(sequences, targets, cutoffs, now) if baselines else []
    others = [_others(file, sequences, targets, cutoffs) for file in against or ()]
    if targets == "valid":
        _warn_of_fitted(models, results, simple)
    metric = f"ndcg@{max(cutoffs)}"
    tests = [compare(result, results[0], metric) for result in results[1:] + others]
    if simple:
        tests.append(compare(results[0], max(simple, key=lambda each: each.mean(metric)), metric))
    if json:
        rows = [row.to_json() for row in results + others + simple]
        compared = [test.to_json() for test in tests]
        return show.as_json({"evaluations": rows, "comparisons": compared, "cold": [one.to_json() for one in cold]})
    _print(results, simple + others, sequences, targets)
    _print_cold(cold, results[0], sequences)
    for test in tests:
        gain, best = test.difference, "the best baseline, " if test.a == results[0].name else ""
        show.console().print(
            f"{escape(test.a)} against {best}{escape(test.b)}: {test.metric} {gain.value:+.4f} "
            f"(95 % {gain.low:+.4f} to {gain.high:+.4f}), p = {test.p_value:.4f}",
            soft_wrap=True,
        )
    return None


def _warn_of_fitted(models: list["Recommender"], results: list[Evaluation], simple: list[Evaluation]) -> None:
    """Warn of figures on validation targets that evidence or a baseline was fitted on."""
    names = [name for name, make in BASELINES.items() if make().fitted]
    for model, result in zip(models, results, strict=True):
        assert model.saved is not None
        if model.saved.evidence is None and model.output not in names:
            continue
        found = model.saved.training.get("with_evidence")
        figure = "" if found is None else f"; validation {model.training.metric} without this is {found:.4f}"
        what = result.name if model.saved.evidence is None else f"the evidence of {result.name}"
        show.warn(f"{what} was fitted on these targets, so its figures are too high{figure}")
    if simple:
        show.warn(f"the baselines {' and '.join(names)} were fitted on these targets, so their figures are too high")


def _others(file: Path, sequences: Sequences, targets: str, cutoffs: tuple[int, ...]) -> Evaluation:
    """The recommendations of another system; users without any are listed."""
    lists = Lists.read(file, sequences)
    missing = lists.without(sequences, targets)
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        show.warn(f"{file} has no list for {len(missing):,} users, whose targets count as misses: {some}")
    return lists.evaluate(sequences, targets, cutoffs)


def _check_order(paths: list[Path]) -> None:
    """Models come first and the data last."""
    usage = "evaluate takes one or more model directories and then the log or prepared folder"
    if len(paths) < 2:
        raise SpecError(f"{usage}: abaca evaluate {paths[0]} LOG")
    if is_model(paths[-1]):
        others = [str(path) for path in paths if not is_model(path)] or ["LOG"]
        models = [str(path) for path in paths if is_model(path)]
        raise SpecError(
            f"{paths[-1]} is a model directory, but {usage}: {shlex.join(['abaca', 'evaluate', *models, *others])}"
        )


def _evaluate(
    model: "Recommender", sequences: Sequences, targets: str, cutoffs: tuple[int, ...], folder: str, *, now: bool
) -> Evaluation:
    try:
        with show.counting(f"ranking {folder}") as advance:
            return model.evaluate(sequences, targets=targets, cutoffs=cutoffs, progress=advance, now=now)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from error


def _told_apart(results: list[Evaluation], folders: list[Path]) -> list[Evaluation]:
    """Models of the same kind are named with their folders."""
    names = [result.name for result in results]
    return [
        replace(result, name=f"{result.name} ({folder})") if names.count(result.name) > 1 else result
        for result, folder in zip(results, folders, strict=True)
    ]


def _print(results: list[Evaluation], beside: list[Evaluation], sequences: Sequences, targets: str) -> None:
    out = show.console()
    title = f"{targets} targets, ranked against all {sequences.catalogue.size:,} items"
    out.print(show.evaluations(beside + results, title))
    out.print(show.shelves(beside + results))
    for result in results:
        summary = result.summary
        cutoff = max(result.cutoffs)
        figure = summary.groups["all"].metrics[f"ndcg@{cutoff}"]
        out.print(
            f"{escape(result.name)}: NDCG@{cutoff} {figure.value:.4f} (95 % {figure.low:.4f} to {figure.high:.4f}); "
            f"repeats happen {summary.repeats_happen:.1%}, recommended {summary.repeats_recommended[cutoff]:.1%}; "
            f"covers {summary.coverage[cutoff]:.1%} of the catalogue",
            soft_wrap=True,
        )
        if summary.calibration is not None:
            out.print(
                f"  probability of repeating: predicted {summary.calibration.predicted:.1%}, "
                f"observed {summary.calibration.observed:.1%}, calibration error {summary.calibration.ece:.3f}"
            )
    if results[0].repeats_of is not None:
        types = " or ".join(results[0].repeats_of)
        out.print(escape(f"repeat: an earlier event of type {types} with the same item"), soft_wrap=True)
    out.print(f"split: {sequences.manifest['split']['rule']}", soft_wrap=True)


def _print_cold(cold: list[ColdSummary], first: Evaluation, sequences: Sequences) -> None:
    """Cold targets: among cold items where a model ranks these, else their number."""
    out = show.console()
    misses = "" if cold else ": they count as misses"
    if first.summary.cold:
        out.print(f"{first.summary.cold:,} targets are items that training never saw{misses}")
    for one in cold:
        for metric, figure in one.cold.items():
            if metric.startswith("mrr"):
                continue
            out.print(
                f"{escape(one.name)}: {metric} of cold targets among {one.items:,} cold items {figure.value:.4f} "
                f"(95 % {figure.low:.4f} to {figure.high:.4f}), by popularity {one.popularity[metric]:.4f}, at random "
                f"{one.random[metric]:.4f}; of warm targets among {sequences.catalogue.size:,} warm items "
                f"{one.warm[metric].value:.4f}",
                soft_wrap=True,
            )


def _cutoffs(text: str) -> tuple[int, ...]:
    try:
        cutoffs = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SpecError(f"--at '{text}' is not a list of whole numbers such as 5,10,20") from None
    if any(cutoff < 1 for cutoff in cutoffs):
        raise SpecError(f"--at '{text}': a cutoff is at least 1")
    return cutoffs


def add_to(app: typer.Typer) -> None:
    app.command("evaluate")(command)

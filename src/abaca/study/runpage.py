"""Runs side by side as one page that loads nothing."""

from collections.abc import Sequence
from html import escape

from abaca.display import duration, html_table
from abaca.study.draw import Figure, Style
from abaca.study.page import figure, page, paragraph, section
from abaca.training.records import RunSummary, differing, epochs_text, figure_text, value_text

COLOURS = ("blue", "red", "green", "amber", "violet", "sky", "pink", "brown", "ink", "grey")
STYLES = [
    Style(colour, marker, dash)
    for dash, markers in (("-", "osD^vPXh<>"), ("--", "D^vPXh<>os"))
    for colour, marker in zip(COLOURS, markers, strict=True)
]
"""How the lines of the figures look, in the order of the runs."""


def runs_page(runs: Sequence[RunSummary], folder: str) -> str:
    """A table of all runs, their curves, and their options."""
    drawn = [run for run in runs if run.records][: len(STYLES)]
    lead = f"{len(runs)} runs, the best validation figure first."
    if len(drawn) < len(runs):
        lead += f" The figures show {len(drawn)} of them."
    head = f"<header><p class='over'>Abaca runs</p><h1>{escape(folder)}</h1>{paragraph(lead, 'lead')}</header>"
    curves = section("Curves", figure(curves_of(drawn).svg(), "After each epoch.")) if drawn else ""
    return page(f"Abaca runs: {folder}", head + section("Runs", _table(runs)) + curves + _options(runs), wide=True)


def curves_of(runs: Sequence[RunSummary]) -> Figure:
    """Loss and validation figure of each run by epoch."""
    drawn = Figure("runs", "Loss and validation figure by epoch", (1, 2), (5.0, 3.2))
    metrics = {run.metric for run in runs if run.metric}
    name = metrics.pop() if len(metrics) == 1 else "figure of each run"
    drawn.titles(["training loss", f"validation {name}"], "epoch", "")
    for run, style in zip(runs, STYLES, strict=False):
        for panel, key in zip(drawn.panels, ("loss", run.metric), strict=True):
            points = [(record["epoch"] + 1, record[key]) for record in run.records if key in record]
            if points:
                drawn.line(panel, run.name, points, style)
    for panel in drawn.panels:
        panel.xaxis.get_major_locator().set_params(integer=True)
    drawn.legend(3)
    return drawn


def _table(runs: Sequence[RunSummary]) -> str:
    names = differing(runs)
    head = ("run", *names, "trained", "validation", "with evidence", "time")
    rows = [
        (
            run.name, *(value_text(run.options.get(name)) for name in names), epochs_text(run), figure_text(run.best),
            figure_text(run.with_evidence), duration(run.seconds),
        )
        for run in runs
    ]  # fmt: skip
    return _scrolling(html_table("Options that are the same in all runs are below.", head, rows))


def _options(runs: Sequence[RunSummary]) -> str:
    """The options that all runs share."""
    names, known = differing(runs), next((run.options for run in runs if run.options), {})
    rows = [(name, value_text(value)) for name, value in known.items() if name not in names]
    return section("The same in all runs", _scrolling(html_table("", ("option", "value"), rows))) if rows else ""


def _scrolling(table: str) -> str:
    return f"<figure class='table'><div class='scroll'>{table}</div></figure>"

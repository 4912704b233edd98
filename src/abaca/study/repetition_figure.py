"""The figure of repetition: the probability of a repeated next item by length (the paper's Figure 3)."""

import math
from collections.abc import Mapping
from typing import Any

from abaca.study.draw import COLOURS, SOFT, Figure, Style, grid_of
from abaca.study.repetition import LONGEST, Repetition, Tally

LEAST = 10
"""Sequences that a length needs at least; a share of fewer is noise."""

WITH, WITHOUT = Style("blue", "", "-", 1.8), Style("red", "", "--", 1.8)


def repetition_figure(found: Mapping[str, Repetition]) -> Figure:
    """A panel for each data set; bands are Wilson's 95 % intervals."""
    figure = Figure(
        "repetition",
        "Probability that the last item of a sequence is a repeat, by the length of the sequence, with and without an "
        "earlier repeat; bands are 95 % intervals",
        grid_of(len(found)),
        (3.1, 2.6),
    )
    top = _top(found)
    for panel, repetition in zip(figure.panels, found.values(), strict=False):
        lines = ((repetition.with_repeat, "earlier repeat", WITH), (repetition.without_repeat, "none so far", WITHOUT))
        for (tallies, words, style), count in zip(lines, repetition.counts, strict=True):
            _draw(panel, tallies, f"{words} ({count:,})", style)
        panel.set_xlim(0, LONGEST + 1)
        panel.set_ylim(0, top)
        panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= min(top, 100)])
        panel.legend(loc="best", frameon=False, labelcolor=SOFT)
    figure.titles(list(found), "length of the sequence", "next item is a repeat (%)")
    return figure


def _top(found: Mapping[str, Repetition]) -> float:
    """The end of the scale of all panels: the highest line and space for the legend, in tens."""
    tallies = [tally for f in found.values() for tally in (*f.with_repeat, *f.without_repeat)]
    highest = max((tally.probability.value for tally in tallies if tally.count >= LEAST), default=1.0)
    return max(10.0, 10 * math.ceil(14 * highest))


def _draw(panel: Any, tallies: tuple[Tally, ...], words: str, style: Style) -> None:
    """A line with its band; lengths with few sequences are a gap in both."""
    by_length = {tally.length: tally.probability for tally in tallies if tally.count >= LEAST}
    lengths = range(min(by_length, default=0), max(by_length, default=-1) + 1)
    rows = [by_length.get(length) for length in lengths]
    low, value, high = (
        [math.nan if row is None else 100 * getattr(row, part) for row in rows] for part in ("low", "value", "high")
    )
    colour = COLOURS[style.name][0]
    panel.fill_between(lengths, low, high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(lengths, value, color=colour, linestyle=style.dash, linewidth=style.width, label=words)

"""The figure of repetition: the probability of a repeated next item by length (the paper's Figure 3)."""

import math
from collections.abc import Mapping
from typing import Any

from abaca.study.draw import COLOURS, SOFT, Look, Sheet, grid_of
from abaca.study.repetition import LONGEST, Repetition, Tally

LEAST = 10
"""Sequences of a length below which nothing is drawn: a share of so few says nothing."""

WITH, WITHOUT = Look("blue", "", "-", 1.8), Look("red", "", "--", 1.8)


def repetition_figure(found: Mapping[str, Repetition], most: int = 3) -> Sheet:
    """A panel for each data set, its name above; bands are Wilson's 95 % intervals."""
    sheet = Sheet(
        "repetition",
        "Probability that the last item of a sequence is a repeat, by the length of the sequence, with and without an "
        "earlier repeat; bands are 95 % intervals",
        grid_of(len(found), most),
        (3.1, 2.6),
    )
    top = _top(found)
    for place, (panel, (name, repetition)) in enumerate(zip(sheet.panels, found.items(), strict=False)):
        counts = repetition.counts
        lines = ((repetition.with_repeat, "earlier repeat", WITH), (repetition.without_repeat, "none so far", WITHOUT))
        for (tallies, words, look), count in zip(lines, counts, strict=True):
            _draw(sheet, panel, tallies, f"{words} ({count:,})", look)
        up = "next item is a repeat (%)" if place % grid_of(len(found), most)[1] == 0 else ""
        sheet.title(panel, name, "length of the sequence", up)
        panel.set_xlim(0, LONGEST + 1)
        panel.set_ylim(0, top)
        panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= min(top, 100)])
        panel.legend(loc="best", frameon=False, labelcolor=SOFT)
    sheet.hide_rest(len(found))
    return sheet


def _top(found: Mapping[str, Repetition]) -> float:
    """Where the scale of all panels ends: the highest line and room for the legend, in tens."""
    tallies = [tally for f in found.values() for tally in (*f.with_repeat, *f.without_repeat)]
    highest = max((tally.probability.value for tally in tallies if tally.count >= LEAST), default=1.0)
    return max(10.0, 10 * math.ceil(14 * highest))


def _draw(sheet: Sheet, panel: Any, tallies: tuple[Tally, ...], words: str, look: Look) -> None:
    """A line with its band; where hardly anybody is left at a length, both have a gap."""
    by_length = {tally.length: tally.probability for tally in tallies if tally.count >= LEAST}
    lengths = range(min(by_length, default=0), max(by_length, default=-1) + 1)
    gap = float("nan")
    rows = [by_length.get(length) for length in lengths]
    low, value, high = (
        [gap if row is None else 100 * getattr(row, part) for row in rows] for part in ("low", "value", "high")
    )
    colour = COLOURS[look.name][0]
    panel.fill_between(lengths, low, high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(lengths, value, color=colour, linestyle=look.dash, linewidth=look.width, label=words)

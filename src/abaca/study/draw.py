"""How figures look: one style for print and screen, and colours that most people tell apart.

Matplotlib draws. In an SVG text stays text and colours become CSS variables, so that a figure follows the reader's
light or dark mode; the PDF is for papers.
"""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import product
from typing import Any

from abaca.errors import SpecError
from abaca.evaluation.metrics import Estimate
from abaca.nn.outputs import OutputSpec
from abaca.study.extra import needs

COLOURS = {
    "ink": ("#1f2328", "#e6edf3"), "soft": ("#59616b", "#9aa3ad"), "rule": ("#d8dee4", "#343b44"),
    "paper": ("#fefefe", "#0f1318"), "grey": ("#8b939c", "#858e98"), "sky": ("#3fa7e0", "#7cc7f2"),
    "blue": ("#0060a0", "#4f9ee0"), "green": ("#008060", "#35b891"), "red": ("#cc4c00", "#f58a4b"),
    "amber": ("#c98a00", "#f0c04a"), "pink": ("#b8558f", "#e49ac4"), "violet": ("#6f4fa0", "#b79ae6"),
    "brown": ("#7a4a21", "#c79a6b"),
}  # fmt: skip
"""By name: on white paper (after Okabe and Ito, a little darker for thin lines), and on a dark screen."""

BASELINE_MARKERS = {
    "popularity": "p", "most recent": ">", "personal frequency": "d", "sequential rules": "H",
    "decayed sequential rules": "v",
}  # fmt: skip

TITLE_POINTS, LEAST_POINTS = 9.5, 7.0

OTHERS = tuple(product(("8", "d", ">", "p", "H", "s", "D", "^"), (":", "-.", "--", "-")))
"""Markers and dashes for output layers that would look like another one."""

INK, SOFT, RULE, PAPER = (COLOURS[name][0] for name in ("ink", "soft", "rule", "paper"))


def css(dark: bool) -> str:
    """The colours as CSS variables."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in COLOURS.items())


STYLE = f":root {{ {css(False)} }} @media (prefers-color-scheme: dark) {{ :root {{ {css(True)} }} }}"
"""For a page, or for an SVG that stands alone."""


@dataclass(frozen=True)
class Look:
    """How a ranker looks in every figure: colour, marker and dash, so that colour alone never tells."""

    name: str
    marker: str
    dash: str
    width: float = 1.3

    @property
    def colour(self) -> str:
        """Its colour on paper."""
        return COLOURS[self.name][0]


def look(ranker: str) -> Look:
    """The look of an output layer, or of a baseline."""
    try:
        spec = OutputSpec.parse(ranker)
    except SpecError:
        return Look("grey", BASELINE_MARKERS.get(ranker, "."), ":", 1.0)
    if spec.nodup:
        return Look("violet", "<", "-.")
    if spec.base != "softmax":
        return Look("brown", "*", "-") if spec.base == "repeatnet" else Look("pink", "X", ":")
    if spec.rerank:
        several = len(spec.rerank) > 1
        mixed = Look("amber", "P", "--") if several else Look("red", "h", "-", 2.0)
        return mixed if spec.mix or several else Look("green", "D", "-.")
    if spec.copy:
        return Look("blue", "v", "--") if spec.point else Look("sky", "^", "-")
    return Look("grey", "s", "--") if spec.mix else Look("ink", "o", "-")


class Sheet:
    """A figure of one or more panels, in rows."""

    def __init__(self, name: str, words: str, shape: tuple[int, int] = (1, 1), panel: tuple[float, float] = (3.2, 2.5)):
        self.name, self.words = name, words
        rows, self.columns = shape
        self.room = 72 * 0.8 * panel[0] / 0.62
        """Points that the letters of a panel's title may have together; a letter is about 0.62 as wide as high."""
        with _theme(name):
            figure = needs("matplotlib.figure", "study").Figure
            self.figure: Any = figure(figsize=(panel[0] * self.columns, panel[1] * rows), layout="constrained")
            self.panels: list[Any] = list(self.figure.subplots(rows, self.columns, squeeze=False).flat)
        self._looks: dict[str, Look] = {}
        self._legend: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, dict[str, Any]] = {}

    def title(self, panel: Any, title: str, across: str, up: str) -> None:
        """Say what a panel shows."""
        with _theme(self.name):
            longest = max(map(len, title.splitlines()), default=1)
            size = min(TITLE_POINTS, max(LEAST_POINTS, self.room / longest))
            panel.set_title(title.replace("$", r"\$"), fontsize=size)  # no formula
            panel.set_xlabel(across)
            panel.set_ylabel(up)

    def line(self, panel: Any, name: str, points: Sequence[tuple[float, float]], shown: Look | None = None) -> None:
        """A ranker's line through its points."""
        style = _style(shown or self._look(name))
        panel.plot(*zip(*points, strict=True), **style)
        self._legend[name] = style

    def dot(self, panel: Any, name: str, at: tuple[float, float], group: str = "", hollow: bool = False) -> None:
        """A ranker's dot; the hollow ones stand for a second group."""
        style = _style(self._look(name)) | {"linestyle": "", "zorder": 3}
        colour, style["markersize"] = style["color"], style["markersize"] + 1
        edges = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": 1.3} if hollow else {}
        panel.plot(*at, **{**style, **edges})
        self._legend[name] = style
        if group:
            self._groups[group] = {**style, **edges, "color": SOFT, "marker": "o", "markersize": 6}
            self._groups[group] |= {"markeredgecolor": SOFT} if hollow else {}

    def _look(self, name: str) -> Look:
        """A ranker's look; of several that would look alike, each later one has another marker and dash."""
        if name not in self._looks:
            usual, taken = look(name), set(self._looks.values())
            others = (replace(usual, marker=marker, dash=dash) for marker, dash in OTHERS)
            self._looks[name] = next((each for each in (usual, *others) if each not in taken), usual)
        return self._looks[name]

    def legend(self, columns: int = 4) -> None:
        """Names of what is shown, below all panels."""
        shown = {**(self._groups if len(self._groups) > 1 else {}), **self._legend}
        line = needs("matplotlib.lines", "study").Line2D
        with _theme(self.name):
            handles = [line([], [], **style) for style in shown.values()]
            wide, high = self.figure.get_size_inches()
            self.figure.set_size_inches(wide, high + 0.18 * -(-len(shown) // columns))
            self.figure.legend(handles, shown.keys(), loc="outside lower center", ncols=columns, frameon=False)

    def hide_rest(self, used: int) -> None:
        """Leave the panels after the first so many empty."""
        for panel in self.panels[used:]:
            panel.set_axis_off()

    @cached_property
    def _svg(self) -> str:
        text = self._saved("svg").decode()
        text = text[text.index("<svg") :]
        text = re.sub(r' id="[A-Za-z0-9.]+_\d+"|<metadata>.*?</metadata>', "", text, flags=re.DOTALL)
        for name, (light, _) in COLOURS.items():
            text = text.replace(light, f"var(--{name}, {light})")
        return text.replace("<svg ", f'<svg role="img" aria-label="{escape(self.words)}" ', 1)

    def svg(self, alone: bool = False) -> str:
        """For a page; alone, for a file of its own."""
        return self._svg.replace(">", f"><style>{STYLE}</style>", 1) if alone else self._svg

    def pdf(self) -> bytes:
        """For a paper."""
        return self._saved("pdf")

    def png(self, dots_per_inch: int = 110) -> bytes:
        """For a look at it."""
        return self._saved("png", dpi=dots_per_inch, transparent=False)

    def _saved(self, kind: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with _theme(self.name):
            options = {"transparent": True, "bbox_inches": "tight", "pad_inches": 0.04, **options}
            self.figure.savefig(stream, format=kind, metadata=dates.get(kind), **options)
        return stream.getvalue()


def grid_of(count: int, most: int = 3) -> tuple[int, int]:
    """Rows and columns for so many panels."""
    columns = max(1, min(count, most))
    return max(1, -(-count // columns)), columns


def error_bars(estimate: Estimate, scale: float = 1.0) -> list[list[float]]:
    """How far an interval reaches below and above its value; rounding may not make that negative."""
    below, above = estimate.value - estimate.low, estimate.high - estimate.value
    return [[scale * max(0.0, below)], [scale * max(0.0, above)]]


def each_once(names: Iterable[str]) -> list[str]:
    """The names in their order, none twice."""
    return list(dict.fromkeys(names))


def _style(shown: Look) -> dict[str, Any]:
    """A look in matplotlib's words."""
    size = {"*": 9.0, ".": 8.0, "P": 6.5, "X": 6.5, "h": 6.5}.get(shown.marker, 5.5)
    return {
        "color": shown.colour, "marker": shown.marker, "linestyle": shown.dash, "linewidth": shown.width,
        "markersize": size, "markeredgecolor": PAPER, "markeredgewidth": 0.4,
    }  # fmt: skip


def _theme(name: str) -> Any:
    """What every figure has in common; the name keeps the ids of two figures on one page apart."""
    matplotlib = needs("matplotlib", "study")
    return matplotlib.rc_context(
        {
            "font.family": "sans-serif", "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": name,
            "pdf.fonttype": 42, "text.color": INK, "axes.edgecolor": SOFT, "axes.labelcolor": INK,
            "xtick.color": SOFT, "ytick.color": SOFT, "xtick.labelsize": 8, "ytick.labelsize": 8,
            "axes.grid": True, "grid.color": RULE, "grid.linewidth": 0.6, "axes.axisbelow": True,
            "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": TITLE_POINTS,
            "axes.titleweight": "bold", "axes.titlelocation": "left",
            "legend.fontsize": 8, "axes.linewidth": 0.8, "axes.labelsize": 8.5,
        }
    )  # fmt: skip

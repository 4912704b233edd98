"""Figures in one style for print and screen, with colours that most people can distinguish.

Matplotlib draws. In an SVG text stays text and colours become CSS variables, so that a figure follows the
reader's light or dark mode. The PDF is for papers.
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
from abaca.extra import needs
from abaca.nn.outputs import OutputSpec

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
    "decayed sequential rules": "v", "personal follow": "<", "rules without history": "^", "blend": "8",
    "counts alone": "*",
}  # fmt: skip

TITLE_POINTS, LEAST_POINTS = 9.5, 7.0

OTHERS = tuple(product(("8", "d", ">", "p", "H", "s", "D", "^"), (":", "-.", "--", "-")))
"""Markers and dashes for output layers whose usual style is taken."""

INK, SOFT, RULE, PAPER = (COLOURS[name][0] for name in ("ink", "soft", "rule", "paper"))


def css(dark: bool) -> str:
    """The colours as CSS variables."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in COLOURS.items())


STYLE = f":root {{ {css(False)} }} @media (prefers-color-scheme: dark) {{ :root {{ {css(True)} }} }}"
"""For a page, or for a standalone SVG."""


@dataclass(frozen=True)
class Style:
    """Colour, marker and dash of a ranker; colour alone never distinguishes two of them."""

    name: str
    marker: str
    dash: str
    width: float = 1.3

    @property
    def colour(self) -> str:
        """Its colour on paper."""
        return COLOURS[self.name][0]


def style_of(ranker: str) -> Style:
    """The style of an output layer, or of a baseline."""
    try:
        spec = OutputSpec.parse(ranker)
    except SpecError:
        return Style("grey", BASELINE_MARKERS.get(ranker, "."), ":", 1.0)
    if spec.nodup:
        return Style("violet", "<", "-.")
    if spec.base != "softmax":
        return Style("brown", "*", "-") if spec.base == "repeatnet" else Style("pink", "X", ":")
    if spec.rerank:
        several = len(spec.rerank) > 1
        mixed = Style("amber", "P", "--") if several else Style("red", "h", "-", 2.0)
        return mixed if spec.mix or several else Style("green", "D", "-.")
    if spec.copy:
        return Style("blue", "v", "--") if spec.point else Style("sky", "^", "-")
    return Style("grey", "s", "--") if spec.mix else Style("ink", "o", "-")


class Figure:
    """A figure of one or more panels, in rows."""

    def __init__(self, name: str, words: str, shape: tuple[int, int] = (1, 1), panel: tuple[float, float] = (3.2, 2.5)):
        self.name, self.words = name, words
        rows, self.columns = shape
        self.room = 72 * 0.8 * panel[0] / 0.62
        """Points for the letters of a panel's title; a letter is about 0.62 times as wide as high."""
        with _theme(name):
            figure = needs("matplotlib.figure", "study").Figure
            self.figure: Any = figure(figsize=(panel[0] * self.columns, panel[1] * rows), layout="constrained")
            self.panels: list[Any] = list(self.figure.subplots(rows, self.columns, squeeze=False).flat)
        self._styles: dict[str, Style] = {}
        self._legend: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, dict[str, Any]] = {}

    def titles(self, names: Sequence[str], across: str, up: str) -> None:
        """Name the first panels, label their axes, and hide the other panels."""
        for place, (panel, name) in enumerate(zip(self.panels, names, strict=False)):
            self.title(panel, name, across, up if place % self.columns == 0 else "")
        for panel in self.panels[len(names) :]:
            panel.set_axis_off()

    def title(self, panel: Any, title: str, across: str, up: str) -> None:
        """Set the title and the axes' labels of a panel."""
        with _theme(self.name):
            longest = max(map(len, title.splitlines()), default=1)
            size = min(TITLE_POINTS, max(LEAST_POINTS, self.room / longest))
            panel.set_title(title.replace("$", r"\$"), fontsize=size)  # no formula
            panel.set_xlabel(across)
            panel.set_ylabel(up)

    def line(self, panel: Any, name: str, points: Sequence[tuple[float, float]], shown: Style | None = None) -> None:
        """A ranker's line through its points."""
        style = _drawn(shown or self._style(name))
        panel.plot(*zip(*points, strict=True), **style)
        self._legend[name] = style

    def dot(self, panel: Any, name: str, at: tuple[float, float], group: str = "", hollow: bool = False) -> None:
        """A ranker's dot; hollow dots are those of a second group."""
        style = _drawn(self._style(name)) | {"linestyle": "", "zorder": 3}
        colour, style["markersize"] = style["color"], style["markersize"] + 1
        edges = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": 1.3} if hollow else {}
        panel.plot(*at, **{**style, **edges})
        self._legend[name] = style
        if group:
            self._groups[group] = {**style, **edges, "color": SOFT, "marker": "o", "markersize": 6}
            self._groups[group] |= {"markeredgecolor": SOFT} if hollow else {}

    def dot_with_intervals(
        self, panel: Any, name: str, at: tuple[Estimate, Estimate], scale: float = 1.0, group: str = "",
        hollow: bool = False,
    ) -> None:  # fmt: skip
        """A ranker's dot at two estimates, with thin lines for their intervals."""
        across, up = ([[scale * max(0.0, e.value - e.low)], [scale * max(0.0, e.high - e.value)]] for e in at)
        x, y = (scale * estimate.value for estimate in at)
        panel.errorbar(x, y, xerr=across, yerr=up, color=SOFT, linewidth=0.6, alpha=0.5, zorder=1)
        self.dot(panel, name, (x, y), group, hollow)

    def calibration(self, panel: Any, name: str, bins: Sequence[tuple[float, float]]) -> None:
        """A ranker's observed share by predicted probability, both in percent; the diagonal is perfect."""
        panel.plot([0, 100], [0, 100], color=SOFT, linewidth=0.8, linestyle=":", zorder=1)
        self.line(panel, name, [(100 * predicted, 100 * observed) for predicted, observed in bins])

    def _style(self, name: str) -> Style:
        """A ranker's style in this figure; where its usual one is taken, with another marker and dash."""
        if name not in self._styles:
            usual, taken = style_of(name), set(self._styles.values())
            others = (replace(usual, marker=marker, dash=dash) for marker, dash in OTHERS)
            self._styles[name] = next((each for each in (usual, *others) if each not in taken), usual)
        return self._styles[name]

    def legend(self, columns: int = 4) -> None:
        """A legend below all panels."""
        shown = {**(self._groups if len(self._groups) > 1 else {}), **self._legend}
        line = needs("matplotlib.lines", "study").Line2D
        with _theme(self.name):
            handles = [line([], [], **style) for style in shown.values()]
            wide, high = self.figure.get_size_inches()
            self.figure.set_size_inches(wide, high + 0.18 * -(-len(shown) // columns))
            self.figure.legend(handles, shown.keys(), loc="outside lower center", ncols=columns, frameon=False)

    @cached_property
    def _svg(self) -> str:
        text = self._saved("svg").decode()
        text = text[text.index("<svg") :]
        text = re.sub(r' id="[A-Za-z0-9.]+_\d+"|<metadata>.*?</metadata>', "", text, flags=re.DOTALL)
        for name, (light, _) in COLOURS.items():
            text = text.replace(light, f"var(--{name}, {light})")
        return text.replace("<svg ", f'<svg role="img" aria-label="{escape(self.words)}" ', 1)

    def svg(self, alone: bool = False) -> str:
        """For a page; with `alone`, for a file of its own."""
        return self._svg.replace(">", f"><style>{STYLE}</style>", 1) if alone else self._svg

    def pdf(self) -> bytes:
        """For a paper."""
        return self._saved("pdf")

    def png(self, dots_per_inch: int = 110) -> bytes:
        """For a preview."""
        return self._saved("png", dpi=dots_per_inch, transparent=False)

    def _saved(self, kind: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with _theme(self.name):
            options = {"transparent": True, "bbox_inches": "tight", "pad_inches": 0.04, **options}
            self.figure.savefig(stream, format=kind, metadata=dates.get(kind), **options)
        return stream.getvalue()


def grid_of(count: int, most: int = 3) -> tuple[int, int]:
    """Rows and columns for a number of panels."""
    columns = max(1, min(count, most))
    return max(1, -(-count // columns)), columns


def each_once(names: Iterable[str]) -> list[str]:
    """The distinct names in their order."""
    return list(dict.fromkeys(names))


def _drawn(shown: Style) -> dict[str, Any]:
    """A style as matplotlib's arguments."""
    size = {"*": 9.0, ".": 8.0, "P": 6.5, "X": 6.5, "h": 6.5}.get(shown.marker, 5.5)
    return {
        "color": shown.colour, "marker": shown.marker, "linestyle": shown.dash, "linewidth": shown.width,
        "markersize": size, "markeredgecolor": PAPER, "markeredgewidth": 0.4,
    }  # fmt: skip


def _theme(name: str) -> Any:
    """The settings of every figure; the name keeps the ids of two figures on one page distinct."""
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

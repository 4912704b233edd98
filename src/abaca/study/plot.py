"""Plots as SVG text: one scale for x, one for y, and marks; colours follow the reader's light or dark mode.

Written by hand rather than drawn by a plotting library, so that text is text, a page has no pictures to load and the
same figure is readable on white and on black.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

XY = tuple[float, float]

STYLE = """
.plot { --ink: #1f2328; --soft: #656d76; --rule: #d8dee4; --paper: #ffffff;
  --s0: #0072b2; --s1: #d55e00; --s2: #8c6bb1; --s3: #6e7781; }
@media (prefers-color-scheme: dark) { .plot { --ink: #e6edf3; --soft: #9198a1; --rule: #343b44; --paper: #0f1318;
  --s0: #56b4e9; --s1: #f0883e; --s2: #c3a5e8; --s3: #9198a1; } }
.plot text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; font-size: 13px;
  fill: var(--soft); font-variant-numeric: tabular-nums; }
.plot .name { font-weight: 600; }
.plot .halo { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.plot .title { fill: var(--ink); font-size: 17px; font-weight: 650; }
.plot .rule { stroke: var(--rule); stroke-width: 1; }
.plot .guide { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 3 5; fill: none; }
.plot .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round; }
.plot .whisker { stroke-width: 1.5; opacity: .55; }
.plot .dot { stroke: var(--paper); stroke-width: 1.5; }
""" + "\n".join(
    f".plot .line.s{n}, .plot .whisker.s{n} {{ stroke: var(--s{n}); }} "
    f".plot .dot.s{n}, .plot text.s{n} {{ fill: var(--s{n}); }}"
    for n in range(4)
)


@dataclass(frozen=True)
class Scale:
    """From values to places on the page."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False
    percent: bool = False

    def share(self, value: float) -> float:
        """How far a value is from low to high."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def label(self, tick: float) -> str:
        """A tick in words."""
        return f"{100 * tick:.10g} %" if self.percent else f"{tick:.10g}"


def linear(high: float, percent: bool = False) -> Scale:
    """A scale from 0 to just above the highest value, with about five round ticks."""
    high = high if high > 0 else 1.0
    rough = high / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    count = math.ceil(high / step - 1e-9)
    return Scale(0.0, step * count, tuple(step * n for n in range(count + 1)), percent=percent)


def logarithmic(low: float, high: float) -> Scale:
    """A scale whose equal steps are equal factors."""
    high = max(high, 2 * low)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(lead * 10**power) for power in decades for lead in (1, 2, 5)]
    return Scale(low, high, tuple(tick for tick in ticks if low <= tick <= high), log=True)


class Plot:
    """Marks on two scales; later marks lie on top of earlier ones."""

    def __init__(self, x: Scale, y: Scale, size: tuple[int, int] = (640, 360), right: int = 120, top: int = 44) -> None:
        self.x, self.y = x, y
        self.width, self.height = size
        self.left, self.right, self.top, self.bottom = 58, self.width - right, top, self.height - 48
        self.marks: list[str] = []
        self._taken: list[tuple[float, float, float, float]] = []

    def at(self, value: XY) -> XY:
        """Where a value lies, in pixels."""
        across = self.left + self.x.share(value[0]) * (self.right - self.left)
        return round(across, 1), round(self.bottom - self.y.share(value[1]) * (self.bottom - self.top), 1)

    def axes(self, x_name: str, y_name: str) -> None:
        """Rules at the ticks, their labels, and what the axes are; the name of y stands above its axis."""
        for tick in self.y.ticks:
            _, y = self.at((self.x.low, tick))
            self.marks.append(f'<line class="rule" x1="{self.left}" x2="{self.right}" y1="{y}" y2="{y}"/>')
            self.text((self.left - 8, y + 4.5), self.y.label(tick), anchor="end")
        for tick in self.x.ticks:
            x, _ = self.at((tick, self.y.low))
            self.marks.append(f'<line class="rule" x1="{x}" x2="{x}" y1="{self.bottom}" y2="{self.bottom + 5}"/>')
            self.text((x, self.bottom + 20), self.x.label(tick), anchor="middle")
        self.text((self.right, self.bottom + 40), x_name, anchor="end")
        self.text((self.left - 44, self.top - 16), y_name)

    def line(self, points: Sequence[XY], css: str) -> None:
        """A line through values."""
        places = [self.at(point) for point in points]
        for (x1, y1), (x2, y2) in pairwise(places):
            steps = max(1, round(math.hypot(x2 - x1, y2 - y1) / 6))
            between = [(x1 + (x2 - x1) * n / steps, y1 + (y2 - y1) * n / steps) for n in range(steps + 1)]
            self._taken += [(x - 2, y - 2, x + 2, y + 2) for x, y in between]
        path = " ".join(f"{x},{y}" for x, y in places)
        self.marks.append(f'<polyline class="{css}" points="{path}"/>')

    def dot(self, point: XY, css: str, radius: float = 4.5) -> None:
        """A dot at a value."""
        x, y = self.at(point)
        self._taken.append((x - radius, y - radius, x + radius, y + radius))
        self.marks.append(f'<circle class="dot {css}" cx="{x}" cy="{y}" r="{radius:.1f}"/>')

    def text(self, place: XY, words: str, css: str = "", anchor: str = "start") -> None:
        """Words at a place in pixels."""
        x, y = place
        self.marks.append(f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    def label(self, point: XY, words: str, css: str) -> None:
        """Words beside a value, where they cover no dot, line or other label: right, left, above or below."""
        x, y = self.at(point)
        wide = 8.2 * len(words)
        options = [(x + 10, y + 4.5, "start"), (x - 10, y + 4.5, "end")]
        options += [
            (x + dx, y + dy, anchor)
            for dy in (-12, 21, -28, 37)
            for dx, anchor in ((0, "middle"), (6, "start"), (-6, "end"))
        ]
        for place in options:
            box = _box(place, wide)
            inside = (
                box[0] >= self.left
                and box[2] <= self.width - 4
                and box[1] >= self.top - 8
                and box[3] <= self.bottom + 2
            )
            if inside and not any(_overlap(box, other) for other in self._taken):
                break
        else:
            place, box = options[0], _box(options[0], wide)
        self._taken.append(box)
        self.text((place[0], place[1]), words, f"name halo {css}", place[2])

    def whiskers(self, point: XY, spans: tuple[XY, XY], css: str) -> None:
        """Intervals of both values around a point."""
        across, up = spans
        for begin, end in (((across[0], point[1]), (across[1], point[1])), ((point[0], up[0]), (point[0], up[1]))):
            (x1, y1), (x2, y2) = self.at(begin), self.at(end)
            self.marks.append(f'<line class="whisker {css}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')

    def svg(self, description: str, style: str = "") -> str:
        """The whole figure; with a style it stands alone as a file."""
        inside = f"<style>{style}</style>" if style else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(description)}">{inside}{"".join(self.marks)}</svg>'
        )


def _box(place: tuple[float, float, str], wide: float) -> tuple[float, float, float, float]:
    x, y, anchor = place
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    return left, y - 12, left + wide, y + 3


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]

"""Measurements as JSON, as a Markdown table and as a figure."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from abaca.bench.measure import MB, Bench, Measurement, settings
from abaca.durable import write_text
from abaca.study.draw import COLOURS, Figure
from abaca.study.environment import environment

BAR = 0.27
"""Inches of a bar with its distance."""


def columns(found: Sequence[Measurement]) -> dict[str, Callable[[Measurement], str]]:
    """The table's columns, and how a measurement fills them; empty columns are left out."""
    shown: dict[str, Callable[[Measurement], str]] = {
        "CPU ms": lambda one: f"{1e3 * one.cpu:,.1f}",
        "wall ms": lambda one: f"{1e3 * one.wall:,.1f}",
        "targets/s": lambda one: f"{one.targets_per_second:,.0f}",
    }
    if any(one.peak_bytes for one in found):
        shown["peak MB"] = lambda one: "" if one.peak_bytes is None else f"{one.peak_bytes / MB:,.0f}"
    for other in dict.fromkeys(other for one in found for other in one.ratios):
        shown[f"of {other}"] = lambda one, other=other: f"{one.ratios[other]:.2f}" if other in one.ratios else ""  # type: ignore[misc]
    return shown


def markdown(title: str, found: Sequence[Measurement]) -> str:
    """A table under its title; targets per second are per second of CPU time."""
    cells = columns(found)
    lines = [f"# {title}", "", machine(), "", "| | " + " | ".join(cells) + " |", "|---|" + "--:|" * len(cells)]
    lines += [f"| {one.name} | " + " | ".join(fill(one) for fill in cells.values()) + " |" for one in found]
    return "\n".join(lines) + "\n"


def figure(title: str, found: Sequence[Measurement]) -> str:
    """CPU time per target of every contender as bars; references are blue."""
    cost = {one.name: 1e6 / one.targets_per_second for one in found}
    drawn = Figure("bench", title, panel=(7.2, 1.0 + BAR * len(cost)))
    (panel,) = drawn.panels
    colours = [COLOURS["blue" if 1.0 in one.ratios.values() else "red"][0] for one in found]
    bars = panel.barh(list(cost), list(cost.values()), height=0.6, color=colours)
    panel.bar_label(bars, [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in cost.values()], padding=4)
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)
    drawn.title(panel, f"{title}\n{machine()}", "µs of CPU time per target", "")
    return drawn.svg(alone=True)


def machine() -> str:
    """The machine in a line."""
    here = environment()
    threads = f"{here['threads']} thread{'s' * (here['threads'] > 1)} of {here['cores']} cores"
    return f"{here['processor']}, {threads}, torch {here['torch']}, loss: {here['loss']}; medians"


def write(folder: Path, name: str, bench: Bench, found: Sequence[Measurement]) -> list[Path]:
    """Write JSON, table and figure, each file atomically."""
    results = [one.to_json() for one in found]
    document = {"bench": name, "settings": settings(bench), "machine": environment(), "results": results}
    texts = {
        "json": json.dumps(document, indent=1, ensure_ascii=False) + "\n",
        "md": markdown(bench.title, found),
        "svg": figure(bench.title, found) + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths

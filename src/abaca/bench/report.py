"""What was measured, as JSON, as a Markdown table and as a figure."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from abaca.bench.measure import MB, Measurement
from abaca.durable import write_text
from abaca.study.draw import COLOURS, Sheet

BAR = 0.27
"""Inches of a bar with its distance."""


def columns(found: Sequence[Measurement]) -> dict[str, Callable[[Measurement], str]]:
    """The table's columns, and how a measurement fills them; one that nobody fills is left out."""
    shown: dict[str, Callable[[Measurement], str]] = {
        "CPU ms": lambda one: f"{1e3 * one.cpu:,.1f}",
        "wall ms": lambda one: f"{1e3 * one.wall:,.1f}",
        "targets/s": lambda one: f"{one.targets_per_second:,.0f}",
    }
    if any(one.peak_bytes for one in found):
        shown["peak MB"] = lambda one: "" if one.peak_bytes is None else f"{one.peak_bytes / MB:,.0f}"
    for other in dict.fromkeys(other for one in found for other in one.ratios):
        shown[f"of {other}"] = lambda one, other=other: f"{one.ratios[other]:.2f}" if other in one.ratios else ""  # type: ignore[misc]
    for key in dict.fromkeys(key for one in found for key in one.more):
        shown[key] = lambda one, key=key: str(one.more.get(key, ""))  # type: ignore[misc]
    return shown


def markdown(title: str, found: Sequence[Measurement], machine: dict[str, Any]) -> str:
    """A table under its title; targets per second are per second of CPU time."""
    cells = columns(found)
    lines = [f"# {title}", "", f"{_where(machine)}", ""]
    lines.append("| | " + " | ".join(cells) + " |")
    lines.append("|---|" + "--:|" * len(cells))
    lines += [f"| {one.name} | " + " | ".join(fill(one) for fill in cells.values()) + " |" for one in found]
    return "\n".join(lines) + "\n"


def figure(title: str, found: Sequence[Measurement], machine: dict[str, Any]) -> str:
    """CPU time per target of every contender as bars, on one scale from 0."""
    cost = {one.name: 1e6 / one.targets_per_second for one in found}
    sheet = Sheet("bench", title, panel=(7.2, 1.0 + BAR * len(cost)))
    (panel,) = sheet.panels
    colours = [COLOURS["blue" if _is_reference(one) else "red"][0] for one in found]
    bars = panel.barh(list(cost), list(cost.values()), height=0.6, color=colours)
    panel.bar_label(bars, [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in cost.values()], padding=4)
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)
    sheet.title(panel, f"{title}\n{_where(machine)}", "µs of CPU time per target", "")
    return sheet.svg(alone=True)


def _is_reference(one: Measurement) -> bool:
    """Whether others are compared with it: it is compared with itself, or with nobody."""
    return 1.0 in one.ratios.values() or not (one.ratios or one.more)


def _where(machine: dict[str, Any]) -> str:
    """The machine in a line."""
    threads = machine["threads"]
    return (
        f"{machine['processor']}, {threads} thread{'s' * (threads > 1)} of {machine['cores']} cores, "
        f"torch {machine['torch']}, loss: {machine['native'] or 'plain torch'}; medians"
    )


def write(folder: Path, name: str, document: dict[str, Any], table: str, picture: str) -> list[Path]:
    """Write the three files, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"json": json.dumps(document, indent=1, ensure_ascii=False) + "\n", "md": table, "svg": picture + "\n"}
    paths = [folder / f"{name}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths

"""The figures of a study: sensitivity, learning curves, repeat and new, calibration of copying, speed and quality."""

from collections.abc import Iterable
from typing import Any

from abaca.evaluation.metrics import geometric_mean
from abaca.study.draw import SOFT, Sheet, each_once, error_bars, grid_of
from abaca.study.plan import SIZE, Options, RowKey
from abaca.study.repetition import Repetition, Tally
from abaca.study.repetition_figure import repetition_figure
from abaca.study.runs import FIGURES, Run
from abaca.study.standing import Standing
from abaca.study.tables import (
    BASELINES,
    ENCODER_NAMES,
    Entrant,
    entrants,
    entries,
    estimate,
    mean_figure,
    seconds_per_epoch,
    timed_on,
)

METRIC = FIGURES[0]
WORDS = {SIZE: "hidden size", "dim": "hidden size", "lr": "learning rate", "batch_targets": "targets per step"}
LOGARITHMIC = (SIZE, "dim", "hidden", "lr", "batch_targets")
FEWEST = 20
"""Targets that a bin of the calibration needs to be shown."""

Points = list[tuple[float, float]]


def all_figures(standing: Standing) -> list[Sheet]:
    """Every figure for which there is something to show."""
    makers = (when_figure, sensitivity_figure, learning_figure, trade_off_figure, calibration_figure, speed_figure)
    return [sheet for make in makers if (sheet := make(standing)) is not None]


def when_figure(standing: Standing) -> Sheet | None:
    """How likely a repeat is by length, on the data sets with repeats (the paper's Figure 3)."""
    names = [name for name in standing.data if standing.has_repeats(name)]
    lines = {name: standing.data[name]["repetition"].values() for name in names}
    found = {
        name: Repetition(*(tuple(Tally(**tally) for tally in line) for line in both)) for name, both in lines.items()
    }
    return repetition_figure(found) if found else None


def sensitivity_figure(standing: Standing) -> Sheet | None:
    """Validation NDCG by hidden size, learning rate, dropout and batch (the paper's Figure 5)."""
    found = sensitivity(standing)
    options = each_once(option for _, option, _ in found)
    encoders = [encoder for encoder in standing.study.encoders if any(key[0] == encoder for key in found)]
    if not found:
        return None
    sheet = Sheet(
        "sensitivity",
        "Validation NDCG@10 in percent by one option at a time, a row of panels per encoder, a line per output layer",
        (len(encoders), len(options)),
        (2.3, 2.3),
    )
    for at, (encoder, option) in enumerate((e, o) for e in encoders for o in options):
        panel = sheet.panels[at]
        lines = {output: points for (e, o, output), points in found.items() if (e, o) == (encoder, option)}
        for output, points in lines.items():
            sheet.line(panel, output, points)
        show_values(panel, option, sorted({x for points in lines.values() for x, _ in points}))
        first = at % len(options) == 0
        up = "validation NDCG@10 (%)" if first else ""
        sheet.title(panel, ENCODER_NAMES[encoder] if first else "", WORDS.get(option, option), up)
        panel.set_ylim(0, 1.1 * max((y for points in lines.values() for _, y in points), default=1.0) or 1.0)
    sheet.legend()
    return sheet


def sensitivity(standing: Standing) -> dict[tuple[str, str, str], Points]:
    """By encoder, option and output layer: for each value the geometric mean of validation NDCG over data sets.

    An option of the sweep varies alone around the chosen configuration. One of the grid is averaged over the other
    options, as in the paper: the geometric mean over data sets for each combination, then the mean over these. Lines of
    one panel are over the same data sets: those that all of them have.
    """
    found: dict[tuple[str, str, str], Points] = {}
    sweep = standing.study.sweep
    rows = [row for row in standing.study.rows() if row.data in standing.data]
    searched = each_once(name for row in rows for name in _varied(standing, row) if name not in sweep.options)
    for encoder in standing.study.encoders:
        for option in (*sweep.options, *searched):
            swept = option in sweep.options
            drawn = [
                row
                for row in rows
                if row.encoder == encoder and (sweep.covers(row) if swept else option in _varied(standing, row))
            ]
            for output, own in _on_common_data(drawn).items():
                points = (_swept if swept else _searched)(standing, own, option)
                if len(points) > 1:
                    found[encoder, option, output] = points
    return found


def _on_common_data(rows: list[RowKey]) -> dict[str, list[RowKey]]:
    """Each output layer's rows on the data sets that all output layers have."""
    outputs = each_once(row.output for row in rows)
    data = {name: {row.output for row in rows if row.data == name} for name in each_once(row.data for row in rows)}
    common = [name for name, those in data.items() if len(those) == len(outputs)]
    return {output: [row for row in rows if row.output == output and row.data in common] for output in outputs}


def learning_figure(standing: Standing) -> Sheet | None:
    """Validation NDCG after each epoch of the chosen runs."""
    chosen = {row: standing.chosen(row) for row in standing.study.rows() if row.data in standing.data}
    lines = {row: _curve(standing, run) for row, run in chosen.items() if run is not None}
    lines = {row: points for row, points in lines.items() if points}
    panels = each_once(f"{row.data}, {ENCODER_NAMES[row.encoder]}" for row in lines)
    if not panels:
        return None
    words = "Validation NDCG@10 in percent after each epoch, a panel per data set and encoder, a line per output layer"
    sheet = Sheet("learning", words, grid_of(len(panels), 4), (2.5, 2.3))
    for row, points in lines.items():
        panel = sheet.panels[panels.index(f"{row.data}, {ENCODER_NAMES[row.encoder]}")]
        sheet.line(panel, row.output, points)
    _titles(sheet, panels, "epochs", "validation NDCG@10 (%)")
    for panel in sheet.panels[: len(panels)]:
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_ylim(bottom=0)
    sheet.legend()
    return sheet


def trade_off_figure(standing: Standing) -> Sheet | None:
    """NDCG on repeats against NDCG on new items, with intervals."""
    names = [name for name in standing.data if standing.has_repeats(name)]
    points = {(name, e): _both(standing, e, name) for name in names for e in entrants(standing)}
    known = {key: found for key, found in points.items() if found is not None}
    shown = each_once(name for name, _ in known)
    if not shown:
        return None
    words = "Test NDCG@10 in percent on repeats and on new items, a panel per data set, a mark per ranker"
    sheet = Sheet("trade-off", words, grid_of(len(shown)), (3.4, 3.0))
    encoders = list(standing.study.encoders)
    for (name, entrant), (repeat, new) in known.items():
        panel = sheet.panels[shown.index(name)]
        across, up = (error_bars(e, 100) for e in (repeat, new))
        at = 100 * repeat.value, 100 * new.value
        panel.errorbar(*at, xerr=across, yerr=up, color=SOFT, linewidth=0.6, alpha=0.5, zorder=1)
        group = ENCODER_NAMES.get(entrant.encoder, "")
        sheet.dot(panel, entrant.output, at, group, entrant.encoder in encoders[1:])
    _titles(sheet, shown, "NDCG@10 on repeats (%)", "NDCG@10 on new items (%)")
    sheet.legend(3)
    return sheet


def calibration_figure(standing: Standing) -> Sheet | None:
    """How often a repeat came where a model gave it a probability."""
    names = [name for name in standing.data if standing.has_repeats(name)]
    bins: dict[tuple[str, Entrant], Points] = {}
    for name in names:
        for entrant in entrants(standing):
            found = next(iter(entries(standing, entrant, name)), None)
            if entrant.group != BASELINES and found is not None and found["calibration"] is not None:
                shown = [b for b in found["calibration"]["bins"] if b["count"] >= FEWEST]
                bins[name, entrant] = [(100 * b["predicted"], 100 * b["observed"]) for b in shown]
    bins = {key: points for key, points in bins.items() if points}
    panels = each_once(f"{name}, {ENCODER_NAMES[e.encoder]}" for name, e in bins)
    if not panels:
        return None
    words = "Repeats that happened by the predicted probability of a repeat; the diagonal is a perfect prediction"
    sheet = Sheet("calibration", words, grid_of(len(panels), 4), (2.6, 2.5))
    for (name, entrant), points in bins.items():
        panel = sheet.panels[panels.index(f"{name}, {ENCODER_NAMES[entrant.encoder]}")]
        panel.plot([0, 100], [0, 100], color=SOFT, linewidth=0.8, linestyle=":", zorder=1)
        sheet.line(panel, entrant.output, points)
    _titles(sheet, panels, "predicted repeat (%)", "observed (%)")
    sheet.legend()
    return sheet


def speed_figure(standing: Standing) -> Sheet | None:
    """Training time per epoch on one data set against the geometric mean of NDCG over all."""
    data, every = timed_on(standing), list(standing.data)
    sheet = Sheet("speed", "Test NDCG@10 against the seconds of a training epoch, a mark per model", panel=(5.6, 3.4))
    panel, drawn = sheet.panels[0], False
    encoders = list(standing.study.encoders)
    for entrant in entrants(standing):
        figure = mean_figure(standing, entrant, every, METRIC)
        row = RowKey(data, entrant.encoder, entrant.output)
        seconds = seconds_per_epoch(standing, row) if entrant.encoder else None
        if figure is not None and seconds is not None:
            at, group = (seconds, 100 * figure), ENCODER_NAMES[entrant.encoder]
            sheet.dot(panel, entrant.output, at, group, entrant.encoder in encoders[1:])
            drawn = True
    _titles(sheet, [""], f"seconds per training epoch on {data}", "NDCG@10 (%), geometric mean")
    panel.set_xlim(left=0)
    sheet.legend(3)
    return sheet if drawn else None


def _swept(standing: Standing, rows: list[RowKey], option: str) -> Points:
    by_value: dict[float, list[float | None]] = {}
    for row in rows:
        for name, value, run in standing.swept(row):
            if name == option:
                by_value.setdefault(value, []).append(_best(standing, run))
    return _means({value: [found] for value, found in by_value.items()}, len(rows))


def _searched(standing: Standing, rows: list[RowKey], option: str) -> Points:
    by_value: dict[float, dict[str, list[float | None]]] = {}
    for row in rows:
        for run in standing.searched(row):
            options: Options = dict(run.options)
            value = options.pop(option)
            rest = str([(name, options[name]) for name in _varied(standing, row) if name != option])
            by_value.setdefault(value, {}).setdefault(rest, []).append(_best(standing, run))
    return _means({value: list(found.values()) for value, found in by_value.items()}, len(rows))


def _means(by_value: dict[float, list[list[float | None]]], count: int) -> Points:
    """For each value the mean over combinations of the geometric mean over data sets, where all are there."""
    points: Points = []
    for value, combinations in sorted(by_value.items()):
        known = [[f for f in found if f is not None] for found in combinations]
        if all(len(found) == count for found in known):
            points.append((value, 100 * sum(map(geometric_mean, known)) / len(known)))
    return points


def _varied(standing: Standing, row: RowKey) -> list[str]:
    """The grid's options that have numbers; the hidden size counts once."""
    tried = standing.study.configurations(row)[0]
    return [n for n in standing.study.varied(row) if isinstance(tried[n], int | float) and n != "hidden"]


def _best(standing: Standing, run: Run) -> float | None:
    entry = standing.results.get("run", run.id)
    return None if entry is None else entry["best"]


def _curve(standing: Standing, run: Run) -> Points:
    entry = standing.results.get("run", run.id) or {"epochs": []}
    return [(epoch["epoch"] + 1, 100 * epoch[METRIC]) for epoch in entry["epochs"] if METRIC in epoch]


def _both(standing: Standing, entrant: Entrant, name: str) -> Any:
    repeat, new = (estimate(standing, entrant, name, METRIC, group) for group in ("repeat", "new"))
    return None if repeat is None or new is None else (repeat, new)


def show_values(panel: Any, option: str, values: list[Any]) -> None:
    """Show each value that was tried on the axis; words stand there by themselves."""
    if any(isinstance(value, str) for value in values):
        return
    if option in LOGARITHMIC:
        panel.set_xscale("log")
        panel.minorticks_off()
    panel.set_xticks(values, [f"{value:g}" for value in values])


def _titles(sheet: Sheet, names: Iterable[str], across: str, up: str) -> None:
    shown = list(names)
    for place, (panel, name) in enumerate(zip(sheet.panels, shown, strict=False)):
        sheet.title(panel, name, across, up if place % sheet.columns == 0 else "")
    sheet.hide_rest(len(shown))

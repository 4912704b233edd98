"""The figures of a study: repetition, sensitivity, learning, repeat and new, calibration, speed."""

from typing import Any

from abaca.evaluation.metrics import geometric_mean
from abaca.study.draw import Figure, each_once, grid_of
from abaca.study.plan import SIZE, RowKey
from abaca.study.repetition import Repetition, Tally
from abaca.study.repetition_figure import repetition_figure
from abaca.study.runs import METRICS, Run
from abaca.study.state import StudyState
from abaca.study.tables import (
    BASELINES,
    ENCODER_NAMES,
    Row,
    entries,
    estimate,
    mean_value,
    rows_of,
    seconds_per_epoch,
    timed_on,
)  # fmt: skip

METRIC = METRICS[0]
WORDS = {SIZE: "hidden size", "dim": "hidden size", "lr": "learning rate", "batch_targets": "targets per step"}
LOGARITHMIC = (SIZE, "dim", "hidden", "lr", "batch_targets")
FEWEST = 20
"""Targets that a bin of the calibration needs at least."""

Points = list[tuple[float, float]]
Lines = dict[tuple[str, str], Points]
"""By the name of the panel and the output layer."""


def all_figures(state: StudyState) -> list[Figure]:
    """Every figure that has data."""
    makers = (when_figure, sensitivity_figure, learning_figure, trade_off_figure, calibration_figure, speed_figure)
    return [figure for make in makers if (figure := make(state)) is not None]


def when_figure(state: StudyState) -> Figure | None:
    """The probability of a repeat by length, on the data sets with repeats (the paper's Figure 3)."""
    lines = {name: state.data[name]["repetition"].values() for name in state.with_repeats}
    found = {
        name: Repetition(*(tuple(Tally(**tally) for tally in line) for line in both)) for name, both in lines.items()
    }
    return repetition_figure(found) if found else None


def sensitivity_figure(state: StudyState) -> Figure | None:
    """Validation NDCG by hidden size, learning rate, dropout and batch (the paper's Figure 5)."""
    found = sensitivity(state)
    options = each_once(option for _, option, _ in found)
    encoders = [encoder for encoder in state.study.encoders if any(key[0] == encoder for key in found)]
    if not found:
        return None
    words = (
        "Validation NDCG@10 in percent by one option at a time, a row of panels per encoder, a line per output layer"
    )
    figure = Figure("sensitivity", words, (len(encoders), len(options)), (2.3, 2.3))
    for at, (encoder, option) in enumerate((e, o) for e in encoders for o in options):
        panel = figure.panels[at]
        lines = {output: points for (e, o, output), points in found.items() if (e, o) == (encoder, option)}
        for output, points in lines.items():
            figure.line(panel, output, points)
        show_values(panel, option, sorted({x for points in lines.values() for x, _ in points}))
        first = at % len(options) == 0
        up = "validation NDCG@10 (%)" if first else ""
        figure.title(panel, ENCODER_NAMES.get(encoder, encoder) if first else "", WORDS.get(option, option), up)
        panel.set_ylim(0, 1.1 * max((y for points in lines.values() for _, y in points), default=1.0) or 1.0)
    figure.legend()
    return figure


def sensitivity(state: StudyState) -> dict[tuple[str, str, str], Points]:
    """By encoder, option and output layer: for each value the geometric mean of validation NDCG over data sets.

    An option of the sweep varies alone around the chosen configuration. An option of the grid is averaged over the
    other options, as in the paper: the geometric mean over data sets for each combination, then the mean over the
    combinations. The lines of a panel are over the data sets that all of them have.
    """
    found: dict[tuple[str, str, str], Points] = {}
    sweep = state.study.sweep
    keys = [key for key in state.study.rows() if key.data in state.data]
    searched = each_once(name for key in keys for name in _varied(state, key) if name not in sweep.options)
    for encoder in state.study.encoders:
        for option in (*sweep.options, *searched):
            swept = option in sweep.options
            drawn = [
                key
                for key in keys
                if key.encoder == encoder and (sweep.covers(key) if swept else option in _varied(state, key))
            ]
            for output, own in _on_common_data(drawn).items():
                points = (_swept if swept else _searched)(state, own, option)
                if len(points) > 1:
                    found[encoder, option, output] = points
    return found


def _on_common_data(keys: list[RowKey]) -> dict[str, list[RowKey]]:
    """Each output layer's rows on the data sets that all output layers have."""
    outputs = each_once(key.output for key in keys)
    data = {name: {key.output for key in keys if key.data == name} for name in each_once(key.data for key in keys)}
    common = [name for name, those in data.items() if len(those) == len(outputs)]
    return {output: [key for key in keys if key.output == output and key.data in common] for output in outputs}


def learning_figure(state: StudyState) -> Figure | None:
    """Validation NDCG after each epoch of the chosen runs."""
    lines: Lines = {}
    for key in state.study.rows():
        chosen = state.chosen(key) if key.data in state.data else None
        entry = (chosen and state.results.get("run", chosen.id)) or {"epochs": []}
        points = [(epoch["epoch"] + 1, 100 * epoch[METRIC]) for epoch in entry["epochs"] if METRIC in epoch]
        if points:
            lines[f"{key.data}, {ENCODER_NAMES.get(key.encoder, key.encoder)}", key.output] = points
    words = "Validation NDCG@10 in percent after each epoch, a panel per data set and encoder, a line per output layer"
    figure = _panels("learning", words, lines, (4, 2.5, 2.3))
    if figure is None:
        return None
    _finish(figure, lines, "epochs", "validation NDCG@10 (%)")
    for panel in figure.panels:
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_ylim(bottom=0)
    return figure


def calibration_figure(state: StudyState) -> Figure | None:
    """The observed share of repeats by the predicted probability of a repeat."""
    lines: Lines = {}
    for name in state.with_repeats:
        for row in rows_of(state):
            found = next(iter(entries(state, row, name)), None)
            if row.group != BASELINES and found is not None and found["calibration"] is not None:
                bins = [b for b in found["calibration"]["bins"] if b["count"] >= FEWEST]
                if bins:
                    panel = f"{name}, {ENCODER_NAMES.get(row.encoder, row.encoder)}"
                    lines[panel, row.output] = [(b["predicted"], b["observed"]) for b in bins]
    words = "Observed share of repeats by the predicted probability of a repeat; the diagonal is a perfect prediction"
    figure = _panels("calibration", words, lines, (4, 2.6, 2.5))
    if figure is not None:
        _finish(figure, lines, "predicted repeat (%)", "observed (%)")
    return figure


def _panels(name: str, words: str, lines: Lines, size: tuple[int, float, float]) -> Figure | None:
    """A figure with a panel for each first name of the lines; None without lines."""
    count = len({panel for panel, _ in lines})
    return Figure(name, words, grid_of(count, size[0]), size[1:]) if lines else None


def _finish(figure: Figure, lines: Lines, across: str, up: str) -> None:
    """Draw each line in its panel, with titles and a legend."""
    panels = each_once(panel for panel, _ in lines)
    draw = figure.calibration if figure.name == "calibration" else figure.line
    for (panel, output), points in lines.items():
        draw(figure.panels[panels.index(panel)], output, points)
    figure.titles(panels, across, up)
    figure.legend()


def trade_off_figure(state: StudyState) -> Figure | None:
    """NDCG on repeats against NDCG on new items, with intervals."""
    points = {(name, row): _repeat_and_new(state, row, name) for name in state.with_repeats for row in rows_of(state)}
    known = {key: found for key, found in points.items() if found is not None}
    shown = each_once(name for name, _ in known)
    if not shown:
        return None
    words = "Test NDCG@10 in percent on repeats and on new items, a panel per data set, a mark per ranker"
    figure = Figure("trade-off", words, grid_of(len(shown)), (3.4, 3.0))
    for (name, row), at in known.items():
        panel = figure.panels[shown.index(name)]
        figure.dot_with_intervals(panel, row.output, at, 100, *_group(state, row))
    figure.titles(shown, "NDCG@10 on repeats (%)", "NDCG@10 on new items (%)")
    figure.legend(3)
    return figure


def speed_figure(state: StudyState) -> Figure | None:
    """Training time per epoch on one data set against the geometric mean of NDCG over all."""
    data, every = timed_on(state), list(state.data)
    words = "Test NDCG@10 against the seconds of a training epoch, a mark per model"
    figure = Figure("speed", words, panel=(5.6, 3.4))
    panel, drawn = figure.panels[0], False
    for row in rows_of(state):
        value = mean_value(state, row, every, METRIC)
        seconds = seconds_per_epoch(state, row.on(data)) if row.encoder else None
        if value is not None and seconds is not None:
            figure.dot(panel, row.output, (seconds, 100 * value), *_group(state, row))
            drawn = True
    figure.titles([""], f"seconds per training epoch on {data}", "NDCG@10 (%), geometric mean")
    panel.set_xlim(left=0)
    figure.legend(3)
    return figure if drawn else None


def _group(state: StudyState, row: Row) -> tuple[str, bool]:
    """The encoder's name, and whether its dots are hollow: all but the first encoder's."""
    return ENCODER_NAMES.get(row.encoder, ""), row.encoder in list(state.study.encoders)[1:]


def _swept(state: StudyState, keys: list[RowKey], option: str) -> Points:
    by_value: dict[float, list[float | None]] = {}
    for key in keys:
        for name, value, run in state.swept(key):
            if name == option:
                by_value.setdefault(value, []).append(_best(state, run))
    return _means({value: [found] for value, found in by_value.items()}, len(keys))


def _searched(state: StudyState, keys: list[RowKey], option: str) -> Points:
    by_value: dict[float, dict[str, list[float | None]]] = {}
    for key in keys:
        for run in state.searched(key):
            options = dict(run.options)
            value = options.pop(option)
            rest = str([(name, options[name]) for name in _varied(state, key) if name != option])
            by_value.setdefault(value, {}).setdefault(rest, []).append(_best(state, run))
    return _means({value: list(found.values()) for value, found in by_value.items()}, len(keys))


def _means(by_value: dict[float, list[list[float | None]]], count: int) -> Points:
    """For each value the mean over combinations of the geometric mean over data sets, where none is missing."""
    points: Points = []
    for value, combinations in sorted(by_value.items()):
        known = [[f for f in found if f is not None] for found in combinations]
        if all(len(found) == count for found in known):
            points.append((value, 100 * sum(map(geometric_mean, known)) / len(known)))
    return points


def _varied(state: StudyState, key: RowKey) -> list[str]:
    """The grid's numeric options; the hidden size counts once."""
    tried = state.study.configurations(key)[0]
    return [n for n in state.study.varied(key) if isinstance(tried[n], int | float) and n != "hidden"]


def _best(state: StudyState, run: Run) -> float | None:
    entry = state.results.get("run", run.id)
    return None if entry is None else entry["best"]


def _repeat_and_new(state: StudyState, row: Row, name: str) -> Any:
    repeat, new = (estimate(state, row, name, METRIC, group) for group in ("repeat", "new"))
    return None if repeat is None or new is None else (repeat, new)


def show_values(panel: Any, option: str, values: list[Any]) -> None:
    """Label the axis with each value that was tried; words label it by themselves."""
    if any(isinstance(value, str) for value in values):
        return
    if option in LOGARITHMIC:
        panel.set_xscale("log")
        panel.minorticks_off()
    panel.set_xticks(values, [f"{value:g}" for value in values])

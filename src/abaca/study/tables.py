"""The tables of a study, as the paper's: per data set, geometric means with size and time, gains, choices."""

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median
from typing import NamedTuple, TypeVar

from abaca.evaluation.evaluate import GROUPS, Group
from abaca.evaluation.metrics import Estimate, geometric_mean
from abaca.study.margins import margins_table
from abaca.study.paper import PER_SET, citation, dataset_names, paper_results
from abaca.study.plan import RowKey
from abaca.study.results import Entry
from abaca.study.runs import METRICS
from abaca.study.significance import holm, mark
from abaca.study.state import StudyState
from abaca.study.table import Cell, Line, Table, bold_best, plain

NAMES = {"ndcg@10": "NDCG", "hr@10": "HR", "mrr@10": "MRR"}
Column = TypeVar("Column")

BASELINES = "baselines"
REPEATNET = "RepeatNet"
BOLD = "Bold: best of the group."
ENCODER_NAMES = {"sasrec": "SASRec", "gru4rec": "GRU4Rec"}


class Row(NamedTuple):
    """A row of every table: a model, or a baseline, whose encoder is empty."""

    group: str
    encoder: str
    output: str

    def on(self, data: str) -> RowKey:
        """The row on one data set."""
        return RowKey(data, self.encoder, self.output)


def all_tables(state: StudyState) -> list[Table]:
    """Every table that has data."""
    without = [name for name in state.data if name not in state.with_repeats]
    tables = [
        results_table(state, "without-repeats", without, "data sets without repeats"),
        results_table(state, "with-repeats", state.with_repeats, "data sets with repeats"),
        summary_table(state, without, state.with_repeats),
        gains_table(state, list(state.data)),
        margins_table(state),
        repeat_table(state, state.with_repeats),
        paper_table(state),
        choices_table(state),
    ]
    return [table for table in tables if table.heads and table.lines]


def results_table(state: StudyState, name: str, data: Sequence[str], words: str) -> Table:
    """NDCG, HR and MRR on each data set (the paper's Tables 2 and 3)."""
    columns = [(each, metric) for each in data for metric in METRICS]
    marked = {column: marks(state, *column) for column in columns}

    def cell(row: Row, column: tuple[str, str]) -> Cell:
        return plain(percent(value(state, row, *column)), 2, marked[column].get(row[1:], ""))

    return Table(
        name,
        f"Test performance (%) at 10 on {words}. {BOLD} {_mark_words(state)}",
        tuple((each, tuple(NAMES[metric] for metric in METRICS)) for each in data),
        bold_best(_lines(state, columns, cell)),
    )


def summary_table(state: StudyState, without: Sequence[str], with_repeats: Sequence[str]) -> Table:
    """Size, time per epoch, and geometric means over data sets (the paper's Table 4)."""
    every = [*without, *with_repeats]
    whole = [name for name in every if state.study.data_set(name).outputs is None]
    groups = [(without, "without repeats"), (with_repeats, "with repeats"), (every, "all"), (whole, "with all rows")]
    groups = [group for at, group in enumerate(groups) if group[0] and group[0] not in [g[0] for g in groups[:at]]]
    timed = timed_on(state)
    columns = [(tuple(data), metric) for data, _ in groups for metric in METRICS]

    def cell(row: Row, column: tuple[tuple[str, ...], str]) -> Cell:
        return plain(percent(mean_value(state, row, *column)), 2)

    lines = bold_best(_lines(state, columns, cell))
    heads = [(f"{words} ({len(data)})", tuple(NAMES[metric] for metric in METRICS)) for data, words in groups]
    return Table(
        "summary",
        f"Model size, median time of training and of validating for one epoch on {timed}, and geometric means (%) over "
        f"data sets of the test performance at 10. {BOLD}",
        (("size", ("M",)), ("training", ("s",)), ("ranking", ("s",)), *heads),
        tuple(
            line._replace(cells=(*_costs(state, row.on(timed)), *line.cells))
            for row, line in zip(_shown(state), lines, strict=True)
        ),
    )


def gains_table(state: StudyState, data: Sequence[str]) -> Table:
    """The gain of each output layer over the reference with the same encoder."""
    metric, against = METRICS[0], state.study.against
    columns = [(each,) for each in data] + ([tuple(data)] if len(data) > 1 else [])

    def cell(row: Row, column: tuple[str, ...]) -> Cell:
        base = mean_value(state, row._replace(output=against), column, metric)
        mine = mean_value(state, row, column, metric)
        gain = None if base is None or mine is None or not base else 100 * (mine / base - 1)
        mark = marks(state, column[0], metric).get(row[1:], "") if len(column) == 1 else ""
        return plain(gain, 1, mark, sign=True)

    lines = zip(_shown(state), _lines(state, columns, cell), strict=True)
    kept = [line for row, line in lines if row.encoder and row.output != against]
    heads = tuple((each, ("NDCG",)) for each in [*data, "geometric mean"][: len(columns)])
    caption = f"Relative gain (%) in test NDCG@10 over {against} with the same encoder. {BOLD} {_mark_words(state)}"
    return Table("gains", caption, heads, bold_best(kept))


def repeat_table(state: StudyState, data: Sequence[str]) -> Table:
    """NDCG on repeat and on new targets, the share of repeats recommended, and calibration."""
    columns: list[tuple[str, Group | str]] = [(each, part) for each in data for part in (*GROUPS[1:], "share", "ece")]

    def cell(row: Row, column: tuple[str, Group | str]) -> Cell:
        each, part = column
        if part in GROUPS:
            return plain(percent(value(state, row, each, METRICS[0], part)), 2)
        found = [_copying(entry, part) for entry in entries(state, row, each)]
        known = [number for number in found if number is not None]
        average = mean(known) if known and len(known) == len(found) else None
        return plain(average, 3) if part == "ece" else plain(percent(average), 1)

    happen = ", ".join(
        f"{each} {100 * found[0]['repeats_happen']:.1f} %"
        for each in data
        if (found := next(filter(None, (entries(state, row, each) for row in rows_of(state))), None))
    )
    return Table(
        "repeats",
        "Test NDCG@10 (%) on targets that are repeats and on new ones, the share of repeats (%) among the first ten "
        f"recommended, and the calibration error of the predicted probability of a repeat. Repeats happen: {happen}.",
        tuple((each, ("repeat", "new", "recommended", "calibration")) for each in data),
        bold_best(_lines(state, columns, cell), skip=lambda place: place % 4 > 1),
    )


def paper_table(state: StudyState) -> Table:
    """Our figures beside the paper's, on the data sets that both have."""
    theirs = {(result.encoder, result.output): result.values for result in paper_results()}
    data = [name for name in state.data if name in dataset_names()]
    columns = [(name, metric, whose) for name in data for metric in PER_SET for whose in ("ours", "paper's")]

    def cell(row: Row, column: tuple[str, str, str]) -> Cell:
        name, metric, whose = column
        printed = theirs.get(row[1:], {}).get(name, {}).get(metric)
        return plain(percent(value(state, row, name, metric) if whose == "ours" else printed), 2)

    heads = tuple((f"{name} {NAMES[metric]}", ("ours", "paper's")) for name in data for metric in PER_SET)
    return Table("paper", f"Test performance (%) at 10 beside {citation()}", heads, tuple(_lines(state, columns, cell)))


def choices_table(state: StudyState) -> Table:
    """The configuration that validation chose for each row."""
    varied = sorted({name for key in state.study.rows() for name in state.study.varied(key)})
    lines = []
    for key in state.study.rows():
        entry = _chosen_entry(state, key)
        if entry is None:
            continue
        shown = [Cell(None, _shown_option(entry["all_options"].get(name))) for name in varied]
        counts = [Cell(None, str(len(state.searched(key)))), Cell(None, str(entry["best_epoch"] + 1))]
        cells = (*shown, *counts, plain(100 * entry["best"], 2), Cell(None, entry["id"]))
        lines.append(Line(key.data, f"{key.encoder} {key.output}", cells))
    heads = (*((name, ("",)) for name in varied), ("tried", ("",)), ("best epoch", ("",)), ("validation", ("NDCG",)))
    caption = "The configuration of each row with the best validation NDCG@10 (%) for the first seed, and its run."
    return Table("choices", caption, (*heads, ("run", ("",))), tuple(lines))


def rows_of(state: StudyState) -> list[Row]:
    """The rows in their order: each encoder's output layers, RepeatNet (where one encoder has it), baselines."""
    known = {(key.encoder, key.output) for key in state.study.rows()}
    every = ((encoder, output) for encoder, plan in state.study.encoders.items() for output in plan.outputs)
    models = [model for model in every if model in known]
    repeatnets = {model for model in models if model[1].startswith("repeatnet")}
    apart = repeatnets if len({encoder for encoder, _ in repeatnets}) == 1 else set()
    inside = [Row(ENCODER_NAMES.get(model[0], model[0]), *model) for model in models if model not in apart]
    outside = [Row(REPEATNET, *model) for model in models if model in apart]
    return [*inside, *outside, *(Row(BASELINES, "", name) for name in state.study.baselines)]


def entries(state: StudyState, row: Row, data: str) -> list[Entry]:
    """The test entries of a row on a data set, one per seed."""
    if row.encoder:
        return state.tests(row.on(data)) if row.on(data) in state.study.rows() else []
    found = state.baseline(data, row.output)
    return [] if found is None else [found]


def value(state: StudyState, row: Row, data: str, metric: str, group: Group = "all") -> float | None:
    """A row's test metric on a data set."""
    found = estimate(state, row, data, metric, group)
    return None if found is None else found.value


def estimate(state: StudyState, row: Row, data: str, metric: str, group: Group = "all") -> Estimate | None:
    """A row's test metric on a data set with its interval: the mean over seeds, part by part."""
    found = [entry["groups"][group]["metrics"][metric] for entry in entries(state, row, data)]
    parts = [[each[part] for each in found] for part in ("value", "low", "high")]
    return None if not found or any(None in part for part in parts) else Estimate(*map(mean, parts))


def mean_value(state: StudyState, row: Row, data: Iterable[str], metric: str) -> float | None:
    """The geometric mean over data sets; None where one is missing."""
    values = [value(state, row, each, metric) for each in data]
    known = [number for number in values if number is not None]
    return geometric_mean(known) if known and len(known) == len(values) else None


def marks(state: StudyState, data: str, metric: str) -> dict[tuple[str, str], str]:
    """By encoder and output layer: significant differences from the reference, Holm-corrected per encoder."""
    found: dict[tuple[str, str], str] = {}
    for encoder in state.study.encoders:
        keys = state.study.rows_beside(RowKey(data, encoder, ""))
        tests = {key: entry["metrics"][metric] for key in keys if (entry := state.comparison(key)) is not None}
        corrected = holm([test["p_value"] for test in tests.values()])
        for (key, test), p_value in zip(tests.items(), corrected, strict=True):
            found[key.encoder, key.output] = mark(test["difference"]["value"], p_value)
    return found


def timed_on(state: StudyState) -> str:
    """The data set whose times are shown: by default the one with most training targets."""
    sizes = {name: entry["counts"]["training_targets"] for name, entry in state.data.items()}
    return state.study.time_on or max(sizes, key=lambda name: sizes[name])


def seconds_per_epoch(state: StudyState, key: RowKey, part: str = "seconds") -> float | None:
    """The median time of an epoch of a row's chosen run."""
    entry = _chosen_entry(state, key)
    return None if entry is None else median(epoch[part] for epoch in entry["epochs"])


def percent(share: float | None) -> float | None:
    """A share as a percentage."""
    return None if share is None else 100 * share


def _chosen_entry(state: StudyState, key: RowKey) -> Entry | None:
    """The entry of a row's chosen run; None before there is one."""
    chosen = state.chosen(key) if key in state.study.rows() and key.data in state.data else None
    return None if chosen is None else state.results.get("run", chosen.id)


def _costs(state: StudyState, key: RowKey) -> tuple[Cell, ...]:
    entry = _chosen_entry(state, key)
    size = None if entry is None else entry["parameters"] / 1e6
    seconds = (seconds_per_epoch(state, key, part) for part in ("seconds", "validation_seconds"))
    return tuple(plain(number, 2) for number in (size, *seconds))


def _copying(entry: Entry, part: str) -> float | None:
    if part == "share":
        share: float | None = entry["repeats_recommended"]["10"]
        return share
    return None if entry["calibration"] is None else float(entry["calibration"]["ece"])


def _shown_option(option: object) -> str:
    return f"{option:g}" if isinstance(option, int | float) else "–" if option is None else str(option)


def _shown(state: StudyState) -> list[Row]:
    """The rows with a test result on some data set."""
    return [row for row in rows_of(state) if any(entries(state, row, data) for data in state.data)]


def _lines(state: StudyState, columns: Sequence[Column], cell: Callable[[Row, Column], Cell]) -> list[Line]:
    return [Line(row.group, row.output, tuple(cell(row, column) for column in columns)) for row in _shown(state)]


def _mark_words(state: StudyState) -> str:
    return (
        f"▲ △ better and ▼ ▽ worse than {state.study.against} with the same encoder (p < 0.01, p < 0.05): "
        "paired sign-flip permutation test over users, Holm's correction over the rows of an encoder. It compares "
        "the trained models: the test covers the choice of users, not that of seeds."
    )

"""The tables of a study, as the paper's: per data set, geometric means with size and time, gains, and choices."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from abaca.evaluation.evaluate import GROUPS, Group
from abaca.evaluation.metrics import Estimate, geometric_mean
from abaca.study.paper import PER_SET, citation, dataset_names, paper_results
from abaca.study.plan import RowKey
from abaca.study.results import Entry
from abaca.study.runs import FIGURES
from abaca.study.standing import Standing, mean_of
from abaca.study.table import Cell, Line, Table, bold_best, plain

NAMES = {"ndcg@10": "NDCG", "hr@10": "HR", "mrr@10": "MRR"}
MARKS = ((0.01, "▲", "▼"), (0.05, "△", "▽"))
Column = TypeVar("Column")

BASELINES = "baselines"
REPEATNET = "RepeatNet"
BOLD = "Bold: best of the rows that stand together."
ENCODER_NAMES = {"sasrec": "SASRec", "gru4rec": "GRU4Rec"}


class Entrant(NamedTuple):
    """A row of every table: a model, or a baseline, whose encoder is then empty."""

    group: str
    encoder: str
    output: str


def all_tables(standing: Standing) -> list[Table]:
    """Every table for which there is something to show."""
    names = list(standing.data)
    with_repeats = [name for name in names if standing.has_repeats(name)]
    without = [name for name in names if name not in with_repeats]
    tables = [
        results_table(standing, "without-repeats", without, "data sets without repeats"),
        results_table(standing, "with-repeats", with_repeats, "data sets with repeats"),
        summary_table(standing, without, with_repeats),
        gains_table(standing, names),
        repeat_table(standing, with_repeats),
        paper_table(standing),
        choices_table(standing),
    ]
    return [table for table in tables if table.heads and table.lines]


def results_table(standing: Standing, name: str, data: Sequence[str], words: str) -> Table:
    """NDCG, HR and MRR on each data set (the paper's Tables 2 and 3)."""
    columns = [(each, metric) for each in data for metric in FIGURES]
    marked = {column: marks(standing, *column) for column in columns}

    def cell(entrant: Entrant, column: tuple[str, str]) -> Cell:
        found = figure(standing, entrant, *column)
        return plain(percent(found), 2, marked[column].get((entrant.encoder, entrant.output), ""))

    return Table(
        name,
        f"Test performance (%) at 10 on {words}. {BOLD} {_mark_words(standing)}",
        tuple((each, tuple(NAMES[metric] for metric in FIGURES)) for each in data),
        bold_best(_lines(standing, columns, cell)),
    )


def summary_table(standing: Standing, without: Sequence[str], with_repeats: Sequence[str]) -> Table:
    """Size, time per epoch, and geometric means over data sets (the paper's Table 4)."""
    every = [*without, *with_repeats]
    whole = [name for name in every if standing.study.data_set(name).outputs is None]
    groups = [(without, "without repeats"), (with_repeats, "with repeats"), (every, "all"), (whole, "with all rows")]
    groups = [group for at, group in enumerate(groups) if group[0] and group[0] not in [g[0] for g in groups[:at]]]
    timed = timed_on(standing)
    columns = [(tuple(data), metric) for data, _ in groups for metric in FIGURES]

    def cell(entrant: Entrant, column: tuple[tuple[str, ...], str]) -> Cell:
        return plain(percent(mean_figure(standing, entrant, *column)), 2)

    lines = bold_best(_lines(standing, columns, cell))
    heads = [(f"{words} ({len(data)})", tuple(NAMES[metric] for metric in FIGURES)) for data, words in groups]
    return Table(
        "summary",
        f"Model size, median time of training and of validating for one epoch on {timed}, and geometric means (%) over "
        f"data sets of the test performance at 10. {BOLD}",
        (("size", ("M",)), ("training", ("s",)), ("ranking", ("s",)), *heads),
        tuple(
            line._replace(cells=(*_costs(standing, entrant, timed), *line.cells))
            for entrant, line in zip(_shown(standing), lines, strict=True)
        ),
    )


def gains_table(standing: Standing, data: Sequence[str]) -> Table:
    """What each output layer gains over the reference with the same encoder."""
    metric, against = FIGURES[0], standing.study.against
    columns = [*((each,) for each in data), tuple(data)]
    columns = columns[: len(data)] if len(data) == 1 else columns

    def cell(entrant: Entrant, column: tuple[str, ...]) -> Cell:
        base = mean_figure(standing, entrant._replace(output=against), column, metric)
        mine = mean_figure(standing, entrant, column, metric)
        gain = None if base is None or mine is None or not base else 100 * (mine / base - 1)
        mark = marks(standing, column[0], metric).get((entrant.encoder, entrant.output), "")
        return plain(gain, 1, mark if len(column) == 1 else "", sign=True)

    lines = _lines(standing, columns, cell)
    kept = [
        line
        for entrant, line in zip(_shown(standing), lines, strict=True)
        if entrant.encoder and entrant.output != against
    ]
    heads = tuple((each, ("NDCG",)) for each in data) + ((("geometric mean", ("NDCG",)),) if len(data) > 1 else ())
    caption = f"Relative gain (%) in test NDCG@10 over {against} with the same encoder. {BOLD} {_mark_words(standing)}"
    return Table("gains", caption, heads, bold_best(kept))


def repeat_table(standing: Standing, data: Sequence[str]) -> Table:
    """NDCG apart for targets that are repeats and that are new, and how often repeats are recommended."""
    columns: list[tuple[str, Group | str]] = [(each, part) for each in data for part in (*GROUPS[1:], "share", "ece")]

    def cell(entrant: Entrant, column: tuple[str, Group | str]) -> Cell:
        each, part = column
        if part in GROUPS:
            return plain(percent(figure(standing, entrant, each, FIGURES[0], part)), 2)
        found = [_copying(entry, part) for entry in entries(standing, entrant, each)]
        known = [value for value in found if value is not None]
        value = sum(known) / len(known) if known and len(known) == len(found) else None
        return plain(value, 3) if part == "ece" else plain(percent(value), 1)

    happen = ", ".join(
        f"{each} {100 * found[0]['repeats_happen']:.1f} %"
        for each in data
        if (found := next(filter(None, (entries(standing, e, each) for e in entrants(standing))), None))
    )
    return Table(
        "repeats",
        "Test NDCG@10 (%) on targets that are repeats and on new ones, the share of repeats (%) among the first ten "
        f"recommended, and the calibration error of the predicted probability of a repeat. Repeats happen: {happen}.",
        tuple((each, ("repeat", "new", "recommended", "calibration")) for each in data),
        bold_best(_lines(standing, columns, cell), skip=lambda place: place % 4 > 1),
    )


def paper_table(standing: Standing) -> Table:
    """Our figures beside the paper's, on the data sets that both have."""
    theirs = {(result.encoder, result.output): result.values for result in paper_results()}
    data = [name for name in standing.data if name in dataset_names()]
    columns = [(name, metric, whose) for name in data for metric in PER_SET for whose in ("ours", "paper's")]

    def cell(entrant: Entrant, column: tuple[str, str, str]) -> Cell:
        name, metric, whose = column
        printed = theirs.get((entrant.encoder, entrant.output), {}).get(name, {}).get(metric)
        return plain(percent(figure(standing, entrant, name, metric) if whose == "ours" else printed), 2)

    heads = tuple((f"{name} {NAMES[metric]}", ("ours", "paper's")) for name in data for metric in PER_SET)
    return Table(
        "paper", f"Test performance (%) at 10 beside {citation()}", heads, tuple(_lines(standing, columns, cell))
    )


def choices_table(standing: Standing) -> Table:
    """The configuration that validation chose for each row."""
    varied = sorted({name for row in standing.study.rows() for name in standing.study.varied(row)})
    lines = []
    for row in standing.study.rows():
        chosen = standing.chosen(row) if row.data in standing.data else None
        entry = None if chosen is None else standing.results.get("run", chosen.id)
        if chosen is None or entry is None:
            continue
        options = entry["all_options"]
        shown = [Cell(None, _value(options.get(name))) for name in varied]
        figures = [Cell(None, str(len(standing.searched(row)))), Cell(None, str(entry["best_epoch"] + 1))]
        cells = (*shown, *figures, plain(100 * entry["best"], 2), Cell(None, chosen.id))
        lines.append(Line(row.data, f"{row.encoder} {row.output}", tuple(cells)))
    heads = (*((name, ("",)) for name in varied), ("tried", ("",)), ("best epoch", ("",)), ("validation", ("NDCG",)))
    caption = "What validation NDCG@10 (%) chose for each row, with the first seed, and the run that it was."
    return Table("choices", caption, (*heads, ("run", ("",))), tuple(lines))


def entrants(standing: Standing) -> list[Entrant]:
    """The rows in their order: each encoder's output layers, RepeatNet (where one encoder has it), baselines."""
    known = {(row.encoder, row.output) for row in standing.study.rows()}
    every = ((encoder, output) for encoder, plan in standing.study.encoders.items() for output in plan.outputs)
    models = [model for model in every if model in known]
    repeatnets = {model for model in models if model[1].startswith("repeatnet")}
    apart = repeatnets if len({encoder for encoder, _ in repeatnets}) == 1 else set()
    inside = [Entrant(ENCODER_NAMES.get(model[0], model[0]), *model) for model in models if model not in apart]
    outside = [Entrant(REPEATNET, *model) for model in models if model in apart]
    return [*inside, *outside, *(Entrant(BASELINES, "", name) for name in standing.study.baselines)]


def entries(standing: Standing, entrant: Entrant, data: str) -> list[Entry]:
    """The test entries of a row on a data set, one per seed."""
    if entrant.encoder:
        row = RowKey(data, entrant.encoder, entrant.output)
        return standing.tests(row) if row in standing.study.rows() else []
    found = standing.baseline(data, entrant.output)
    return [] if found is None else [found]


def figure(standing: Standing, entrant: Entrant, data: str, metric: str, group: Group = "all") -> float | None:
    """A row's test figure on a data set."""
    found = estimate(standing, entrant, data, metric, group)
    return None if found is None else found.value


def estimate(standing: Standing, entrant: Entrant, data: str, metric: str, group: Group = "all") -> Estimate | None:
    """A row's test figure on a data set with its interval."""
    return mean_of([entry["groups"][group]["metrics"][metric] for entry in entries(standing, entrant, data)])


def mean_figure(standing: Standing, entrant: Entrant, data: Iterable[str], metric: str) -> float | None:
    """The geometric mean over data sets; None where one is missing."""
    values = [figure(standing, entrant, each, metric) for each in data]
    known = [value for value in values if value is not None]
    return geometric_mean(known) if known and len(known) == len(values) else None


def marks(standing: Standing, data: str, metric: str) -> dict[tuple[str, str], str]:
    """By encoder and output layer: whether it differs from the reference, after Holm's correction per encoder."""
    found: dict[tuple[str, str], str] = {}
    for encoder in standing.study.encoders:
        rows = standing.study.rows_beside(RowKey(data, encoder, ""))
        tests = {row: entry["metrics"][metric] for row in rows if (entry := standing.comparison(row)) is not None}
        corrected = holm([test["p_value"] for test in tests.values()])
        for (row, test), p_value in zip(tests.items(), corrected, strict=True):
            better = test["difference"]["value"] > 0
            said = (up if better else down for level, up, down in MARKS if p_value < level)
            found[row.encoder, row.output] = next(said, "")
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for being several: Holm's step-down procedure."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[at]))
        corrected[at] = largest
    return corrected


def timed_on(standing: Standing) -> str:
    """The data set whose times are shown: with most training targets, if the study does not say."""
    sizes = {name: entry["counts"]["training_targets"] for name, entry in standing.data.items()}
    return standing.study.time_on or max(sizes, key=lambda name: sizes[name])


def seconds_per_epoch(standing: Standing, row: RowKey, key: str = "seconds") -> float | None:
    """The median time of an epoch of a row's chosen run."""
    chosen = standing.chosen(row) if row in standing.study.rows() and row.data in standing.data else None
    entry = None if chosen is None else standing.results.get("run", chosen.id)
    return None if entry is None else median(epoch[key] for epoch in entry["epochs"])


def percent(value: float | None) -> float | None:
    """A share as a percentage."""
    return None if value is None else 100 * value


def _costs(standing: Standing, entrant: Entrant, data: str) -> tuple[Cell, Cell, Cell]:
    row = RowKey(data, entrant.encoder, entrant.output)
    known = row in standing.study.rows() and data in standing.data
    if not entrant.encoder or not known or (chosen := standing.chosen(row)) is None:
        return plain(None), plain(None), plain(None)
    entry = standing.results.get("run", chosen.id) or {}
    size = plain(entry["parameters"] / 1e6, 2)
    return size, *(plain(seconds_per_epoch(standing, row, key), 2) for key in ("seconds", "validation_seconds"))  # type: ignore[return-value]


def _copying(entry: Entry, part: str) -> float | None:
    if part == "share":
        value: float | None = entry["repeats_recommended"]["10"]
        return value
    return None if entry["calibration"] is None else float(entry["calibration"]["ece"])


def _value(option: object) -> str:
    return f"{option:g}" if isinstance(option, int | float) else "–" if option is None else str(option)


def _shown(standing: Standing) -> list[Entrant]:
    """The rows that have a test figure on some data set."""
    return [e for e in entrants(standing) if any(entries(standing, e, data) for data in standing.data)]


def _lines(standing: Standing, columns: Sequence[Column], cell: Callable[[Entrant, Column], Cell]) -> list[Line]:
    return [Line(e.group, e.output, tuple(cell(e, column) for column in columns)) for e in _shown(standing)]


def _mark_words(standing: Standing) -> str:
    return (
        f"▲ △ better and ▼ ▽ worse than {standing.study.against} with the same encoder (p < 0.01, p < 0.05): "
        "paired sign-flip permutation test over users, Holm's correction over the rows of an encoder. It compares "
        "the models that were trained: users are drawn anew, trainings are not."
    )

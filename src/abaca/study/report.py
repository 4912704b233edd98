"""The results of a study: tables in several formats, figures in two, and one page with everything."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path

from abaca.durable import write_text
from abaca.study.cases import MEANING, Case, Pick
from abaca.study.datasets import Census, dataset_table
from abaca.study.draw import Figure, style_of
from abaca.study.figures import all_figures
from abaca.study.margins import margin_sentences
from abaca.study.page import bullets, facts, figure, page, paragraph, section
from abaca.study.runs import METRICS
from abaca.study.state import StudyState
from abaca.study.table import WRITERS, Table, to_html
from abaca.study.tables import BASELINES, all_tables, mean_value, rows_of

TABLES = {
    "without-repeats": "Data sets without repeats",
    "with-repeats": "Data sets with repeats",
    "summary": "All in one: size, time, geometric means",
    "gains": "The gain of each output layer",
    "margins": "Beside the best baseline",
    "repeats": "Repeats and new items apart",
    "paper": "Beside the paper",
    "choices": "The configurations that validation chose",
}
"""Title of each table."""

FIGURES = {
    "repetition": ("When do people repeat?", "The share of users' first items of each length whose last is a repeat, "
    "with and without an earlier repeat; in brackets the number of sequences. Bands are 95 % intervals."),
    "sensitivity": ("Sensitivity to the options", "Validation NDCG@10, geometric mean over data sets, by one option. "
    "An option of the sweep varies alone, the others as chosen. An option of the grid is averaged over the others."),
    "learning": ("Learning curves", "Validation NDCG@10 after each epoch of the chosen runs, first seed. The "
    "best epoch is kept."),
    "trade-off": ("Good at repeats, good at new items", "Test NDCG@10 on repeat targets against that on new ones. "
    "Filled: the first encoder; hollow: the second. Thin lines are 95 % bootstrap intervals. Upper right is best."),
    "calibration": ("Is the probability of a repeat right?", "The observed share of repeats by its predicted "
    "probability, on test targets. The diagonal is a perfect prediction. Bins of fewer than 20 are left out."),
    "speed": ("Speed against quality", "Test NDCG@10, geometric mean over data sets, against the median wall time of "
    "an epoch."),
}  # fmt: skip
"""Title and caption of each figure."""

KEY = "↻ in the history · ✓ the true next item · ○ came later"


def publish(state: StudyState, folder: Path) -> list[Path]:
    """Write every table, figure and the page; returns the paths, the page first."""
    tables, figures = all_tables(state), all_figures(state)
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    _drop(folder / "tables", TABLES.keys() - {table.name for table in tables}, WRITERS)
    _drop(folder / "figures", FIGURES.keys() - {drawn.name for drawn in figures}, ("svg", "pdf"))
    for table in (data_table(state), *tables):
        for ending, write in WRITERS.items():
            write_text(folder / "tables" / f"{table.name}.{ending}", write(table))
    for drawn in figures:
        write_text(folder / "figures" / f"{drawn.name}.svg", drawn.svg(alone=True))
        (folder / "figures" / f"{drawn.name}.pdf").write_bytes(drawn.pdf())
    write_text(folder / "report.html", study_page(state, tables, figures))
    return [folder / "report.html", folder / "tables", folder / "figures", state.results.path]


def _drop(folder: Path, names: Iterable[str], endings: Iterable[str]) -> None:
    """Remove files of an earlier report that this one does not have."""
    for name, ending in product(names, endings):
        (folder / f"{name}.{ending}").unlink(missing_ok=True)


def study_page(state: StudyState, tables: Sequence[Table], figures: Sequence[Figure]) -> str:
    """The whole study as one page that loads nothing."""
    title = state.study.title
    shown = {table.name: section(TABLES[table.name], to_html(table)) for table in tables}
    choices = shown.pop("choices", "")
    drawn = [section(FIGURES[one.name][0], figure(one.svg(), FIGURES[one.name][1])) for one in figures]
    head = f"<header><p class='over'>Abaca study</p><h1>{escape(title)}</h1>{_lead(state)}</header>"
    parts = [section("The data", to_html(data_table(state))), *shown.values(), *drawn, _examples(state), choices]
    return page(f"Abaca study: {title}", head + "".join(parts) + _method(state), wide=True)


def data_table(state: StudyState) -> Table:
    """The sizes of the data sets (the paper's Table 1)."""
    return dataset_table(Census(**entry["census"]) for entry in state.data.values())


def summary_sentences(state: StudyState) -> list[str]:
    """The best row of each encoder, and its gain over the reference."""
    against, sentences = state.study.against, []
    rows = {row: mean_value(state, row, list(state.data), METRICS[0]) for row in rows_of(state)}
    for group in dict.fromkeys(row.group for row in rows):
        known = {row: value for row, value in rows.items() if row.group == group and value is not None}
        if not known or (group != BASELINES and len(known) < 2):
            continue
        best = max(known, key=lambda row: known[row])
        base = known.get(best._replace(output=against))
        gain = f", {100 * (known[best] / base - 1):+.1f} % over {against}" if base and best.output != against else ""
        sentences.append(f"{group}: {best.output} is best, NDCG@10 {100 * known[best]:.2f} %{gain}.")
    return sentences


def cases(state: StudyState) -> dict[str, list[Case]]:
    """The examples of each data set."""
    found = {}
    for name in state.data:
        entry = state.results.get("example", state.example_id(name))
        if entry is not None and state.example_rows(name):
            found[name] = [Case.from_json(values) for values in entry["cases"]]
    return found


def case_html(case: Case, who: str) -> str:
    """One history and the recommendations of several rankers."""
    head = (
        f"<h3>{escape(case.kind.capitalize())}: {escape(who)} {escape(case.user)}<small>{escape(MEANING[case.kind])} · "
        f"{case.length} earlier items, {case.share:.0%} of them repeats</small></h3>"
    )
    chips = "".join(f"<li>{_pick(pick)}</li>" for pick in case.latest)
    kind = "a repeat" if case.target.repeat else "new"
    came = f"<p class='came'>came next: <b>{escape(case.target.name)}</b> <span class='hit'>✓</span> ({kind})</p>"
    lists = "".join(
        f"<div><h4 style='color: var(--{style_of(name.split()[-1]).name})'>{escape(name)}</h4><ol>"
        + "".join(f"<li class='{'true' if pick.true else ''}'>{_pick(pick)}</li>" for pick in picks)
        + f"</ol><p class='note'>✓ is at rank {case.ranks[name]:,}</p></div>"
        for name, picks in case.lists.items()
    )
    latest = f"<p class='over'>latest items</p><ul class='chips'>{chips}</ul>"
    return f"<article>{head}{latest}{came}<div class='lists'>{lists}</div></article>"


def _pick(pick: Pick) -> str:
    again = " <span class='again' title='in the history'>↻</span>" if pick.repeat else ""
    mark = "✓" if pick.true else "○" if pick.later else ""
    return escape(pick.name) + again + (f" <span class='hit'>{mark}</span>" if mark else "")


def _lead(state: StudyState) -> str:
    study, rows = state.study, state.study.rows()
    text = (
        f"{len({row[1:] for row in rows})} models and {len(study.baselines)} baselines on {len(study.data)} data sets; "
        f"{len(list(state.results.all('run')))} runs, {sum(1 for row in rows if state.tests(row))} of {len(rows)} rows "
        f"tested, {len(study.seeds)} seed{'s' if len(study.seeds) > 1 else ''}."
    )
    about = paragraph(" ".join(study.about.split())) if study.about else ""
    lists = {
        "Geometric means over all data sets, test targets:": summary_sentences(state),
        "Data sets on which a row is above the best baseline, test NDCG@10:": margin_sentences(state),
    }
    shown = "".join(paragraph(heading, "strong") + bullets(each) for heading, each in lists.items() if each)
    return paragraph(text, "lead") + about + shown


def _examples(state: StudyState) -> str:
    found = cases(state)
    if not any(found.values()):
        return ""
    words = (
        "The same histories under several models: a user who repeats, and a user who explores. Users are chosen by "
        f"their data alone. {KEY}"
    )
    shown = "".join(
        f"<h3>{escape(name)}</h3>" + "".join(case_html(case, "user") for case in kept) for name, kept in found.items()
    )
    return section("Examples", paragraph(words, "note") + shown)


def _method(state: StudyState) -> str:
    study = state.study
    made = [entry["environment"] for kind in ("run", "test") for entry in state.results.all(kind)]
    keys = dict.fromkeys(key for environment in made for key in environment)
    values = {
        "file": study.path.name,
        "options": _listed(study.options),
        **{f"{name} options": _listed(plan.options) for name, plan in study.encoders.items() if plan.options},
        "grid": _listed(study.grid) or "none",
        **{f"{name} grid": _listed(plan.grid) for name, plan in study.encoders.items() if plan.grid},
        "sweep": _listed(study.sweep.options) or "none",
        "seeds": ", ".join(map(str, study.seeds)),
        "split": "; ".join(sorted({entry["split"] for entry in state.data.values()})),
        **{key: ", ".join(sorted({str(environment.get(key)) for environment in made})) for key in keys},
    }
    words = (
        "Every target is ranked against the whole catalogue; ties count against it. The grid is searched with the "
        "first seed. The configuration with the best validation NDCG@10 is trained with the other seeds too, and only "
        "it is tested. A row is the mean over seeds. Tables and figures follow from the results file alone."
    )
    return section("Method", paragraph(words) + facts(values))


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())

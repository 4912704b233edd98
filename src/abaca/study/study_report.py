"""What a study gives: tables in three formats, figures in two, and one page that holds everything."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path

from abaca.durable import write_text
from abaca.study.cases import Case
from abaca.study.datasets import Census, dataset_table
from abaca.study.draw import Sheet
from abaca.study.page import figure, page, paragraph, section
from abaca.study.report import case_html
from abaca.study.results import Entry
from abaca.study.runs import FIGURES
from abaca.study.standing import Standing
from abaca.study.study_figures import all_figures
from abaca.study.table import WRITERS, Table, to_html
from abaca.study.tables import BASELINES, all_tables, entrants, mean_figure

CAPTIONS = {
    "repetition": "How often the last item of a user's first so many is one of those before it, apart by whether there "
    "had been a repeat among those already; in brackets how many sequences. Bands are 95 % intervals.",
    "sensitivity": "Validation NDCG@10, geometric mean over data sets, when one option changes. An option of the sweep "
    "changes alone, the others are as chosen; one of the grid is averaged over the other options.",
    "learning": "Validation NDCG@10 after each epoch of the chosen runs (first seed); the best epoch is kept.",
    "trade-off": "Test NDCG@10 on targets that are repeats against that on new ones. Filled: the first encoder; "
    "hollow: the second; thin lines are 95 % bootstrap intervals over users. The upper right corner is where to be.",
    "calibration": "Of the test targets for which a model gave a repeat this probability, how many were repeats? The "
    "dotted diagonal is a perfect prediction; bins with fewer than 20 targets are left out.",
    "speed": "Test NDCG@10, geometric mean over data sets, against the median wall time of a training epoch.",
}
TABLE_TITLES = {
    "without-repeats": "Data sets without repeats",
    "with-repeats": "Data sets with repeats",
    "summary": "All in one: size, time, geometric means",
    "gains": "What each output layer gains",
    "repeats": "Repeats and new items apart",
    "paper": "Beside the paper",
    "choices": "What validation chose",
}
FIGURE_TITLES = {
    "repetition": "When do people repeat?",
    "sensitivity": "How much the options matter",
    "learning": "Learning",
    "trade-off": "Good at repeats, good at new items",
    "calibration": "Does it know when a repeat comes?",
    "speed": "Speed against quality",
}


def publish(standing: Standing, folder: Path) -> list[Path]:
    """Write every table, figure and the page; the most useful first."""
    tables, sheets = all_tables(standing), all_figures(standing)
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    _drop(folder / "tables", TABLE_TITLES.keys() - {table.name for table in tables}, WRITERS)
    _drop(folder / "figures", FIGURE_TITLES.keys() - {sheet.name for sheet in sheets}, ("svg", "pdf"))
    for table in (data_table(standing), *tables):
        for ending, write in WRITERS.items():
            write_text(folder / "tables" / f"{table.name}.{ending}", write(table))
    for sheet in sheets:
        write_text(folder / "figures" / f"{sheet.name}.svg", sheet.svg(alone=True))
        (folder / "figures" / f"{sheet.name}.pdf").write_bytes(sheet.pdf())
    write_text(folder / "report.html", study_page(standing, tables, sheets))
    return [folder / "report.html", folder / "tables", folder / "figures", standing.results.path]


def _drop(folder: Path, names: Iterable[str], endings: Iterable[str]) -> None:
    """Take away what an earlier report wrote and this one does not have."""
    for name, ending in product(names, endings):
        (folder / f"{name}.{ending}").unlink(missing_ok=True)


def study_page(standing: Standing, tables: Sequence[Table], sheets: Sequence[Sheet]) -> str:
    """Everything as one page without anything to load."""
    study = standing.study
    shown = {table.name: section(TABLE_TITLES[table.name], to_html(table)) for table in tables}
    choices = shown.pop("choices", "")
    drawn = [section(FIGURE_TITLES[sheet.name], figure(sheet.svg(), CAPTIONS[sheet.name])) for sheet in sheets]
    head = f"<header><p class='over'>Abaca study</p><h1>{escape(study.title)}</h1>{_lead(standing)}</header>"
    parts = [section("The data", to_html(data_table(standing))), *shown.values(), *drawn, _examples(standing), choices]
    return page(f"Abaca study: {study.title}", head + "".join(parts) + _made(standing), wide=True)


def data_table(standing: Standing) -> Table:
    """What the data sets hold (the paper's Table 1)."""
    return dataset_table(Census(**entry["census"]) for entry in standing.data.values())


def summary_sentences(standing: Standing) -> list[str]:
    """The best row of each encoder, and what it gains over the reference."""
    every, against = list(standing.data), standing.study.against
    said = []
    for group in dict.fromkeys(entrant.group for entrant in entrants(standing)):
        members = [entrant for entrant in entrants(standing) if entrant.group == group]
        figures = {entrant: mean_figure(standing, entrant, every, FIGURES[0]) for entrant in members}
        known = {entrant: figure for entrant, figure in figures.items() if figure is not None}
        if not known or (group != BASELINES and len(known) < 2):
            continue
        best = max(known, key=lambda entrant: known[entrant])
        base = known.get(best._replace(output=against))
        gain = f", {100 * (known[best] / base - 1):+.1f} % over {against}" if base and best.output != against else ""
        said.append(f"{group}: {best.output} is best, NDCG@10 {100 * known[best]:.2f} %{gain}.")
    return said


def cases(standing: Standing) -> dict[str, list[Case]]:
    """The examples of each data set."""
    found = {}
    for name in standing.data:
        entry = standing.results.get("example", standing.example_id(name))
        if entry is not None and standing.example_rows(name):
            found[name] = [Case.from_json(values) for values in entry["cases"]]
    return found


def _lead(standing: Standing) -> str:
    study, rows = standing.study, standing.study.rows()
    runs = list(standing.results.all("run"))
    text = (
        f"{len({row[1:] for row in rows})} models and {len(study.baselines)} baselines on {len(study.data)} data sets; "
        f"{len(runs)} runs, {sum(1 for row in rows if standing.tests(row))} of {len(rows)} rows tested, "
        f"{len(study.seeds)} seed{'s' if len(study.seeds) > 1 else ''}."
    )
    about = paragraph(" ".join(study.about.split())) if study.about else ""
    means = "".join(f"<li>{escape(sentence)}</li>" for sentence in summary_sentences(standing))
    heading = paragraph("Geometric means over all data sets, test targets:", "strong") if means else ""
    return paragraph(text, "lead") + about + heading + (f"<ul>{means}</ul>" if means else "")


def _examples(standing: Standing) -> str:
    found = cases(standing)
    if not any(found.values()):
        return ""
    words = (
        "The same histories under several models: one that should be copied from, one that should not. Users are "
        "chosen by the data alone, before any model is asked. ↻ in the history · ✓ what came next · ○ came later"
    )
    shown = "".join(
        f"<h3>{escape(name)}</h3>" + "".join(case_html(case, "user") for case in kept) for name, kept in found.items()
    )
    return section("Examples", paragraph(words, "note") + shown)


def _made(standing: Standing) -> str:
    study = standing.study
    entries: list[Entry] = [entry for kind in ("run", "test") for entry in standing.results.all(kind)]
    keys = dict.fromkeys(key for entry in entries for key in entry["environment"])
    facts = {
        "file": study.path.name,
        "options": ", ".join(f"{name} = {value}" for name, value in study.options.items()),
        **{f"{name} options": _said(plan.options) for name, plan in study.encoders.items() if plan.options},
        "grid": _said(study.grid) or "none",
        **{f"{name} grid": _said(plan.grid) for name, plan in study.encoders.items() if plan.grid},
        "sweep": _said(study.sweep.options) or "none",
        "seeds": ", ".join(map(str, study.seeds)),
        "split": "; ".join(sorted({entry["split"] for entry in standing.data.values()})),
        **{key: ", ".join(sorted({str(entry["environment"].get(key)) for entry in entries})) for key in keys},
    }
    listed = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    words = (
        "Every target is ranked against the whole catalogue, ties count against it. The grid is searched with the "
        "first seed; the configuration that validates best in NDCG@10 is trained with the other seeds too, and only "
        "it sees the test targets. A row is the mean over seeds. Everything here follows from the results file."
    )
    return section("How it was made", paragraph(words) + f"<dl>{listed}</dl>")


def _said(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())

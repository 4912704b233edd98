"""Tables from results small enough to check by hand."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from abaca.study.draw import Figure
from abaca.study.figures import all_figures, sensitivity, show_values
from abaca.study.margins import margin_sentences
from abaca.study.plan import RowKey, read_study
from abaca.study.report import cases, data_table, publish, summary_sentences
from abaca.study.results import Results
from abaca.study.runs import METRICS
from abaca.study.significance import holm
from abaca.study.state import StudyState
from abaca.study.table import Line, Table, plain, to_csv, to_html, to_markdown
from abaca.study.tables import all_tables, marks, rows_of

STUDY = """
title = "By <hand>"
outputs = ["softmax", "softmax+C"]
baselines = ["popularity"]
[grid]
lr = [0.001, 0.002]
dropout = [0.0, 0.1]
[encoders.sasrec]
[encoders.gru4rec]
[[data]]
name = "ml-1m"
synthetic = {}
[[data]]
name = "b"
synthetic = {}
"""
TEST = {("ml-1m", "softmax"): 0.04, ("ml-1m", "softmax+C"): 0.09, ("b", "softmax"): 0.16, ("b", "softmax+C"): 0.04}
P_VALUES = {"ml-1m": 0.001, "b": 0.03}


def entry(value: float) -> dict[str, Any]:
    estimate = {"value": value, "low": value / 2, "high": value * 2}
    groups = {group: {"count": 5, "metrics": dict.fromkeys(METRICS, estimate)} for group in ("all", "repeat", "new")}
    bins = [{"count": 20, "predicted": 0.1, "observed": 0.2}, {"count": 3, "predicted": 0.8, "observed": 0.7}]
    calibration = {"ece": 0.1, "bins": bins}
    return {"groups": groups, "repeats_happen": 0.5, "repeats_recommended": {"10": 0.3}, "calibration": calibration}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> StudyState:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "study.toml").write_text(STUDY.replace("synthetic = {}", "synthetic = {seed = 1}"), encoding="utf-8")
    results = Results(folder / "results.jsonl", folder / "lock")
    found = StudyState(read_study(folder / "study.toml"), results)
    counts = {"users": 7, "items": 5, "interactions": 1234, "test_targets": 7, "training_targets": 9}
    for name, repeats in (("ml-1m", 0.0), ("b", 0.4)):
        size = {"name": name, "users": 7, "items": 5, "interactions": 1234, "median_length": 3.0, "longest": 9}
        tallies = [{"length": 3, "count": 9, "repeats": 4}, {"length": 4, "count": 8, "repeats": 4}]
        results.append(
            "data", name, name=name, fingerprint=name, repeats=repeats, counts=counts, split="leave one out",
            census=size | {"repeat_share": repeats, "last_repeat_share": repeats},
            repetition={"with_repeat": tallies, "without_repeat": tallies},
        )  # fmt: skip
        results.append("baseline", found.baseline_id(name, "popularity"), data=name, **entry(0.02))
    for row in found.study.rows():
        fill(found, row)
    for row in found.study.rows():
        if row.output == "softmax+C":
            test = {"difference": {"value": TEST[row.data, row.output] - TEST[row.data, "softmax"]}}
            metrics = {key: {**test, "p_value": P_VALUES[row.data]} for key in METRICS}
            results.append("comparison", found.comparison_id(row), **row._asdict(), metrics=metrics)
    for row in found.study.rows():
        results.append("margin", found.margin_id(row), **row._asdict(), groups={"all": margin(row)})
    return found


def margin(row: RowKey) -> dict[str, Any]:
    """Above the best baseline on ml-1m, below on b; with two rows of an encoder 0.03 is not significant."""
    up = 1 if row.data == "ml-1m" else -1
    difference = {"value": 0.02 * up, "low": 0.01 * up, "high": 0.03 * up}
    p_value = P_VALUES[row.data]
    return {"baseline": "popularity", "count": 7, "value": 0.04, "difference": difference, "p_value": p_value}


def fill(state: StudyState, row: RowKey) -> None:
    """Four runs: 0.1, 0.2 at the lower learning rate, 0.3, 0.4 at the higher; the last is chosen."""
    for place, run in enumerate(state.searched(row)):
        epochs = [{"epoch": e, "ndcg@10": 0.1 * e, "seconds": 2.0 + e, "validation_seconds": 1.0} for e in range(3)]
        state.results.append(
            "run", run.id, **row._asdict(), best=0.1 * (place + 1), best_epoch=2, epochs=epochs, parameters=1_500_000,
            all_options=dict(run.options),
        )  # fmt: skip
    for run in state.seeds(row):
        state.results.append("test", run.id, **row._asdict(), seconds=1.0, **entry(TEST[row.data, row.output]))


@pytest.fixture(scope="module")
def tables(state: StudyState) -> dict[str, Table]:
    return {table.name: table for table in all_tables(state)}


def texts(table: Table, group: str, name: str) -> list[str]:
    line = next(line for line in table.lines if (line.group, line.name) == (group, name))
    return [f"{'*' if cell.best else ''}{cell.text}{cell.mark}" for cell in line.cells]


def test_a_table_per_kind_of_data(tables: dict[str, Table]) -> None:
    assert tables["without-repeats"].columns == ["ml-1m NDCG", "ml-1m HR", "ml-1m MRR"]
    assert texts(tables["without-repeats"], "SASRec", "softmax+C") == ["*9.00▲"] * 3
    assert texts(tables["with-repeats"], "GRU4Rec", "softmax+C") == ["4.00▽"] * 3
    assert texts(tables["with-repeats"], "GRU4Rec", "softmax") == ["*16.00"] * 3
    assert texts(tables["with-repeats"], "baselines", "popularity") == ["2.00"] * 3


def test_geometric_means_size_and_time(tables: dict[str, Table]) -> None:
    table = tables["summary"]
    assert [head for head, _ in table.heads[3:]] == ["without repeats (1)", "with repeats (1)", "all (2)"]
    shown = texts(table, "SASRec", "softmax")
    assert shown[:3] == ["1.50", "3.00", "1.00"]
    assert shown[-1] == "*8.00"  # √(4 · 16)
    assert texts(table, "SASRec", "softmax+C")[-1] == "6.00"  # √(9 · 4)
    assert texts(table, "baselines", "popularity")[:3] == ["–"] * 3


def test_gains_are_relative_to_the_same_encoder(tables: dict[str, Table]) -> None:
    assert [line.name for line in tables["gains"].lines] == ["softmax+C", "softmax+C"]
    assert texts(tables["gains"], "SASRec", "softmax+C") == ["+125.0▲", "-75.0▽", "-25.0"]


def test_margins_over_the_best_baseline(state: StudyState, tables: dict[str, Table]) -> None:
    above = ["4.00", "popularity", "+2.00▲", "+1.00 to +3.00"]
    assert texts(tables["margins"], "ml-1m", "sasrec softmax+C") == [*above, *["–"] * 8]
    assert texts(tables["margins"], "b", "gru4rec softmax")[:4] == ["4.00", "popularity", "-2.00", "-1.00 to -3.00"]
    counts = "all targets above on 1 of 2, 1 of them significantly, significantly below on 0"
    assert margin_sentences(state)[0] == f"sasrec softmax: {counts}."


def test_each_shelf_has_its_best_baseline(state: StudyState, tmp_path: Path) -> None:
    text = state.study.path.read_text(encoding="utf-8")
    text = text.replace('["popularity"]', '["popularity", "most recent"]')
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    results = Results(tmp_path / "results.jsonl", tmp_path / "lock")
    results.entries["data"] = dict(state.results.entries["data"])
    found = StudyState(read_study(tmp_path / "study.toml"), results)
    assert found.best_baselines("b") == {}
    for name, again, discover in (("popularity", 0.1, 0.3), ("most recent", 0.2, None)):
        values = {"buy again": again, "discover": discover}
        shelves = {shelf: {"metrics": {"ndcg@10": {"value": value}}} for shelf, value in values.items()}
        results.append("baseline", found.baseline_id("b", name), **entry(again), shelves=shelves)
    assert found.best_baselines("b") == {"all": "most recent", "buy again": "most recent"}
    assert state.best_baselines("b") == {"all": "popularity"}, "entries of earlier releases have no shelves"


def test_what_was_chosen(state: StudyState, tables: dict[str, Table]) -> None:
    chosen = state.chosen(RowKey("b", "sasrec", "softmax"))
    assert chosen is not None
    assert texts(tables["choices"], "b", "sasrec softmax") == ["0.1", "0.002", "4", "3", "40.00", chosen.id]


def test_repeats_and_new_apart(tables: dict[str, Table]) -> None:
    assert texts(tables["repeats"], "SASRec", "softmax") == ["*16.00", "*16.00", "30.0", "0.100"]
    assert "b 50.0 %" in tables["repeats"].caption


def test_the_paper_s_numbers_stand_beside(tables: dict[str, Table]) -> None:
    assert tables["paper"].columns == [f"ml-1m {m} {w}" for m in ("NDCG", "HR") for w in ("ours", "paper's")]
    assert texts(tables["paper"], "SASRec", "softmax") == ["4.00", "16.75", "4.00", "29.45"]
    assert texts(tables["paper"], "baselines", "popularity") == ["2.00", "–", "2.00", "–"]


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_a_correction_takes_marks_away(state: StudyState) -> None:
    assert marks(state, "ml-1m", "ndcg@10") == {("sasrec", "softmax+C"): "▲", ("gru4rec", "softmax+C"): "▲"}


def test_formats_agree(tables: dict[str, Table]) -> None:
    table = tables["with-repeats"]
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows[0] == ["group", "row", *table.columns]
    assert [float(cell) for cell in rows[1][2:]] == pytest.approx([16.0] * 3)
    assert "| softmax+C | 4.00▽ | 4.00▽ | 4.00▽ |" in to_markdown(table)
    assert "<th>softmax+C</th><td>4.00<sup>▽</sup></td>" in to_html(table)


def test_the_paper_s_way_of_averaging_a_grid(state: StudyState) -> None:
    found = sensitivity(state)
    assert found["sasrec", "lr", "softmax"] == [(0.001, pytest.approx(15)), (0.002, pytest.approx(35))]
    assert found["sasrec", "dropout", "softmax"] == [(0.0, pytest.approx(20)), (0.1, pytest.approx(30))]


def test_an_encoder_s_rows_stand_together_and_lines_are_over_the_same_data(state: StudyState, tmp_path: Path) -> None:
    text = state.study.path.read_text(encoding="utf-8")
    text = text.replace('name = "ml-1m"', 'name = "ml-1m"\noutputs = ["softmax"]')
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    fewer = StudyState(read_study(tmp_path / "study.toml"), state.results)
    rows = [("SASRec", "softmax"), ("SASRec", "softmax+C"), ("GRU4Rec", "softmax"), ("GRU4Rec", "softmax+C")]
    assert [(group, output) for group, encoder, output in rows_of(fewer) if encoder] == rows
    run = fewer.searched(RowKey("ml-1m", "sasrec", "softmax"))[0]
    better = Results(tmp_path / "results.jsonl", tmp_path / "lock")
    better.entries = {kind: dict(found) for kind, found in state.results.entries.items()}
    better.entries["run"][run.id] = {**better.entries["run"][run.id], "best": 0.9}
    found = sensitivity(StudyState(fewer.study, better))
    assert found["sasrec", "lr", "softmax"] == found["sasrec", "lr", "softmax+C"], "ml-1m is not a set of both"


def test_names_of_any_kind_are_written() -> None:
    made = Table("t", "caption", (("a|b", ("x",)),), (Line("g", "<a>", (plain(1.0),)),))
    assert r"| a\|b x |" in to_markdown(made)
    assert "<th>&lt;a&gt;</th>" in to_html(made)


def test_rows_of_few_data_sets_have_means_over_the_sets_with_all_rows(state: StudyState, tmp_path: Path) -> None:
    text = state.study.path.read_text(encoding="utf-8").replace('name = "b"', 'name = "b"\noutputs = ["softmax"]')
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    fewer = StudyState(read_study(tmp_path / "study.toml"), state.results)
    table = next(table for table in all_tables(fewer) if table.name == "summary")
    assert [head for head, _ in table.heads[3:]] == ["without repeats (1)", "with repeats (1)", "all (2)"]
    assert texts(table, "SASRec", "softmax+C")[3:] == ["*9.00"] * 3 + ["–"] * 6


def test_figures_for_all_that_there_is(state: StudyState) -> None:
    names = [figure.name for figure in all_figures(state)]
    assert names == ["repetition", "sensitivity", "learning", "trade-off", "calibration", "speed"]


def test_everything_is_written(state: StudyState, tmp_path: Path) -> None:
    publish(state, tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    tables = ("datasets", "without-repeats", "with-repeats", "summary", "gains", "margins", "repeats", "paper",
              "choices")  # fmt: skip
    assert {f"tables/{name}.{ending}" for name in tables for ending in ("md", "csv")} <= names
    assert {f"figures/{name}.{ending}" for name in ("sensitivity", "speed") for ending in ("svg", "pdf")} <= names
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "By &lt;hand&gt;" in page
    assert page.count("<svg") == 6
    assert page.count("<table") == len(tables)
    assert "SASRec: softmax is best, NDCG@10 8.00 %." in page
    assert "<script" not in page


def test_what_an_earlier_report_had_is_taken_away(state: StudyState, tmp_path: Path) -> None:
    publish(state, tmp_path)
    text = state.study.path.read_text(encoding="utf-8").replace("[[data]]", "[[data]]\nrepeats = false")
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    (tmp_path / "tables" / "mine.csv").write_text("not the report's")
    publish(StudyState(read_study(tmp_path / "study.toml"), state.results), tmp_path)
    tables = {path.name for path in (tmp_path / "tables").iterdir()}
    assert {"without-repeats.csv", "mine.csv"} <= tables
    assert not {"with-repeats.csv", "repeats.md"} & tables
    assert not list((tmp_path / "figures").glob("trade-off.*"))


def test_repeatnet_stands_apart_only_where_one_encoder_has_it(tmp_path: Path) -> None:
    def shown(study: str) -> list[tuple[str, str, str]]:
        (tmp_path / "study.toml").write_text(study, encoding="utf-8")
        results = Results(tmp_path / "results.jsonl", tmp_path / "lock")
        return [tuple(row) for row in rows_of(StudyState(read_study(tmp_path / "study.toml"), results))]

    study = STUDY.replace("synthetic = {}", "synthetic = {seed = 1}")
    both = study.replace('"softmax+C"]', '"repeatnet"]')
    assert [group for group, _, output in shown(both) if output == "repeatnet"] == ["SASRec", "GRU4Rec"]
    one = study.replace("[encoders.gru4rec]", '[encoders.gru4rec]\nalso = ["repeatnet"]')
    assert [group for group, _, output in shown(one) if output == "repeatnet"] == ["RepeatNet"]


def test_data_that_is_not_prepared_yet_has_no_times(state: StudyState, tmp_path: Path) -> None:
    text = 'time_on = "later"\n' + state.study.path.read_text(encoding="utf-8")
    text += '\n[[data]]\nname = "later"\nsynthetic = {seed = 2}\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    later = StudyState(read_study(tmp_path / "study.toml"), state.results)
    assert "speed" not in {figure.name for figure in all_figures(later)}
    publish(later, tmp_path)


def test_words_stand_on_their_axis() -> None:
    figure = Figure("sensitivity", "words", (1, 1), (2.3, 2.3))
    figure.line(figure.panels[0], "softmax", [("constant", 1.0), ("cosine", 2.0)])  # type: ignore[list-item]
    show_values(figure.panels[0], "schedule", ["constant", "cosine"])
    assert ">cosine<" in figure.svg()


def test_results_alone_are_enough(state: StudyState, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_bytes(state.results.path.read_bytes())
    again = StudyState(state.study, Results(tmp_path / "results.jsonl", tmp_path / "lock"))
    assert all_tables(again) == all_tables(state)
    assert summary_sentences(again) == summary_sentences(state)
    assert cases(again) == {}
    assert data_table(again).lines[0].cells[2].text == "1,234"
    assert json.loads(state.results.path.read_text(encoding="utf-8").splitlines()[0])["name"] == "ml-1m"

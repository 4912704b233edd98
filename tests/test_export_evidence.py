"""The exported graph of a model with evidence says under onnxruntime what recommend says of whole histories."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest

from abaca.evidence.evidence import MOST_FOLLOWERS
from abaca.export import OUTPUTS, export_onnx
from abaca.recommender import Recommender

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow  # an export takes half a minute; tests/evidence/test_graph.py covers what it computes

PAGE = Path(__file__).parents[1] / "docs" / "export.md"
WINDOW = 6
NAMES = ["milk", "bread", "tea", *(f"i{i}" for i in range(3, 330))]
START = 1.6e9


def shop() -> pyarrow.Table:
    """Users who buy the neighbours of what they bought, and some of it again, at odd hours."""
    rng = np.random.default_rng(0)
    users, items, times = [], [], []
    for user in range(150):
        bought = [int(rng.integers(len(NAMES)))]
        for _ in range(29):
            again = rng.random() < 0.4
            step = int(rng.integers(1, 30))
            bought.append(int(rng.choice(bought)) if again else (bought[-1] + step) % len(NAMES))
        users += [f"u{user}"] * len(bought)
        items += [NAMES[item] for item in bought]
        times += (START + np.cumsum(rng.exponential(50_000, len(bought)))).round().tolist()
    return pyarrow.table({"user": users, "item": items, "time": times})


class Case(NamedTuple):
    recommender: Recommender
    session: Any
    facts: dict[str, Any]
    folder: Path


@pytest.fixture(
    scope="module",
    params=[
        ("sasrec", "softmax+CPR:4+Mi", True),
        ("gru4rec", "softmax+CP", False),
        ("gru4rec", "softmax", True),
        ("hstu", "softmax+CP", True),
    ],
    ids=lambda given: f"{given[0]} {given[1]} {'times' if given[2] else 'order'}",
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("export")
    encoder, output, timed = request.param
    log = shop() if timed else shop().drop_columns(["time"])
    options: dict[str, Any] = {"epochs": 1, "dim": 8, "window": WINDOW, "min_item": 1}
    recommender = Recommender(encoder, f"{output}+habits+followers", **options).fit(log)
    assert recommender.saved is not None
    assert recommender.saved.evidence is not None
    path = folder / "shop.onnx"
    export_onnx(recommender.saved, WINDOW, path, len(NAMES))
    facts = json.loads(path.with_suffix(".json").read_text())
    return Case(recommender, onnxruntime.InferenceSession(path), facts, folder)


def draw(seed: int, length: int, items: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, items, length).tolist()  # type: ignore[no-any-return]


BATCHES = [
    [[3]],
    [[3, 5, 3, 3], [1], [29, 28]],
    [draw(0, 60, 12), [4] * 20, [0, 1] * 3, [7], draw(1, 9, 300)],
    [list(range(320)), [2, 9, 2]],
]
"""One item, repeats, more than the window, more items than are described; other sizes than the exporter saw."""


def moments(batch: list[list[int]]) -> tuple[list[list[float]], list[float]]:
    rng = np.random.default_rng(2)
    times = [(START + np.cumsum(rng.integers(0, 90_000, len(history)))).tolist() for history in batch]
    return times, [row[-1] + float(rng.integers(0, 90_000)) for row in times]


def run(case: Case, batch: list[list[int]], times: Any = None, now: Any = None) -> dict[str, np.ndarray]:
    shape = len(batch), max(map(len, batch))
    items, when = np.full(shape, -1), np.full(shape, np.nan)
    for row, history in enumerate(batch):
        items[row, : len(history)] = history
        if times is not None:
            when[row, : len(history)] = times[row]
    inputs = {"histories": items, "exclude": np.full((len(batch), 1), -1), "times": when}
    inputs["now"] = np.full(len(batch), np.nan) if now is None else np.array(now)
    given = {name: inputs[name] for name in case.facts["inputs"]}
    return dict(zip(OUTPUTS, case.session.run(list(OUTPUTS), given), strict=True))


def check(case: Case, batch: list[list[int]], times: Any = None, now: Any = None) -> None:
    """Every item's probability is that of recommend, and the best items come in the same order."""
    found, ids = run(case, batch, times, now), case.facts["ids"]
    raw = [[ids[item] for item in history] for history in batch]
    answers = case.recommender.recommend_many(raw, len(NAMES), times=times, now=now)
    for row, expected in enumerate(answers):
        named = [ids[item] for item in found["items"][row]]
        chances = dict(zip(named, found["probabilities"][row].tolist(), strict=True))
        assert named[:10] == expected.ids[:10]
        assert chances == pytest.approx({item.id: item.probability for item in expected}, rel=1e-3)
        assert found["repeat_probability"][row] == pytest.approx(expected.repeat_probability, rel=1e-3)


@pytest.mark.parametrize("batch", BATCHES, ids=["one", "short", "mixed", "long"])
def test_the_graph_says_what_recommend_says(case: Case, batch: list[list[int]]) -> None:
    check(case, batch)
    if "times" in case.facts["inputs"]:
        times, now = moments(batch)
        check(case, batch, times)
        check(case, batch, times, now)


def test_an_encoder_reads_times_without_evidence_too(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 1, "dim": 8, "blocks": 2, "window": WINDOW, "min_item": 1}
    recommender = Recommender("hstu", "softmax+CP", **options).fit(shop())
    assert recommender.saved is not None
    path = tmp_path / "shop.onnx"
    export_onnx(recommender.saved, WINDOW, path, len(NAMES))
    facts = json.loads(path.with_suffix(".json").read_text())
    case = Case(recommender, onnxruntime.InferenceSession(path), facts, tmp_path)
    times, now = moments(BATCHES[1])
    check(case, BATCHES[1])
    check(case, BATCHES[1], times, now)
    plain, timed = run(case, BATCHES[1]), run(case, BATCHES[1], times, now)
    assert not np.allclose(plain["probabilities"], timed["probabilities"], rtol=1e-4)


def test_histories_with_and_without_times_may_be_mixed(case: Case) -> None:
    if "times" not in case.facts["inputs"]:
        pytest.skip("the log has no times")
    batch = BATCHES[2]
    times, now = moments(batch)
    plain, timed = run(case, batch), run(case, batch, times, now)
    unknown = [[np.nan] * len(row) if place % 2 else row for place, row in enumerate(times)]
    mixed = run(case, batch, unknown, now)
    assert not np.allclose(plain["probabilities"], timed["probabilities"], rtol=1e-3)
    for row in range(len(batch)):
        expected = (plain if row % 2 else timed)["probabilities"][row]
        np.testing.assert_allclose(mixed["probabilities"][row], expected, rtol=1e-5)


def test_the_strongest_followers_are_chosen_alike(case: Case) -> None:
    """Some histories have more followers than get a bonus: equal strengths at the border go by item in both."""
    evidence = case.recommender.saved.evidence  # type: ignore[union-attr]
    assert evidence is not None
    width = np.diff(evidence.transitions.starts)
    busy = [np.argsort(-width)[start : start + 10].tolist() for start in range(0, 100, 10)]
    assert min(width[history].sum() for history in busy) > 2 * MOST_FOLLOWERS
    check(case, busy)


def test_the_json_says_what_the_graph_reads(case: Case) -> None:
    assert [entry.name for entry in case.session.get_inputs()] == list(case.facts["inputs"])
    assert (case.facts["window"], case.facts["longest"]) == (WINDOW, None)
    assert "whole histories" in case.facts["inputs"]["histories"]
    timed = case.recommender.saved.evidence.clock.gap > 0  # type: ignore[union-attr]
    assert ("times" in case.facts["inputs"], "now" in case.facts["inputs"]) == (timed, timed)
    assert case.facts["time_unit"] == case.recommender.time_unit == ("seconds" if timed else None)


def test_the_example_of_the_docs_runs_with_evidence(case: Case) -> None:
    (code,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    without = "import sys\nsys.modules['torch'] = sys.modules['abaca'] = None\n"
    command = [sys.executable, "-c", without + code]
    done = subprocess.run(command, cwd=case.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = case.recommender.recommend(["milk", "bread", "milk"], 5)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:6]] == expected.ids

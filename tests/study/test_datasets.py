"""The table of data sets, from logs and from prepared sequences."""

from pathlib import Path

import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.synthetic import synthetic_log
from abaca.study.datasets import Census, census, dataset_table, source_name
from abaca.study.table import to_csv, to_markdown
from study.samples import HISTORIES, sequences_of

EXPECTED = Census("words", 3, 6, 10, 3, 5, 0.3, 2 / 3)
"""Of x y x z y, p q r, x x: three of ten are repeats, two of three last ones."""


def test_a_data_set_by_hand(tmp_path: Path) -> None:
    found = census(sequences_of(HISTORIES, tmp_path), "words")
    assert found == EXPECTED
    assert found.mean_length == pytest.approx(10 / 3)


@pytest.mark.parametrize("rule", ["copy-after-repeat", "mixed"])
def test_a_log_and_its_sequences_count_alike(rule, tmp_path: Path) -> None:
    with read_log(synthetic_log(rule, users=41, items=30, length=9, seed=2)) as log:
        sequences = prepare(log, tmp_path / "sequences", options=PrepareOptions(min_user=1))
        assert census(log, "x") == census(sequences, "x")


def test_the_papers_counts_stand_beside_a_data_set_that_it_has() -> None:
    plain = dataset_table([EXPECTED])
    assert plain.columns[:3] == ["users", "items", "interactions"]
    assert len(plain.columns) == 8
    beside = dataset_table([EXPECTED, Census("ml-1m", 6040, 3706, 1000209, 96, 2314, 0.0, 0.0)])
    assert [cell.text for cell in beside.lines[1].cells[-3:]] == ["6", "4", "1,000"]
    assert [cell.text for cell in beside.lines[0].cells[-3:]] == ["–", "–", "–"]
    assert "| ml-1m | 6,040 | 3,706 | 1,000,209 | 165.6 | 96 | 2,314 | 0.0 | 0.0 | 6 | 4 | 1,000 |" in to_markdown(
        beside
    )
    assert "words,3,6,10," in to_csv(beside)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/ml-1m/log.parquet", "ml-1m"),
        ("data/gowalla/sequences", "gowalla"),
        ("purchases.csv.gz", "purchases"),
        ("shop/interactions.csv", "shop"),
    ],
)
def test_what_a_data_set_is_called(path: str, name: str) -> None:
    assert source_name(Path(path)) == name

"""`abaca inspect` of several data sets: the table, and the paper's figure of repeats."""

import json
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from abaca.cli import app, main
from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.synthetic import synthetic_log


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    """A log, and another one that is prepared."""
    log = tmp_path / "shop" / "log.parquet"
    log.parent.mkdir()
    pyarrow.parquet.write_table(synthetic_log("mixed", users=30, items=20, length=12, seed=1), log)
    with read_log(synthetic_log("copy-after-repeat", users=25, items=20, length=10, seed=2)) as read:
        prepare(read, tmp_path / "music" / "sequences")
    return log, tmp_path / "music" / "sequences"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["abaca", "inspect", *map(str, arguments)])
    monkeypatch.setattr(app, "registered_commands", [])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_several_data_sets_side_by_side(
    data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figure, table = tmp_path / "out" / "repeats.svg", tmp_path / "counts.csv"
    assert run(monkeypatch, *data, "--figure", figure, "--table", table) == 0
    said = capsys.readouterr().out
    assert "shop" in said
    assert "music" in said
    assert {"shop", "music"} <= set(figure.read_text(encoding="utf-8").replace("<", ">").split(">"))
    rows = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()]
    assert [row[1] for row in rows[1:]] == ["shop", "music"]
    assert [row[2] for row in rows[1:]] == ["30", "25"]
    assert sorted(path.name for path in figure.parent.iterdir()) == ["repeats.svg"]


def test_a_prepared_folder_alone_in_json(
    data: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, data[1], "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["users"], found["interactions"]) == ("music", 25, 250)


@pytest.mark.parametrize("option", ["--figure", "--table"])
def test_an_ending_that_is_not_known_is_refused_before_any_work(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "no-such-log.csv", option, tmp_path / "x.docx") == 2
    assert "the file name must end in one of" in capsys.readouterr().err

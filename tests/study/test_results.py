"""The results of a study: a line is there as a whole, or the user is told."""

from pathlib import Path

import pytest

from abaca.errors import UserError
from abaca.study.results import Results
from faults import largest_file


def test_a_result_on_a_nearly_full_disk_is_whole_or_refused(tmp_path: Path) -> None:
    """The system takes a part of the line first, without an error; the rest must not be lost."""
    path = tmp_path / "results.jsonl"
    results = Results(path, tmp_path / "lock")
    results.append("run", "first", best=0.1)
    before = path.read_bytes()
    with (
        largest_file(len(before) + 40),
        pytest.raises(UserError, match=r"results\.jsonl: a line could not be added \(.*\); free disk space"),
    ):
        results.append("run", "second", best=0.2)
    assert path.read_bytes() == before
    assert results.get("run", "second") is None
    results.append("run", "second", best=0.2)
    assert [entry["id"] for entry in Results(path, tmp_path / "lock").all("run")] == ["first", "second"]


def test_the_half_line_of_a_killed_process_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path, tmp_path / "lock").append("run", "first")
    with path.open("a") as file:
        file.write('{"kind": "run", "id": "ha')
    Results(path, tmp_path / "lock").append("run", "second")
    assert [entry["id"] for entry in Results(path, tmp_path / "lock").all("run")] == ["first", "second"]

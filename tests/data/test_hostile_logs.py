"""Logs that are made to cost memory, or to break a parser: one clear error each."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abaca.data.log import read_log
from abaca.data.reading import lines
from abaca.errors import LogError, SpecError
from abaca.study.toml import read_toml

MEBIBYTE = 1 << 20
MEASURED = """
import resource, sys
from abaca.data.log import read_log
from abaca.errors import LogError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_log(sys.argv[1])
except LogError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def packed(path: Path, *parts: tuple[bytes, int]) -> Path:
    with gzip.open(path, "wb", compresslevel=6) as file:
        for part, times in parts:
            for _ in range(times):
                file.write(part)
    return path


@pytest.mark.slow
def test_a_line_without_end_costs_little_memory(tmp_path: Path) -> None:
    """300 MiB in a third of one: it was all held, and more than once."""
    path = packed(tmp_path / "log.csv.gz", (b"user,item\n", 1), (b"a" * MEBIBYTE, 300))
    assert path.stat().st_size < MEBIBYTE
    done = subprocess.run([sys.executable, "-c", MEASURED, path], capture_output=True, text=True, check=True)
    *said, grown = done.stdout.splitlines()
    assert "log.csv.gz line" in "".join(said)
    assert int(grown) < 200


@pytest.mark.parametrize(("name", "text"), [
    ("log.csv", "user,item\nu,{long}\n"),
    ("log.csv", "{long},item\nu,i\n"),
    ("log.tsv", "user\titem\nu\t{long}\n"),
    ("log.jsonl", '{{"user": 1, "item": "{long}"}}\n'),
])  # fmt: skip
def test_a_line_that_is_too_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text.format(long="x" * 2_200_000))
    with pytest.raises(LogError, match=rf"{name} line [12]: it has 2,000,000 signs and more"):
        read_log(tmp_path / name)


def test_a_row_of_many_lines_is_no_longer_than_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 100)
    (tmp_path / "log.csv").write_text("user,item\nu,i\n" + '"a\nb",' * 50 + "\n")
    with pytest.raises(LogError, match=r"line 3: it has 100 signs and more"):
        list(lines.delimited_rows(tmp_path / "log.csv", ",", 2, [0, 1]))


def test_deep_json_and_toml_are_refused(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "log.jsonl").write_text(f'{{"user": {deep}, "item": {deep}}}\n')
    with pytest.raises(LogError):
        read_log(tmp_path / "log.jsonl")
    (tmp_path / "study.toml").write_text(f"epochs = {deep}\n")
    with pytest.raises(SpecError, match=r"study\.toml is nested too deeply; write it again"):
        read_toml(tmp_path / "study.toml", "write it again")


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
BYTES = st.binary(max_size=200)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(BYTES, ROWS.map(lambda rows: "\n".join(map(",".join, rows)).encode())), skip=st.booleans())
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl", "log.parquet", "log.csv.gz"])
def test_whatever_a_log_holds_it_is_read_or_refused(tmp_path: Path, name: str, content: bytes, skip: bool) -> None:
    """A bounded fuzz: rows, or a LogError that names the file."""
    header = {"log.csv": b"user,item,time\n", "log.jsonl": b'{"user": 1, "item": 2}\n'}.get(name, b"")
    (tmp_path / name).write_bytes(header + content)
    try:
        with read_log(tmp_path / name, on_bad_row="skip" if skip else "error") as log:
            assert len(log) > 0
    except LogError as error:
        said = str(error)
    else:
        return
    assert name in said or "column" in said

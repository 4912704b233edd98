"""Every format gives the same log, ids come back as they went in, and ties keep file order."""

import os
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from abaca.data.log import Log, read_log
from abaca.data.reading.staging import Part, Staging
from abaca.errors import LogError

from .samples import (
    COLUMNS,
    ROWS,
    rows_of,
    table,
    write_csv,
    write_json,
    write_parquet,
    write_recbole,
    zipped,
    zstandard,
)

FORMATS = {
    "csv": lambda folder: write_csv(folder / "log.csv"),
    "semicolons": lambda folder: write_csv(folder / "log.csv", sep=";"),
    "tsv": lambda folder: write_csv(folder / "log.tsv", sep="\t"),
    "parquet": lambda folder: write_parquet(folder / "log.parquet"),
    "json lines": lambda folder: write_json(folder / "log.jsonl"),
    "recbole": lambda folder: write_recbole(folder / "log.inter"),
    "csv.gz": lambda folder: zipped(write_csv(folder / "log.csv")),
    "csv.zst": lambda folder: zstandard(write_csv(folder / "log.csv")),
    "jsonl.gz": lambda folder: zipped(write_json(folder / "log.jsonl")),
    "jsonl.zst": lambda folder: zstandard(write_json(folder / "log.jsonl")),
    "wildcards in the name": lambda folder: write_csv(folder / "log[1]*.csv"),
}
TABLES = {
    "arrow": lambda: table(),
    "arrow stream": lambda: table().to_reader(),
    "pandas": lambda: pandas.DataFrame(ROWS, columns=list(COLUMNS)),
    "polars": lambda: polars.DataFrame(ROWS, schema=list(COLUMNS), orient="row"),
    "columns": lambda: dict(zip(COLUMNS, map(list, zip(*ROWS, strict=True)), strict=True)),
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_file_format_reads_the_same(form: str, tmp_path: Path) -> None:
    assert rows_of(FORMATS[form](tmp_path)) == ROWS


@pytest.mark.parametrize("form", FORMATS)
def test_a_sound_file_is_read_by_duckdb_alone(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Staging, "_stage_by_line", None)
    assert rows_of(FORMATS[form](tmp_path)) == ROWS


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "parquet"])
def test_python_reads_text_as_duckdb_does(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Staging._stage

    def refuses_files(self: Staging, part: Part) -> None:
        if "read_csv" in part.sql:
            raise duckdb.InvalidInputException("not today")
        stage(self, part)

    monkeypatch.setattr(Staging, "_stage", refuses_files)
    assert rows_of(FORMATS[form](tmp_path)) == ROWS


@pytest.mark.parametrize("form", TABLES)
def test_every_table_reads_the_same(form: str) -> None:
    assert rows_of(TABLES[form]()) == ROWS


def test_a_folder_is_read_by_path_then_row(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    write_json(tmp_path / "b" / "part.jsonl", ROWS[5:])
    write_csv(tmp_path / "a.csv", ROWS[:3])
    write_csv(tmp_path / "a2.csv.gz".removesuffix(".gz"), ROWS[3:5])
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.md").write_text("not a log")
    with read_log(tmp_path) as log:
        assert log.names == ("a.csv", "a2.csv", "b/part.jsonl")
    assert rows_of(tmp_path) == ROWS


def test_a_large_file_keeps_its_order(tmp_path: Path) -> None:
    rows = [(f"u{n % 7}", f'it"em\n{n}' if n % 11 == 0 else f"item {n}", 0) for n in range(150_000)]
    assert rows_of(write_csv(tmp_path / "log.csv", rows)) == rows
    assert rows_of(write_parquet(tmp_path / "log.parquet", rows)) == rows


def test_ids_of_text_files_are_text_and_integers_stay_integers(tmp_path: Path) -> None:
    assert rows_of(write_csv(tmp_path / "log.csv", [("007", "1.0", 3), ("true", "2020-01-01", 4)])) == [
        ("007", "1.0", 3.0),
        ("true", "2020-01-01", 4.0),
    ]
    numbers = [(7, -1, 3.5), (2**62, 12, 4.0)]
    for source in (
        table(numbers),
        write_json(tmp_path / "log.jsonl", numbers),
        write_parquet(tmp_path / "l.parquet", numbers),
    ):
        assert rows_of(source) == numbers
    assert rows_of(write_json(tmp_path / "text.jsonl", [("2020-01-01", "007", 1)])) == [("2020-01-01", "007", 1.0)]


def test_categories_are_text() -> None:
    frame = pandas.DataFrame(ROWS, columns=list(COLUMNS)).astype({"user": "category", "item": "category"})
    assert rows_of(frame) == ROWS


@pytest.mark.parametrize(
    ("spelling", "seconds"),
    [
        ("2020-01-02", 1577923200.0),
        ("2020-01-01T10:30:00", 1577874600.0),
        ("2020-01-01 10:30:00.5", 1577874600.5),
        ("2020-01-01T10:30:00Z", 1577874600.0),
        ("2020-01-01T12:30:00+02:00", 1577874600.0),
        ("1577874600", 1577874600.0),
        ("1.5e3", 1500.0),
        ("-3", -3.0),
    ],
)
def test_times_are_numbers_or_iso_dates(spelling: str, seconds: float, tmp_path: Path) -> None:
    assert rows_of(write_csv(tmp_path / "log.csv", [("a", "b", spelling)])) == [("a", "b", seconds)]
    assert rows_of(table([("a", "b", spelling)])) == [("a", "b", seconds)]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_are_seconds(unit: str, zone: str | None, tmp_path: Path) -> None:
    moments = pyarrow.array([1577874600], pyarrow.int64()).cast(pyarrow.timestamp("s", zone))
    log = pyarrow.table({"user": [1], "item": [2], "ts": moments.cast(pyarrow.timestamp(unit, zone))})
    pyarrow.parquet.write_table(log, tmp_path / "log.parquet")
    assert rows_of(log) == rows_of(tmp_path / "log.parquet") == [(1, 2, 1577874600.0)]


@pytest.mark.parametrize("spelling", ["30/01/21", "30-01-21", "1/30/10 8:26", "30/01/2021"])
def test_a_date_whose_year_is_not_first_is_refused(spelling: str, tmp_path: Path) -> None:
    rows = [("a", "b", spelling)]
    with pytest.raises(LogError, match=r"line 2: time '.*' is not a number or an ISO date"):
        read_log(write_csv(tmp_path / "log.csv", rows))
    with pytest.raises(LogError, match=r"line 3: time '.*' is not an ISO date, as the other times are"):
        read_log(write_csv(tmp_path / "log.csv", [("a", "b", "2021-01-30"), *rows]))


def test_without_times_file_order_is_the_order(tmp_path: Path) -> None:
    with read_log(write_csv(tmp_path / "log.csv", [("a", "y"), ("a", "x")], ("user", "item"))) as log:
        assert not log.has_time
        assert log.database.rows('SELECT item, "time" FROM log') == [("y", None), ("x", None)]


def test_columns_are_recognised_or_given(tmp_path: Path) -> None:
    names = ("Product", "Customer_ID", "product_id", "InvoiceDate", "event_type")
    path = write_csv(tmp_path / "log.csv", [("Oat milk", "c1", "p1", "2020-01-02", "buy")], names)
    with read_log(path) as log:
        assert tuple(log.columns) == ("Customer_ID", "product_id", "InvoiceDate", "event_type")
    assert rows_of(path, item="Product") == [("c1", "Oat milk", 1577923200.0)]


def test_of_several_columns_the_first_in_the_list_of_known_names_is_taken(tmp_path: Path) -> None:
    """An id before a name, whatever their order in the file; what was passed over can be seen."""
    names = ("session", "user", "user_id", "sku", "item", "date", "timestamp")
    path = write_csv(tmp_path / "log.csv", [("s", "Ann", "a1", "k", "i", "2020-01-02", "7")], names)
    with read_log(path) as log:
        assert tuple(log.columns) == ("user_id", "item", "timestamp", None)
        assert log.passed_over == {"user": ["user", "session"], "item": ["sku"], "time": ["date"]}
    with read_log(path, user="user", item="sku") as log:
        assert tuple(log.columns)[:2] == ("user", "sku")
        assert log.passed_over == {"time": ["date"]}
    with read_log(path, like=log.columns) as again:
        assert again.columns == log.columns
    other = write_csv(tmp_path / "other.csv", [("a", "b")], ("customer", "sku"))
    with read_log(other, like=log.columns) as again:
        assert tuple(again.columns) == ("customer", "sku", None, None)


def test_a_column_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    for names in (("user", "item", "user"), ("user", "item", "item")):
        path = write_csv(tmp_path / "log.csv", [("a", "b", "c")], names)
        with pytest.raises(LogError, match=rf"log\.csv: 2 columns are named '{names[2]}'; rename them"):
            read_log(path)
    twice = pyarrow.table([["a"], ["b"], ["c"]], names=["user", "item", "item"])
    with pytest.raises(LogError, match="the table: 2 columns are named 'item'"):
        read_log(twice)
    path = write_csv(tmp_path / "log.csv", [("a", "b", "c", "d")], ("user", "item", "note", "note"))
    assert rows_of(path) == [("a", "b", None)]
    path = write_csv(tmp_path / "log.csv", [("a", "b", "c")], ("user_id", "item", "userId"))
    with pytest.raises(LogError, match="'user_id', 'userId' look alike for the user; pass `user=COLUMN`"):
        read_log(path)
    assert rows_of(path, user="userId") == [("c", "b", None)]


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(LogError, match=r"log\.csv is a pipe or a device, which can be read only once"):
        read_log(tmp_path / "log.csv")


def test_names_that_differ_only_in_case_are_different_columns(tmp_path: Path) -> None:
    found = pyarrow.table({"Item": ["x"], "user": ["a"], "item": ["y"]})
    pyarrow.parquet.write_table(found, tmp_path / "log.parquet")
    for source in (found, tmp_path / "log.parquet"):
        assert rows_of(source, item="item") == [("a", "y", None)]
        assert rows_of(source, item="Item") == [("a", "x", None)]


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "log.csv", [("1", "2", "3")], ("a", "sku", "c"))
    with pytest.raises(
        LogError, match=r"log\.csv: no column looks like the user; .* 'a', 'sku', 'c'; pass `user=COLUMN`"
    ):
        read_log(path)
    with pytest.raises(
        LogError,
        match=r"log\.csv: there is no column 'when'; it has 'a', 'sku', 'c'; pass `time=COLUMN` with one of them",
    ):
        read_log(path, user="a", time="when")
    with pytest.raises(LogError, match="both the user and the item"):
        read_log(path, user="sku", item="sku")
    with pytest.raises(LogError, match="column 'sku' cannot be both the item and the time"):
        read_log(path, user="a", item="sku", time="sku")
    with pytest.raises(LogError, match="the table has no columns"):
        read_log(pyarrow.table({}))


def test_a_column_that_was_asked_for_plays_no_other_role(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "log.csv", [("a", "b", "7")], ("user", "item", "time"))
    assert rows_of(path, user="time") == [("7", "b", None)]


def test_a_byte_order_mark_and_mixed_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b'\xef\xbb\xbfuser,item,time\r\n"a, b","x ""q""",1\r\n\nc,"new\nline",2\nd,\xf0\x9f\x98\x80,3')
    assert rows_of(path) == [("a, b", 'x "q"', 1.0), ("c", "new\nline", 2.0), ("d", "😀", 3.0)]
    path.write_bytes(b"\n\nuser,item,time\na,b,1\n")
    assert rows_of(path) == [("a", "b", 1.0)]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"user,item,time\n", b"user,item,time"])
def test_an_empty_log_is_said_to_be_empty(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(LogError, match=r"log\.csv: the log is empty"):
        read_log(tmp_path / "log.csv")
    with pytest.raises(LogError, match="the log is empty"):
        read_log(table([("a", "b", 1)]).slice(0, 0))


def test_sources_that_are_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        read_log(tmp_path / "nothing.csv")
    with pytest.raises(LogError, match=r"holds no log file; known endings are \.csv"):
        read_log(tmp_path)
    (tmp_path / "log.xlsx").write_bytes(b"PK")
    with pytest.raises(LogError, match=r"log\.xlsx: the format cannot be recognised"):
        read_log(tmp_path / "log.xlsx")
    (tmp_path / "log.parquet").write_bytes(b"PAR1 and then nonsense PAR1")
    with pytest.raises(LogError, match=r"log\.parquet: cannot be read as parquet"):
        read_log(tmp_path / "log.parquet")
    (tmp_path / "log.csv.gz").write_bytes(zipped(write_csv(tmp_path / "a.csv", ROWS * 99)).read_bytes()[:60])
    with pytest.raises(LogError, match=r"log\.csv\.gz: cannot be read"):
        read_log(tmp_path / "log.csv.gz")
    (tmp_path / "log.json").write_text('[{"user": 1}]')
    with pytest.raises(LogError, match="one JSON list"):
        read_log(tmp_path / "log.json")
    with pytest.raises(LogError, match="not a LazyFrame; collect"):
        read_log(polars.LazyFrame({"user": [1], "item": [2]}))
    with pytest.raises(LogError, match="the user column is DOUBLE; ids are text or whole numbers"):
        read_log({"user": [1.5], "item": [2]})
    with pytest.raises(LogError, match=r"item column is DOUBLE; .* pandas use floats: `\.astype\('Int64'\)`"):
        read_log(pandas.DataFrame({"user": [1, 2], "item": [7, None]}))
    with pytest.raises(LogError, match=r"the item column is VARCHAR\[\]; .* so write one row for each"):
        read_log({"user": [1], "item": [["milk", "tea"]]})
    with pytest.raises(LogError, match=r"the time column is DOUBLE\[\]"):
        read_log({"user": [1], "item": [2], "time": [[1.5]]})
    with pytest.raises(LogError, match="the time column is BOOLEAN"):
        read_log({"user": [1], "item": [2], "time": [True]})


def test_files_of_one_log_must_agree(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [("1", "2", 3)])
    write_parquet(tmp_path / "b.parquet", [(1, "2", 3)])
    with pytest.raises(LogError, match=r"b\.parquet: the user ids are integer, but text in the files before"):
        read_log(tmp_path)
    write_csv(tmp_path / "b.csv", [("1", "2")], ("user", "item"))
    with pytest.raises(LogError, match=r"b\.csv: some files of the log have a time column"):
        read_log(tmp_path)


@pytest.mark.parametrize("empty", ["a.csv", "c.csv"])
@pytest.mark.parametrize("day", ["2020-01-01", "1577836800"])
def test_a_file_without_rows_says_nothing_of_times(empty: str, day: str, tmp_path: Path) -> None:
    write_csv(tmp_path / empty, [])
    write_csv(tmp_path / "b.csv", [("a", "b", day)])
    assert rows_of(tmp_path) == [("a", "b", 1577836800.0)]


@pytest.mark.parametrize("name", ["b.csv.bz2", "b.parquet.gz", "b.jsonl.zip"])
def test_a_file_that_cannot_be_unpacked_is_not_passed_over(name: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv")
    (tmp_path / "notes.md").write_text("what this is")
    assert len(rows_of(tmp_path)) == len(ROWS)
    (tmp_path / name).write_bytes(b"packed")
    with pytest.raises(LogError, match=f"{name}: cannot be read packed like this"):
        read_log(tmp_path)


def test_the_temporary_database_goes_when_the_log_does() -> None:
    log = read_log(table())
    folder = log.database.folder
    assert folder.is_dir()
    assert read_log(log) is log
    log.close()
    assert not folder.exists()
    other: Log | None = read_log(table())
    assert other is not None
    folder = other.database.folder
    other = None
    assert not folder.exists()

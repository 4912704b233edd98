"""A bad row is an error that names file and line, or is counted."""

import gzip
import re
from pathlib import Path

import pytest

from abaca.data.log import read_log
from abaca.errors import LogError

from .samples import table

GOOD = b'user,item,time\nann,"two\nlines",1\n\n'
"""Two interactions' worth of physical lines: what follows is on line 5."""

BAD = {
    "missing user": (b",tea,2\n", "the user is missing"),
    "missing item": (b'bob,"",2\n', "the item is missing"),
    "unreadable time": (b"bob,tea,n/a\n", "time 'n/a' is not a number, as the other times are"),
    "ragged line": (b"bob,tea\n", "2 fields where the first line names 3"),
    "wrong encoding": (b"bob,th\xe9,2\n", "the text is not UTF-8"),
    "broken quotes": (b'bob,"tea"s,2\n', "a quote is opened and not closed, or text follows a closing quote"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_of_a_csv_is_named_with_its_line(kind: str, tmp_path: Path) -> None:
    line, words = BAD[kind]
    path = tmp_path / "purchases.csv"
    path.write_bytes(GOOD + line + b"cid,jam,3\n")
    with pytest.raises(LogError) as error:
        read_log(path)
    assert str(error.value) == f"purchases.csv line 5: {words}; fix the line, or pass `on_bad_row='skip'`"


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_can_be_skipped_and_is_counted(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "purchases.csv"
    path.write_bytes(GOOD + BAD[kind][0] + b"cid,jam,3\n")
    with read_log(path, on_bad_row="skip") as log:
        assert log.bad_rows == {kind: 1}
        assert log.database.rows("SELECT item FROM log") == [("two\nlines",), ("jam",)]


def test_all_kinds_together_are_counted_each(tmp_path: Path) -> None:
    path = tmp_path / "purchases.csv"
    path.write_bytes(GOOD + b"".join(line * 2 for line, _ in BAD.values()) + b"a,b,c,d\ncid,jam,3\n")
    with read_log(path, on_bad_row="skip") as log:
        assert log.bad_rows == dict.fromkeys(BAD, 2) | {"ragged line": 3}
        assert len(log) == 2


def test_a_quote_that_never_closes_costs_one_line(tmp_path: Path) -> None:
    path = tmp_path / "purchases.csv"
    path.write_bytes(GOOD + b'bob,"tea,2\ncid,jam,3\ndan,"a b",4\n')
    with pytest.raises(LogError, match=r"purchases\.csv line 5: a quote"):
        read_log(path)
    with read_log(path, on_bad_row="skip") as log:
        assert log.bad_rows == {"broken quotes": 1}
        assert log.database.rows("SELECT item FROM log") == [("two\nlines",), ("jam",), ("a b",)]


def test_too_many_fields_and_a_bad_last_line(tmp_path: Path) -> None:
    path = tmp_path / "purchases.tsv"
    path.write_bytes(b"user\titem\nann\ttea\nbob\ttea\tjam")
    with pytest.raises(LogError, match=r"purchases\.tsv line 3: 3 fields where the first line names 2"):
        read_log(path)


def test_numbers_and_dates_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item,time\na,b,2020-01-01\na,c,12\n")
    with pytest.raises(LogError, match=r"log\.csv line 3: time '12' is not an ISO date, as the other times are"):
        read_log(path)


@pytest.mark.parametrize("value", ["nan", "inf", "infinity", "epoch", "", "yesterday"])
def test_times_that_are_no_times(value: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"user,item,time\na,b,1\na,c,{value}\n")
    with pytest.raises(LogError, match=r"log\.csv line 3: (time|the time is missing)"):
        read_log(path)


def test_bad_lines_of_json(tmp_path: Path) -> None:
    lines = [
        b'{"user": 1, "item": "a", "time": 3}',
        b"",
        b"not json",
        b'{"user": "x", "item": "b", "time": 1}',
        b'{"user": 2, "time": 1}',
        b'{"user": 2, "item": "c", "time": "soon"}',
        b"[1, 2]",
        b'{"user": 2, "item": "d\xe9", "time": 1}',
        b'{"user": 3, "item": "d", "time": 1}',
    ]
    words = {2: "not a JSON object", 3: 'user "x" is not a whole number', 4: "the item is missing", 5: "time 'soon'"}
    words |= {6: "not a JSON object", 7: "the text is not UTF-8"}
    path = tmp_path / "log.jsonl"
    for place, wanted in words.items():
        path.write_bytes(b"\n".join([lines[0], b"", lines[place], lines[8]]))
        with pytest.raises(LogError, match=rf"log\.jsonl line 3: {wanted}"):
            read_log(path)
    path.write_bytes(b"\n".join(lines))
    with read_log(path, on_bad_row="skip") as log:
        kinds = {
            "not a JSON object": 2,
            "missing user": 1,
            "missing item": 1,
            "unreadable time": 1,
            "wrong encoding": 1,
        }
        assert log.bad_rows == kinds
        assert log.database.rows('SELECT "user", item FROM log') == [(1, "a"), (3, "d")]


def test_bad_rows_of_a_table_and_of_the_second_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="the table row 2: the item is missing; fix the row"):
        read_log(table([("a", "b", 1), ("a", None, 2)]))
    (tmp_path / "a.csv").write_text("user,item\na,b\n")
    (tmp_path / "b.csv").write_text("user,item\na,b\n,c\n")
    with pytest.raises(LogError, match=r"b\.csv line 3: the user is missing"):
        read_log(tmp_path)


def test_a_log_of_bad_rows_only_is_empty(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item\n,b\n,c\n")
    with pytest.raises(LogError, match="all 2 rows were bad and skipped"):
        read_log(tmp_path / "log.csv", on_bad_row="skip")


def test_the_first_row_is_not_compared_with_rows_before_it(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,time\na,b,soon\na,c,2020-01-01\n")
    with pytest.raises(LogError, match=r"line 2: time 'soon' is not an ISO date, as the other times are; fix the line"):
        read_log(tmp_path / "log.csv")
    (tmp_path / "log.jsonl").write_text('{"user": "a", "item": true}\n{"user": "a", "item": 7}\n')
    with pytest.raises(LogError, match=r"line 1: item true is not a whole number of 64 bits, as the other ids are"):
        read_log(tmp_path / "log.jsonl")


def test_a_file_that_is_not_what_its_ending_says_is_named(tmp_path: Path) -> None:
    good = b"user,item\na,b\n"
    contents = {
        "log.csv": (gzip.compress(good), "this is gzip, not .csv; name it with .gz at the end"),
        "log.tsv": (b"PAR1abc", "this is Parquet, not .tsv; name it with .parquet at the end"),
        "log.txt": (b"PK\x03\x04abc", "this is a ZIP archive or a spreadsheet, not .txt; unpack it, or save it as CSV"),
        "log.inter": (good.decode().encode("utf-16-le"), "line 1: there are zero bytes in it"),
        "log.jsonl": (good, "its first lines are no JSON objects; write JSON lines"),
    }
    for name, (content, said) in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LogError, match=re.escape(name) + ":? " + re.escape(said)):
            read_log(tmp_path / name)


def test_a_stray_file_in_a_folder_is_named_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item\na,b\n")
    (tmp_path / "readme.txt").write_text("This is my log.\n")
    with pytest.raises(LogError, match=r"readme\.txt: no column looks like the user; .*; or move readme\.txt out of"):
        read_log(tmp_path)


def test_another_encoding_has_a_cure(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes("user,item\na,b\n".encode("utf-16"))
    with pytest.raises(LogError, match=r"log\.csv: this is UTF-16 text, not \.csv; save it as UTF-8"):
        read_log(tmp_path / "log.csv")

"""The catalogue and the item table."""

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abaca.data.catalogue import Catalogue, check_id
from abaca.errors import LogError, QueryError

from .samples import prepared, write_csv, write_json


def test_indices_and_names() -> None:
    catalogue = Catalogue(["b", "a", "c"], 2, {"price": [1.5, None, 2], "Title": ["Bee", None, " "]})
    assert [catalogue.index(id) for id in ("a", "b", "c", "d")] == [1, 0, 2, None]
    assert [catalogue.name(item) for item in range(3)] == ["Bee", "a", "c"]
    assert (len(catalogue), catalogue.size) == (3, 2)
    assert catalogue.known() == Catalogue(["b", "a"], 2, {"price": [1.5, None], "Title": ["Bee", None]})


def test_an_id_is_found_as_given_before_its_other_spelling() -> None:
    mixed: Any = [7, "7", "12", 13]
    assert [Catalogue(mixed).index(id) for id in (7, "7", 12, "13")] == [0, 1, 2, 3]


@pytest.mark.parametrize("id", ["007", "+7", " 7", "7 ", "-0", "7.0", "٧", "7_0", "", "9" * 5000, 2**70])
def test_only_the_usual_spelling_of_an_integer_is_another_spelling(id: str | int) -> None:
    assert Catalogue([7, 0, 70]).index(id) is None
    assert Catalogue(["7", "0", "70"]).index(id) is None
    assert Catalogue(["7"]).index(10**5000) is None


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, unique=True), st.integers(0, 1000))
def test_both_spellings_of_an_integer_find_one_item(ids: list[int], place: int) -> None:
    item = place % len(ids)
    for catalogue in (Catalogue(ids), Catalogue([str(id) for id in ids])):
        assert catalogue.index(ids[item]) == catalogue.index(str(ids[item])) == item


@given(st.text(max_size=4) | st.from_regex(r"[+-]?0?[0-9]{1,3}", fullmatch=True))
def test_text_finds_an_integer_only_where_it_is_that_integers_text(text: str) -> None:
    numbers = range(-1000, 1001)
    found = Catalogue(list(numbers)).index(text)
    assert found == next((item for item, number in enumerate(numbers) if str(number) == text), None)


@pytest.mark.parametrize("raw", [None, math.nan, 7.0, True, b"7", [7], numpy.float32(7), numpy.True_, pandas.NA])
def test_what_is_no_id_is_refused(raw: Any) -> None:
    with pytest.raises(QueryError, match="an id is text or a whole number, got"):
        check_id(raw)


@pytest.mark.parametrize("raw", [7, numpy.int8(7), numpy.uint64(7), torch.tensor(7), "7", numpy.str_("7")])
def test_an_id_is_pythons_own(raw: Any) -> None:
    wanted: int | str = "7" if isinstance(raw, str) else 7
    assert (check_id(raw), type(check_id(raw))) == (wanted, type(wanted))


def test_integers_and_text_are_kept_apart() -> None:
    assert Catalogue([7, 12]).name(1) == "12"
    for ids in ([7, 2**62], ["7", '😀 , "\n']):
        catalogue = Catalogue(ids, 1, {"title": ["a", None]})  # type: ignore[arg-type]
        assert Catalogue.from_json(json.loads(json.dumps(catalogue.to_json()))) == catalogue


def test_what_json_cannot_say_is_made_plain() -> None:
    values = [math.nan, datetime.date(2020, 1, 2), b"\x01", ["a", math.inf], {"k": 1}]
    plain = Catalogue(list("abcde"), 5, {"x": values}).to_json()["columns"]["x"]
    assert plain == [None, "2020-01-02", "01", ["a", None], {"k": 1}]


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="size 2 of a catalogue with 1 ids"):
        Catalogue(["a"], 2)
    with pytest.raises(ValueError, match="column 'title' has 0 values for 1 ids"):
        Catalogue(["a"], 1, {"title": []})


def test_an_item_table_is_joined(tmp_path: Path) -> None:
    rows = [("tea", "Green tea, 20 bags", 3), ("milk", "Milk", 1), ("milk", "again", 2), ("gin", "Gin", 9)]
    path = write_csv(tmp_path / "items.csv", rows, ("item", "title", "id"))
    sequences = prepared(tmp_path / "s", items=path)
    catalogue, dropped = sequences.catalogue, sequences.manifest["counts"]["dropped"]
    assert catalogue.ids == ["tea", "jam", "milk", "bread"]
    assert dropped == {"rows of the item table after the first of their id": 1}
    assert catalogue.columns == {
        "title": ["Green tea, 20 bags", None, "Milk", None],
        "table_id": ["3", None, "1", None],
    }
    assert [catalogue.name(item) for item in range(4)] == ["Green tea, 20 bags", "jam", "Milk", "bread"]


def test_ids_of_the_two_tables_are_compared_as_text(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"product_id": [7, 8], "name": ["seven", "eight"]})
    log = write_csv(tmp_path / "log.csv", [("a", "7", 1), ("a", "008", 2)])
    catalogue = prepared(tmp_path / "s", log, items=frame).catalogue
    assert (catalogue.ids, catalogue.columns) == (["008", "7"], {"name": [None, "seven"]})
    lines = write_json(tmp_path / "items.jsonl", [("7", "x", "seven")])
    lines.write_text(lines.read_text().replace('"user"', '"id"').replace('"item"', '"x"').replace('"time"', '"title"'))
    catalogue = prepared(tmp_path / "t", [("a", 7, 1)], items=lines).catalogue
    assert (catalogue.ids, catalogue.name(0)) == ([7], "seven")


def test_item_tables_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="none of its ids in column 'item' is an item of the log"):
        prepared(tmp_path / "s", items=write_csv(tmp_path / "items.csv", [("x", "y")], ("item", "title")))
    with pytest.raises(LogError, match="no column looks like the item id, there are a, b; name it 'item'"):
        prepared(tmp_path / "s", items=write_csv(tmp_path / "items.csv", [("x", "y")], ("a", "b")))
    (tmp_path / "items.csv").write_text("item,title\ntea,Tea\nmilk\n")
    with pytest.raises(LogError, match=r"items\.csv line 3: 1 fields where the first line names 2"):
        prepared(tmp_path / "s", items=tmp_path / "items.csv")
    (tmp_path / "items.jsonl").write_text('{"item": "tea", "title": "Tea"}\n\n{"item": "milk", "title": \n')
    with pytest.raises(LogError, match=r"items\.jsonl line 3: not a JSON object"):
        prepared(tmp_path / "s", items=tmp_path / "items.jsonl")
    (tmp_path / "items.csv").write_text("item,title,title\ntea,Tea,Thee\n")
    with pytest.raises(LogError, match=r"items\.csv: 2 columns are named 'title'"):
        prepared(tmp_path / "s", items=tmp_path / "items.csv")
    (tmp_path / "items.csv").write_text("")
    with pytest.raises(LogError, match=r"items\.csv: is empty; write the names of its columns"):
        prepared(tmp_path / "s", items=tmp_path / "items.csv")
    with pytest.raises(LogError, match="an item table is a file or a table, not a int"):
        prepared(tmp_path / "s", items=3)

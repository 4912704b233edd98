"""Items are found by id or title."""

from abaca.data.catalogue import Catalogue
from abaca.serve.item_search import ItemSearch

TITLES = ["Whole milk", "Bread", "Almond milk", "Milk chocolate", "Buttermilk", "Straße\nsnack", "", "7"]
NUMBERS = Catalogue([70, 7, 3, 4, 5, 6, 11, 12], None, {"title": TITLES})
WORDS = Catalogue(["b", "a", "7", "cold"], 3)


def titles(query: str, n: int = 10) -> list[str]:
    return [NUMBERS.name(item) for item in ItemSearch(NUMBERS).find(query, n)]


def test_titles_that_begin_so_come_first_then_words_then_the_rest_each_by_popularity() -> None:
    assert titles("milk") == ["Milk chocolate", "Whole milk", "Almond milk", "Buttermilk"]
    assert titles("MILK", 2) == ["Milk chocolate", "Whole milk"]


def test_every_word_must_occur() -> None:
    assert titles("milk al") == ["Almond milk"]
    assert titles("milk zebra") == []


def test_an_id_is_found_first() -> None:
    assert titles("7")[:2] == ["Bread", "7"]
    assert ItemSearch(NUMBERS).find("70", 1) == [0]
    assert titles("11") == ["11"]
    assert ItemSearch(WORDS).find("7", 5) == [2]
    assert ItemSearch(WORDS).find("cold", 5) == []


def test_case_and_white_space_do_not_matter() -> None:
    assert titles("  STRASSE  snack ") == ["Straße\nsnack"]


def test_without_words_the_most_popular_are_shown() -> None:
    assert ItemSearch(NUMBERS).find(" ", 3) == [0, 1, 2]
    assert ItemSearch(WORDS).find("", 10) == [0, 1, 2]


def test_digits_of_any_length_are_searched() -> None:
    assert ItemSearch(NUMBERS).find("9" * 5000, 3) == []

"""The recipes: they cover the paper's data sets, say what a person must know, and their layouts exist."""

from urllib.parse import urlsplit

import pytest

from abaca.data.public.layouts import LINES, PYTHON, TABLES
from abaca.data.public.sources import Origin, Recipe, find_recipe, recipes
from abaca.errors import SpecError
from abaca.study.paper import PaperDataset, paper_datasets

RECIPES = recipes().values()


@pytest.mark.parametrize("dataset", paper_datasets(), ids=lambda dataset: dataset.name)
def test_the_counts_are_those_of_the_papers_first_table(dataset: PaperDataset) -> None:
    """Which rounds them to thousands."""
    recipe = recipes()[dataset.name]
    counts = {name: round(count / 1000) for name, count in recipe.counts.items()}
    assert counts == {"users": dataset.users, "items": dataset.items, "interactions": dataset.interactions}
    assert recipe.repeats == dataset.duplicates
    assert recipe.recbole is not None


def test_the_papers_come_first_and_in_its_order() -> None:
    assert list(recipes())[:12] == [dataset.name for dataset in paper_datasets()]


def test_the_papers_filters() -> None:
    assert {recipe.min_user for recipe in RECIPES} == {5}
    rare = {recipe.name: recipe.min_item for recipe in RECIPES if recipe.min_item > 1 and recipe.recbole}
    twenty = dict.fromkeys(["amazon-books", "gowalla", "tmall-buy", "algebra"], 20)
    assert rare == {"twitch-100k": 5, "yelp-2018": 5, **twenty}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_says_what_a_person_must_know(recipe: Recipe) -> None:
    assert all((recipe.title, recipe.kind, recipe.licence, recipe.cite))
    for origin in filter(None, (recipe.publisher, recipe.recbole)):
        for address in filter(None, (recipe.page, origin.address)):
            assert urlsplit(address).scheme == "https"
            assert urlsplit(address).hostname
        assert set(origin.layouts.values()) <= {*LINES, *TABLES, PYTHON}
        assert origin.log or not origin.file.endswith((".zip", ".tar"))


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean ml-10m"):
        find_recipe("ml10m")
    with pytest.raises(SpecError, match="there are amazon-beauty, "):
        find_recipe("zzz")


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(SpecError, match=r"can be had from publisher$"):
        find_recipe("bridge-to-algebra").origin("recbole")


def test_a_recipe_has_an_address_or_says_how_a_person_gets_the_file() -> None:
    with pytest.raises(ValueError, match="expected one"):
        Origin("amazon")
    with pytest.raises(ValueError, match="no file name"):
        Origin("amazon", address="https://host.example/")

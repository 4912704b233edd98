import pytest

from abaca.study.groceries import purchases, spell, synthetic

pandas = pytest.importorskip("pandas")

PRODUCTS = {
    "product_id": [1, 2, 3, 4, 5],
    "department": ["GROCERY", "MEAT", "GROCERY", "FUEL", "GROCERY"],
    "product_category": ["ICE CREAM", "BACON", "CHEESE", "FUEL", None],
    "product_type": ["PREMIUM", "PREMIUM", "SHREDDED CHEESE", "GASOLINE-REG UNLEADED", None],
}
LINES = [  # household, basket, product, time
    (7, 1, 1, "2017-08-01"),
    (7, 2, 2, "2017-10-01"),
    (7, 2, 3, "2017-10-01"),
    (7, 2, 3, "2017-10-01"),
    (8, 3, 3, "2017-11-01"),
    (8, 3, 4, "2017-11-01"),
    (8, 3, 5, "2017-11-01"),
]


def test_a_log_of_types_from_basket_lines() -> None:
    lines = pandas.DataFrame(LINES, columns=["household_id", "basket_id", "product_id", "transaction_timestamp"])
    lines["transaction_timestamp"] = pandas.to_datetime(lines.transaction_timestamp)
    log = purchases(lines, pandas.DataFrame(PRODUCTS), "2017-09-01")
    found = sorted(zip(log.user, log.item, log.time.dt.strftime("%Y-%m-%d"), strict=True))
    assert found == [
        (7, "Premium (bacon)", "2017-10-01"),
        (7, "Shredded cheese", "2017-10-01"),
        (8, "Shredded cheese", "2017-11-01"),
    ]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("SFT DRNK 2 LITER BTL", "Soft drink 2 liter bottle"),
        ("FRZN  PIZZA -", "Frozen pizza"),
        ("EGGS - LARGE", "Eggs - large"),
    ],
)
def test_names_are_spelled_out(raw: str, said: str) -> None:
    assert spell(raw) == said


def test_the_synthetic_shop_says_what_it_is() -> None:
    source = synthetic(users=10, items=20, length=8)
    assert "drawn at random" in source.paragraphs[0]
    assert set(source.log.column_names) == {"user", "item", "time"}

"""Items that are added over HTTP: recommended without a restart, with and without --learn."""

import time
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from fastapi.testclient import TestClient

from abaca.recommender import Recommender
from abaca.serve.store import open_store

from .samples import SMALL, Serve, Shop
from .test_app import problem

ADMIN = {"authorization": "Bearer a-token-of-many-letters"}
KINDS = ["tea", "cup", "spoon"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After an item of a kind comes one of the next kind."""
    folder = tmp_path_factory.mktemp("described") / "model"
    rows = [
        (user, (user + 2 * place * (1 + user % 4)) % 10 * 3 + (user + place) % 3)
        for user in range(60)
        for place in range(9)
    ]
    log = pyarrow.table({"user": [user for user, _ in rows], "item": [f"i{item}" for _, item in rows]})
    table = pyarrow.table({"item": [f"i{item}" for item in range(30)], "kind": [KINDS[item % 3] for item in range(30)]})
    options = SMALL | {"epochs": 8, "average": 0.0, "options": "fixed", "feature_dropout": 0.4}
    made = Recommender("sasrec", "softmax+followers", features="kind", **options)
    made.fit(log, items=table).save(folder)
    return folder


def post(client: TestClient, *items: dict[str, Any]) -> Any:
    return client.post("/items", json={"items": list(items)}, headers=ADMIN)


def best_new(client: TestClient, last: str, new: list[str]) -> list[str]:
    found = client.post("/recommend", json={"history": [last], "n": 5, "candidates": new}).json()["answers"][0]
    return [item["id"] for item in found["items"]]


@pytest.mark.parametrize("learn", [False, True])
def test_a_new_item_is_recommended_without_a_restart(serve: Serve, model: Path, tmp_path: Path, learn: bool) -> None:
    store = open_store(str(tmp_path / "events.db")) if learn else None
    client = serve([model], store=store, learn=learn, admin_token=ADMIN["authorization"].split()[1])
    items = [{"id": f"new {kind}", "columns": {"kind": kind}} for kind in KINDS]
    assert post(client, *items).json() == {"model": "model", "added": 3}
    new, until = [str(item["id"]) for item in items], time.monotonic() + 30
    while len(client.get("/items", params={"id": new}).json()["items"]) < 3:
        assert time.monotonic() < until
        time.sleep(0.02)
    for item in range(3):
        assert best_new(client, f"i{item}", new)[0] == f"new {KINDS[(item + 1) % 3]}"
    assert client.post("/recommend", json={"history": ["new tea"]}).json()["answers"][0]["unknown"] == []


def test_items_that_cannot_be_added_are_refused(serve: Serve, model: Path, shop: Shop) -> None:
    client = serve([model, shop.cpr], admin_token=ADMIN["authorization"].split()[1])
    item = {"id": "x", "columns": {"kind": "cup"}}
    problem(client.post("/items", json={"items": [item]}), 401, "admin token")
    problem(post(client, {"id": "i3", "columns": {"kind": "cup"}}), 422, "knows the item")
    problem(post(client, item, item), 422, "given twice")
    problem(post(client, {"id": "x", "columns": {"kind": "sofa"}}), 422, "no value of kind")
    problem(post(client, {"id": "x", "columns": {"colour": "red"}}), 422, "column 'colour'")
    other = {"items": [item], "model": shop.cpr.name}
    problem(client.post("/items", json=other, headers=ADMIN), 409, "no features")
    problem(serve([model]).post("/items", json={"items": [item]}), 403, "adding items")
    assert client.get("/items", params={"id": ["x"]}).json() == {"items": []}

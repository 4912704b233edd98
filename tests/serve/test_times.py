"""Times and the moment of the query over HTTP: what a model is asked, and what is refused."""

import asyncio
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

import abaca
from abaca.policy import Policy
from abaca.serve.events import Store
from abaca.serve.service import Service
from models import Asked, asked_of_rankers

from .samples import Serve, Shop
from .test_app import problem

NOON = 1_704_110_400  # 2024-01-01T12:00:00Z


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time that the server's clock shows at a query."""
    monkeypatch.setattr("abaca.serve.times.time", SimpleNamespace(time=lambda: NOON + 0.5))
    return NOON + 0.5


def with_unit(shop: Shop, folder: Path, unit: str | None) -> Path:
    """A model whose log had times of another unit."""
    model = abaca.load(shop.cpr)
    assert model.saved is not None
    assert model.time_unit == "seconds"
    model.saved.training["time_unit"] = unit
    model.save(folder)
    return folder


def asked(client: TestClient, **body: Any) -> list[tuple[list[float] | None, float | None]]:
    """The times and moments that the model was asked about."""
    with asked_of_rankers() as found:
        client.post("/recommend", json={"n": 2, **body}).raise_for_status()
    return [(query.times, query.now) for query in found]


def test_times_and_the_moment_of_a_history_reach_the_model(client: TestClient) -> None:
    assert asked(client, history=[1, 777, 2], times=[5, 6.5, 7], now=9) == [([5, 7], 9)]
    assert asked(client, history=[1, 2], times=[7, 5]) == [([7, 5], None)]  # the history's order is the order
    assert asked(client, history=[1, 2], now=-3.5) == [(None, -3.5)]
    assert asked(client, history=[1, 2]) == [(None, None)]
    dates = ["2024-01-01T12:00:00Z", "2024-01-01T13:00:30.25+01:00"]
    assert asked(client, history=[1, 2], times=dates, now="2024-01-02") == [([NOON, NOON + 30.25], NOON + 43_200)]


def test_times_of_several_histories_are_lists(client: TestClient) -> None:
    found = asked(client, histories=[[1], [2, 3], [4]], times=[[5], None, ["2024-01-01T12:00"]], now=8)
    assert sorted(found, key=str) == [(None, 8), ([NOON], 8), ([5], 8)]
    assert asked(client, histories=[], times=[], now=8) == []


def test_a_server_answers_with_times_as_the_library_does(client: TestClient, shop: Shop) -> None:
    histories, times = [[1, 2, 1], [5, 6]], [[1, 2, 3], None]
    answers = client.post("/recommend", json={"histories": histories, "times": times, "now": 4, "n": 3}).json()
    expected = abaca.load(shop.cpr).recommend_many(histories, 3, times=times, now=[4, 4])
    assert [[item["id"] for item in one["items"]] for one in answers["answers"]] == [one.ids for one in expected]


A_TIME = "a time is a number up to 1e20, or ISO 8601 text"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"history": [1, 2], "times": [1]}, ["times: 1 times for 2 items; give one each"]),
        ({"history": [1], "times": [[1]]}, ["times: with history give a list of times"]),
        ({"history": [1], "times": [None]}, ["times: with history give a list of times"]),
        ({"history": [1], "times": 3}, ["times: it takes a list"]),
        ({"history": [1], "times": None}, ["times: it takes a list"]),
        ({"history": [1, 2], "times": [1, True]}, ["times: time 1: " + A_TIME]),
        ({"history": [1], "times": ["yesterday"]}, ["times: time 0: " + A_TIME]),
        ({"history": [1], "times": ["5"]}, ["times: time 0: " + A_TIME]),
        ({"history": [1], "times": [1e21]}, ["times: time 0: " + A_TIME]),
        ({"history": [1], "times": [10**400]}, ["times: time 0: " + A_TIME]),
        ({"histories": [[1], [2]], "times": [[1]]}, ["times: 1 lists for 2 histories"]),
        ({"histories": [[1], [2]], "times": [[1], [2, 3]]}, ["times.1: 2 times for 1 items; give one each"]),
        ({"histories": [[1]], "times": [3]}, ["with histories a list of such lists"]),
        ({"histories": [[1], [2]], "times": [[1], 2]}, ["times: list 1: it takes a list"]),
        ({"histories": [[1], [2]], "times": [[1], ["x"]]}, ["times: list 1: time 0: " + A_TIME]),
        ({"history": [1], "now": "soon"}, ["now: " + A_TIME]),
        ({"history": [1], "now": [1]}, ["now: " + A_TIME]),
        ({"history": [1], "now": None}, ["now: " + A_TIME]),
        ({"history": [1], "time": [1]}, ["time: there is no such field", "did you mean times?"]),
    ],
)
def test_times_that_do_not_fit_are_refused(client: TestClient, body: Any, words: list[str]) -> None:
    problem(client.post("/recommend", json=body), 422, *words)


@pytest.mark.parametrize("field", [b'"times": [NaN]', b'"times": [-Infinity]', b'"now": NaN', b'"now": Infinity'])
def test_numbers_that_are_none_are_refused(client: TestClient, field: bytes) -> None:
    body = b'{"history": [1], ' + field + b"}"
    problem(client.post("/recommend", content=body, headers={"content-type": "application/json"}), 422, A_TIME)


def test_dates_are_in_the_unit_of_each_model(serve: Serve, shop: Shop, tmp_path: Path) -> None:
    client = serve([with_unit(shop, tmp_path / "ms", "milliseconds"), with_unit(shop, tmp_path / "none", None)])
    assert [model["time_unit"] for model in client.get("/model").json()["models"]] == ["milliseconds", None]
    body = {"history": [1], "times": ["2024-01-01T12:00:00.25Z"], "now": 5}
    assert asked(client, **body, model="ms") == [([1000 * NOON + 250], 5)]
    problem(client.post("/recommend", json={**body, "model": "none"}), 422, "is a date, but the log of this model has")
    assert asked(client, history=[1], times=[3], now=4, model="none") == [([3], 4)]


def test_concurrent_queries_keep_their_own_times(shop: Shop) -> None:
    service = Service([shop.cpr], batch=64)

    async def ask() -> Any:
        model = service.model()
        return await asyncio.gather(
            *(
                service.recommend(model, [[number % 30]], Policy(n=1), [[number]] if number % 2 else None, number + 0.5)
                for number in range(40)
            )
        )

    with asked_of_rankers() as found:
        asyncio.run(ask())
    expected = [Asked([n % 30], [n] if n % 2 else None, n + 0.5) for n in range(40)]
    index = service.model().recommender.saved.catalogue.index  # type: ignore[union-attr]
    assert sorted(found, key=lambda query: query.now or 0) == [
        query._replace(items=[index(query.items[0])]) for query in expected
    ]
    service.close()


def test_a_stored_history_has_its_times_and_the_clock(serve: Serve, store: Store, clock: float) -> None:
    client = serve(store=store)
    events = [{"user": "u", "item": 1, "time": 30}, {"user": "u", "item": "odd", "time": 15}]
    events.append({"user": "u", "item": 2, "time": 10.5})
    client.post("/events", json={"events": events}).raise_for_status()
    with asked_of_rankers() as found:
        client.get("/users/u/recommendations").raise_for_status()
        client.get("/users/u/recommendations", params={"now": 40.25}).raise_for_status()
        client.get("/users/u/recommendations", params={"now": "2024-01-01T12:00:00Z"}).raise_for_status()
    assert [(query.times, query.now) for query in found] == [([10.5, 30], now) for now in (clock, 40.25, NOON)]


def test_an_event_without_a_time_has_that_of_its_arrival(serve: Serve, store: Store) -> None:
    client = serve(store=store)
    before = time.time()
    client.post("/events", json={"events": [{"user": "u", "item": 1}]}).raise_for_status()
    with asked_of_rankers() as found:
        client.get("/users/u/recommendations").raise_for_status()
    ((_, times, now),) = found
    assert times is not None
    assert now is not None
    assert before <= times[0] <= now <= time.time()


def test_the_moment_of_a_stored_history_is_not_before_its_last_event(serve: Serve, store: Store, clock: float) -> None:
    """A sender's clock may be ahead of the server's."""
    client = serve(store=store)
    client.post("/events", json={"events": [{"user": "u", "item": 1, "time": clock + 3}]}).raise_for_status()
    with asked_of_rankers() as found:
        client.get("/users/u/recommendations").raise_for_status()
    assert [(query.times, query.now) for query in found] == [([clock + 3], clock + 3)]


def test_a_stored_history_is_in_the_unit_of_each_model(
    serve: Serve, store: Store, shop: Shop, tmp_path: Path, clock: float
) -> None:
    client = serve(
        [with_unit(shop, tmp_path / "ms", "milliseconds"), with_unit(shop, tmp_path / "none", None)], store=store
    )
    client.post("/events", json={"events": [{"user": "u", "item": 1, "time": 30}]}).raise_for_status()
    with asked_of_rankers() as found:
        client.get("/users/u/recommendations").raise_for_status()
        client.get("/users/u/recommendations", params={"now": 40}).raise_for_status()
        client.get("/users/u/recommendations", params={"model": "none", "now": 40}).raise_for_status()
    expected = [([30_000], 1000 * clock), ([30_000], 40_000), (None, None)]
    assert [(query.times, query.now) for query in found] == expected


@pytest.mark.parametrize("now", ["", "soon", "nan", "inf", "1e12", "null"])
def test_a_moment_in_the_address_that_is_none_is_refused(serve: Serve, store: Store, now: str) -> None:
    refused = serve(store=store).get("/users/u/recommendations", params={"now": now})
    problem(refused, 422, "now: a time is a number up to 1e11, or ISO 8601 text")


def test_only_what_is_given_is_a_default_in_the_document(client: TestClient) -> None:
    """A program that sends the defaults of the document must not send a moment of 1970."""
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name, field in (("Ask", "times"), ("Ask", "now"), ("Event", "time")):
        assert "default" not in schemas[name]["properties"][field]
    assert math.isfinite(schemas["Ask"]["properties"]["n"]["default"])

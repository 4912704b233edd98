"""A server with --learn: its counts are those of the store, whatever happened."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from abaca.errors import BusyError, ModelError
from abaca.recommender import Recommender
from abaca.serve import live
from abaca.serve import service as module
from abaca.serve.events import Store
from abaca.serve.learning import Learner
from abaca.serve.service import Loaded, Service
from abaca.serve.store import open_store
from models import untrained

from .conftest import make_client
from .databases import KINDS, Cluster
from .samples import Forked, Serve, Shop
from .test_kill import CLIENTS, EVENTS, KILLS, Sender, kept

ADMIN = {"authorization": f"Bearer {'a' * 16}"}
ASKED = [["i3"], ["i1", "i2", "i3", "i4"], ["i9", "i9", "i0"], ["i7", "i8"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learning") / "model"
    untrained(folder, "softmax+C+habits+followers")
    return folder


def post(client: TestClient, events: list[dict[str, Any]]) -> None:
    assert client.post("/events", json={"events": events}).status_code == 200


def answers(client: Any, histories: list[list[str]] = ASKED) -> Any:
    found = client.post("/recommend", json={"histories": histories, "n": 40}).json()["answers"]
    return [{item["id"]: (item["reason"], item["terms"]["followers"]) for item in one["items"]} for one in found]


def within_bound(check: Callable[[], bool]) -> None:
    """Wait until something is so, for a long time at most."""
    until = time.monotonic() + 30
    while not check():
        assert time.monotonic() < until
        time.sleep(0.02)


def drawn(seed: int, count: int = 120, items: int = 12) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    made = ((f"u{rng.randrange(9)}", f"i{rng.randrange(items)}", rng.randrange(50)) for _ in range(count))
    return [
        {"user": user, "item": item, "time": moment, "id": f"{seed}-{number}"}
        for number, (user, item, moment) in enumerate(made)
    ]


def test_a_new_item_is_recommended_after_what_people_took_before_it(serve: Serve, model: Path, store: Store) -> None:
    client = serve([model], store=store, learn=True)
    assert "pesto" not in answers(client)[0]
    for number in range(40):
        post(client, [{"user": f"u{number}", "item": "i3"}, {"user": f"u{number}", "item": "pesto"}])
    within_bound(lambda: "pesto" in answers(client)[0])
    within_bound(lambda: "(40 times)" in answers(client)[0]["pesto"][0])
    reason, followers = answers(client)[0]["pesto"]
    assert "often follows" in reason
    assert followers == max(value for _, value in answers(client)[0].values())
    (best,) = client.post("/recommend", json={"history": ["i3", "pesto"], "n": 1}).json()["answers"]
    assert best["unknown"] == []
    found = client.get("/items", params={"id": "pesto"}).json()["items"]
    assert [item["id"] for item in found] == ["pesto"]
    assert "abaca_learned_events 80.0" in client.get("/metrics").text


def test_popularity_lives(serve: Serve, model: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a history gets what is popular now; an erased user no longer counts."""
    monkeypatch.setattr(live, "REFRESH", 0.05)
    client = serve([model], store=store, learn=True)

    def first() -> str:
        return str(client.post("/recommend", json={"history": [], "n": 1}).json()["answers"][0]["items"][0]["id"])

    before = first()
    late = "i9" if before != "i9" else "i8"
    post(client, [{"user": "many", "item": late} for _ in range(500)])
    within_bound(lambda: first() == late)
    client.delete("/users/many")
    within_bound(lambda: first() == before)


def test_events_of_a_type_that_was_filtered_out_are_not_counted(tmp_path: Path, store: Store) -> None:
    """A model of purchases does not count views, nor are they part of a history."""
    untrained(tmp_path / "model", "softmax+C+habits+followers", events=["buy"])
    with make_client([tmp_path / "model"], store=store, learn=True) as client:
        plain = answers(client)
        viewed = [{"user": "a", "item": item, "type": "view"} for item in ("i3", "i4", "i3", "i4")]
        post(client, viewed)
        assert "abaca_learned_events 0.0" in client.get("/metrics").text
        assert answers(client) == plain
        assert client.get("/users/a/recommendations").json()["events"] == 0
        assert {item["type"] for item in client.get("/users/a/history").json()["items"]} == {"view"}
        post(client, [event | {"type": "buy"} for event in viewed])
        assert "abaca_learned_events 4.0" in client.get("/metrics").text
        assert client.get("/users/a/recommendations").json()["events"] == 4


def test_counts_after_a_restart_are_those_of_the_store(model: Path, address: str) -> None:
    with make_client([model], store=open_store(address), learn=True) as client:
        plain = answers(client)
        events = drawn(1)
        for start in range(0, len(events), 7):
            post(client, events[start : start + 7])
            post(client, events[max(0, start - 3) : start + 5])  # most were sent before
        client.delete("/users/u2")
        post(client, [event | {"id": event["id"] + "'"} for event in events[:10]])
        live = answers(client)
    with make_client([model], store=open_store(address), learn=True) as client:
        assert answers(client) == live
    assert live != plain


def test_erasing_a_user_undoes_what_was_learned(serve: Serve, model: Path, store: Store) -> None:
    client = serve([model], store=store, learn=True)
    post(client, drawn(2))
    before = answers(client)
    post(client, [{"user": "gone", "item": item} for item in ("i3", "i4", "pesto", "i1", "pesto")])
    within_bound(lambda: "pesto" in answers(client)[0])
    assert answers(client)[1] != before[1]
    assert client.delete("/users/gone").json() == {"deleted": 5}
    within_bound(lambda: "pesto" not in answers(client)[0])
    assert answers(client) == before


def test_learning_goes_on_after_a_reload(serve: Serve, model: Path, store: Store) -> None:
    client = serve([model], store=store, learn=True, admin_token="a" * 16)
    post(client, drawn(3))
    before = answers(client)
    assert client.post("/model/reload", headers={"authorization": f"Bearer {'a' * 16}"}).status_code == 200
    assert answers(client) == before
    post(client, [{"user": "more", "item": "i3"}, {"user": "more", "item": "i1"}])
    assert answers(client)[0]["i1"][1] > before[0]["i1"][1]


def test_events_that_the_model_was_trained_on_are_not_counted_again(tmp_path: Path, store: Store) -> None:
    recommender = untrained(tmp_path / "model", "softmax+followers")
    assert recommender.saved is not None
    recommender.saved.training["last_time"] = 40.0
    recommender.save(tmp_path / "model")
    with make_client([tmp_path / "model"], store=store, learn=True) as client:
        plain = answers(client)
        post(client, [{"user": "u", "item": "i3", "time": 1}, {"user": "u", "item": "i1", "time": 40}])
        assert answers(client) == plain
        post(client, [{"user": "u", "item": "i2", "time": 41}])  # it follows what the model has counted
        assert answers(client)[0]["i2"][1] > plain[0]["i2"][1]


def test_only_models_that_read_followers_learn(serve: Serve, shop: Shop, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model reads followers"):
        serve(store=open_store(str(tmp_path / "a.db")), learn=True)
    client = serve([shop.cpr, model], store=open_store(str(tmp_path / "b.db")), learn=True)
    post(client, [{"user": "u", "item": 3}, {"user": "u", "item": "i3"}])
    assert client.post("/recommend", json={"history": [3]}).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_counts_survive_kills(kind: str, model: Path, disk: Path, request: pytest.FixtureRequest) -> None:
    cluster: Cluster | None = request.getfixturevalue("cluster") if kind == "postgres" else None
    address = str(disk / "events.db") if cluster is None else cluster.database("learned")
    sender = Takes(seed=2)
    for number in range(1, KILLS + 1):
        server = Forked(model, "--store", address, "--learn")
        check(server, model, address, Recommender.load(model))
        threads = [threading.Thread(target=sender.run, args=(server.url,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while len(sender.acknowledged) < number * EVENTS // KILLS:
            time.sleep(0.002)
        server.process.kill()
        for thread in threads:
            thread.join()
        server.end("kill")
        found = kept(address)
        assert sender.acknowledged <= set(found)
    server = Forked(model, "--store", address, "--learn")
    check(server, model, address, Recommender.load(model))
    server.end()
    assert len(sender.acknowledged) >= EVENTS


class Takes(Sender):
    """Sends events of a few items, most of which the model knows."""

    def next(self) -> list[dict[str, object]]:
        return [event | {"item": f"i{int(str(event['time'])[:-2]) % 37}"} for event in super().next()]


def check(server: Forked, model: Path, address: str, recommender: Recommender) -> None:
    """What the server has counted is what a loop counts in the rows of the database."""
    rows: dict[str, list[tuple[float, str]]] = {}
    for user, item, moment in kept(address):
        rows.setdefault(user, []).append((moment, item))
    expected: dict[tuple[str, str], int] = {}
    for row in rows.values():
        row.sort()
        for place, (_, item) in enumerate(row):
            for distance in range(1, min(10, place) + 1):
                pair = row[place - distance][1], item
                expected[pair] = expected.get(pair, 0) + 2520 // distance
    opened, service = open_store(address), Service([model])
    learner = Learner(opened, service)
    (counted,) = learner.models
    assert recommender.saved is not None
    ids = [*recommender.saved.catalogue.ids, *counted.ids]
    pairs = counted.counts.pairs
    assert {(ids[a], ids[b]): units for a, row in pairs.items() for b, units in row.items()} == expected
    learned = f"abaca_learned_pairs {len(expected)}.0"
    assert learned in httpx2.get(f"{server.url}/metrics", timeout=120).text.replace("e+00", "")
    for part in (learner, service, opened):
        part.close()


def test_servers_of_one_store_count_each_others_events(model: Path, address: str) -> None:
    """Each has the counts of all, in the order of the store, also while both accept events of one user."""
    with (
        make_client([model], store=open_store(address), learn=True) as first,
        make_client([model], store=open_store(address), learn=True) as second,
    ):
        plain = answers(first)
        events = drawn(5)
        for number, start in enumerate(range(0, len(events), 5)):
            post((first, second)[number % 2], events[start : start + 5])
            post((second, first)[number % 2], events[start : start + 2])  # sent again, to the other one
        within_bound(lambda: answers(first) == answers(second) != plain)
        live = answers(first)
    with make_client([model], store=open_store(address), learn=True) as client:
        assert answers(client) == live


def test_a_reload_while_the_store_is_away_keeps_the_new_model_and_counts_later(
    serve: Serve, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path / "events.db"))
    client = serve([model], store=store, learn=True, admin_token="a" * 16)
    post(client, drawn(6))
    before = answers(client)

    def away(place: int) -> Any:
        raise BusyError("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "since", away)
        assert client.post("/model/reload", headers={"authorization": f"Bearer {'a' * 16}"}).status_code == 200
        assert client.app.state.api.learner.models == []  # type: ignore[attr-defined]
    within_bound(lambda: answers(client) == before)


def test_events_and_erasures_do_not_wait_while_a_reload_reads_the_store(
    serve: Serve, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "events.db")
    store = open_store(address)
    client, real = serve([model], store=store, learn=True, admin_token="a" * 16), store.since
    post(client, drawn(7) + [{"user": "gone", "item": item} for item in ("i3", "pesto", "i1")])
    read, goes_on = threading.Event(), threading.Event()

    def slow(place: int) -> Any:
        rows = real(place)
        if place < 0:  # the first page of the whole store
            read.set()
            goes_on.wait(60)
        return rows

    monkeypatch.setattr(store, "since", slow)
    reload = threading.Thread(target=lambda: client.post("/model/reload", headers=ADMIN), daemon=True)
    reload.start()
    try:
        assert read.wait(60)
        post(client, drawn(8))
        assert client.delete("/users/gone").json() == {"deleted": 3}
        assert reload.is_alive()
    finally:
        goes_on.set()
        reload.join(60)
    with make_client([model], store=open_store(address), learn=True) as another:
        expected = answers(another)
    within_bound(lambda: answers(client) == expected)


@pytest.fixture
def replaced(serve: Serve, tmp_path: Path) -> tuple[TestClient, Path]:
    """A server with --learn, and the folder of its model, which a test may replace."""
    folder = tmp_path / "model"
    untrained(folder, "softmax+C+habits+followers")
    store = open_store(str(tmp_path / "events.db"))
    return serve([folder], store=store, learn=True, admin_token="a" * 16), folder


def version(client: TestClient) -> str:
    return str(client.get("/model").json()["models"][0]["version"])


def test_a_model_that_grows_during_a_reload_neither_waits_nor_undoes_it(
    replaced: tuple[TestClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, folder = replaced
    old, real, swap = version(client), module._load, Service.replace
    read, goes_on, grown = threading.Event(), threading.Event(), threading.Event()

    def slow(name: str, path: Path) -> Loaded:
        loaded = real(name, path)
        read.set()
        goes_on.wait(60)
        return loaded

    def told(service: Service, model: Loaded) -> bool:
        taken = swap(service, model)
        grown.set()
        return taken

    monkeypatch.setattr(module, "_load", slow)
    monkeypatch.setattr(Service, "replace", told)
    untrained(folder, "softmax+C+habits+followers", dim=12)
    statuses: list[int] = []
    reload = threading.Thread(
        target=lambda: statuses.append(client.post("/model/reload", headers=ADMIN).status_code), daemon=True
    )
    reload.start()
    assert read.wait(60)
    try:
        post(client, [{"user": "u", "item": "i3"}, {"user": "u", "item": "pesto"}])
        assert grown.wait(60)
        post(client, [{"user": "u", "item": "i4"}])
        assert client.delete("/users/u").json() == {"deleted": 3}
        assert version(client) == old
    finally:
        goes_on.set()
        reload.join(60)
    assert statuses == [200]
    assert version(client) == module._version(folder) != old


def test_a_form_of_an_old_version_is_not_served(replaced: tuple[TestClient, Path]) -> None:
    service: Service = replaced[0].app.state.api.service  # type: ignore[attr-defined]
    before = service.model()
    assert service.replace(before)
    service.reload()
    assert not service.replace(before)
    assert service.model() is not before


def test_a_model_that_cannot_learn_is_refused_by_a_reload(replaced: tuple[TestClient, Path]) -> None:
    client, folder = replaced
    old = version(client)
    untrained(folder, "softmax+C+habits")
    refused = client.post("/model/reload", headers=ADMIN)
    assert refused.status_code == 409
    assert "no model reads followers" in refused.json()["detail"]
    assert version(client) == old
    post(client, [{"user": "u", "item": "i3"}])
    assert 'abaca_reloads_total{result="refused"} 1.0' in client.get("/metrics").text


def test_a_stored_event_is_no_error_though_it_cannot_be_counted(
    replaced: tuple[TestClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: live.Counted) -> None:
        raise ModelError("cannot count")

    monkeypatch.setattr(live.Counted, "follow", fails)
    post(replaced[0], [{"user": "u", "item": "i3"}])
    assert len(replaced[0].get("/users/u/history").json()["items"]) == 1


def test_a_growth_that_failed_is_tried_again(
    replaced: tuple[TestClient, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "REFRESH", 0.05)
    client, real, tried = replaced[0], live.LiveModel._with_items, threading.Event()

    def once(model: live.LiveModel, catalogue: Any) -> Any:
        if tried.is_set():
            return real(model, catalogue)
        tried.set()
        raise MemoryError("no room")

    monkeypatch.setattr(live.LiveModel, "_with_items", once)
    post(client, [{"user": "u", "item": "pesto"}])
    within_bound(lambda: bool(client.get("/items", params={"id": "pesto"}).json()["items"]))
    assert tried.is_set()

"""A store or a thread that fails: /ready says so, requests get 503, nothing is acknowledged, and the end comes."""

import asyncio
import random
import resource
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from abaca.errors import BusyError, QueryError, StoreError
from abaca.serve import pool, postgres, readiness
from abaca.serve.events import Event, RefusedError, Store
from abaca.serve.feedback import Feedback, add_feedback
from abaca.serve.guards import RequestLog
from abaca.serve.metrics import Metrics
from abaca.serve.store import open_store

from .databases import Cluster
from .samples import Live, Serve, Shop
from .test_store import event, items

EVENT = {"events": [{"user": "u", "item": 1}]}


@pytest.fixture
def frozen(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Freezes the database until the end of the test, at the latest."""
    yield cluster.freeze
    cluster.thaw()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of tests."""
    monkeypatch.setattr(postgres, "SECONDS", 0.5)
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
def test_a_frozen_database_holds_no_call_and_no_end(cluster: Cluster, frozen: Callable[[], None]) -> None:
    store = open_store(cluster.database("frozen"))
    assert store.add([[event("a", 1)]]) == [1]
    frozen()
    for call in (lambda: store.add([[event("b", 2)]]), lambda: store.history("u", 9), store.check):
        with pytest.raises(BusyError, match="cannot be reached"):
            call()
    cluster.thaw()
    assert store.add([[event("c", 3)]]) == [1]
    assert items(store, "u", 9)[-1] == "c"
    store.close()


def test_a_network_that_drops_everything_holds_nobody() -> None:
    """Nobody accepts, so that the system drops further attempts to connect; it would try for two minutes."""
    with socket.socket() as listener, ExitStack() as opened:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # until there is no more room
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        began = time.monotonic()
        with pytest.raises((BusyError, StoreError), match="cannot be"):
            open_store(f"postgresql://u@127.0.0.1:{listener.getsockname()[1]}/d", 0.5)
        assert time.monotonic() - began < 60


def test_closing_ends_a_call_that_waits(cluster: Cluster, frozen: Callable[[], None]) -> None:
    store = open_store(cluster.database("closing"))
    store.check()
    found: list[BaseException] = []

    def call() -> None:
        try:
            store.add([[event("b", 2)]])
        except BaseException as error:
            found.append(error)

    frozen()
    thread = threading.Thread(target=call)
    thread.start()
    while not store._pool._running:  # type: ignore[attr-defined]
        time.sleep(0.01)
    store.close()
    thread.join(60)
    assert isinstance(found[0], BusyError)


@pytest.mark.slow
def test_a_server_ends_in_order_while_its_database_is_frozen(
    cluster: Cluster, frozen: Callable[[], None], shop: Shop
) -> None:
    """Exit code 0: the requests were answered with 503, and no thread had to be given up."""
    server = Live(shop.cpr, "--store", cluster.database("ending")).ready()
    assert server.client.post("/events", json=EVENT).status_code == 200
    frozen()
    statuses: list[int] = []
    asking = [
        threading.Thread(target=lambda: statuses.append(server.client.post("/events", json=EVENT).status_code))
        for _ in range(12)
    ]
    for thread in asking:
        thread.start()
    assert server.client.get("/health").status_code == 200
    time.sleep(readiness.FRESH_SECONDS)  # so long the last check counts
    assert server.client.get("/ready").status_code == 503
    assert server.client.post("/recommend", json={"history": [1]}).status_code == 200
    server.process.terminate()
    for thread in asking:
        thread.join(120)
    assert server.process.wait(120) == 0
    assert set(statuses) <= {503}
    server.end("kill")


def test_a_database_that_is_not_utf8_is_refused(cluster: Cluster) -> None:
    address = cluster.database("latin", "-E", "LATIN1", "-T", "template0", "--locale=C")
    with pytest.raises(StoreError, match=r"encoding LATIN1.*ENCODING 'UTF8'"):
        open_store(address)


def test_a_session_has_limits_and_its_commits_are_on_disk(cluster: Cluster) -> None:
    address = cluster.database("session")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER DATABASE session SET synchronous_commit = off")
    names = "lock_timeout", "idle_in_transaction_session_timeout", "synchronous_commit"
    asked = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    for seconds, limit in ((None, "8s"), (3600.0, "1h")):
        store = open_store(address, seconds)
        assert store._read(asked) == [(limit, "30s", "on")]
        store.close()


def test_calls_that_wait_for_a_lock_leave_no_sessions_behind(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server vanished in the middle of a transaction: it holds the lock of writers and sends nothing."""
    monkeypatch.setattr(pool, "IDLE_SECONDS", 3)
    address = cluster.database("vanished")
    store = open_store(address, 0.5)
    held = store._pool._connect(time.monotonic() + 60)  # type: ignore[attr-defined]
    held.execute("BEGIN")
    postgres._alone(held)
    for number in range(3):
        with pytest.raises(BusyError):
            store.add([[event("a", number)]])
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'vanished' AND wait_event_type = 'Lock'"
    until = time.monotonic() + 60
    with psycopg.connect(address, autocommit=True) as look:
        while look.execute(waiting).fetchone() != (0,):
            assert time.monotonic() < until
    while not items(store, "u", 9):
        assert time.monotonic() < until
        with suppress(BusyError):
            store.add([[event("b", 4)]])
    held.close()
    store.close()


def test_a_connection_that_cannot_be_prepared_is_closed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(cluster.database("prepared"))
    ended: list[Any] = []
    store._pool.drop_idle()  # type: ignore[attr-defined]
    monkeypatch.setattr(pool, "PREPARE", "SELECT nothing, %s, %s")
    monkeypatch.setattr(pool, "_end", ended.append)
    with pytest.raises(BusyError):
        store.add([[event("a", 1)]])
    (connection,) = ended
    connection.close()
    store.close()


def long_text(seed: int) -> str:
    """The longest id, of characters of four bytes that cannot be compressed."""
    draw = random.Random(seed)
    return "".join(chr(draw.randrange(0x20000, 0x2A000)) for _ in range(512))


def test_what_postgres_has_no_room_for_is_refused_alone(cluster: Cluster) -> None:
    """A row of an index has at most 2,704 bytes."""
    store = open_store(cluster.database("toolarge"))
    large = "".join(random.Random(1).choices("123456789", k=4300)) * 2
    found = store.add_each([[event("a", 1)], [Event("b", large, "tea", 2.0)], [event("c", 3)]])
    assert [type(one) for one in found] == [int, QueryError, int]
    assert items(store, "u", 9) == ["a", "c"]
    with pytest.raises(QueryError, match="index row"):
        add_feedback(store, [Feedback("f", long_text(2), long_text(3), 1.0, "shown", "model")])
    store.close()


def refuse_an_item(address: str) -> None:
    """Have the database refuse the item 'bad', as an operator's own rule might."""
    if address.startswith("postgresql"):
        with psycopg.connect(address) as connection:
            connection.execute("ALTER TABLE abaca_events ADD CHECK (item <> 'bad')")
        return
    with sqlite3.connect(address) as file:
        file.execute(
            "CREATE TRIGGER no_bad BEFORE INSERT ON abaca_events WHEN NEW.item = 'bad' "
            "BEGIN SELECT RAISE(ABORT, 'no bad items'); END"
        )
    file.close()


def test_one_bad_event_does_not_fail_the_others(store: Store, address: str) -> None:
    refuse_an_item(address)
    stored = store.add_each([[event("a", 1)], [event("x", 2), event("y", 2, "bad")], [event("b", 3)]])
    assert [stored[0], stored[2]] == [1, 1]
    assert isinstance(stored[1], RefusedError)
    assert items(store, "u", 9) == ["a", "b"]


def test_an_error_of_the_database_is_a_503(serve: Serve, store: Store, address: str) -> None:
    client = serve(store=store)
    refuse_an_item(address)
    answer = client.post("/events", json={"events": [{"user": "u", "item": "bad"}]})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert client.post("/events", json=EVENT).status_code == 200


def drop_table(address: str) -> None:
    if address.startswith("postgresql"):
        with psycopg.connect(address) as connection:
            connection.execute("DROP TABLE abaca_events")
        return
    with sqlite3.connect(address) as file:
        file.execute("DROP TABLE abaca_events")
    file.close()


@pytest.mark.usefixtures("quick")
def test_ready_fails_where_the_table_is_gone(serve: Serve, store: Store, address: str) -> None:
    client = serve(store=store)
    assert client.get("/ready").json() == {"status": "ready", "models": ["cpr", "softmax"]}
    drop_table(address)
    assert client.get("/ready").status_code == 503
    for answer in (client.post("/events", json=EVENT), client.get("/users/u/history"), client.delete("/users/u")):
        assert answer.status_code == 503


@pytest.fixture
def stored(serve: Serve, tmp_path: Path, quick: None) -> TestClient:
    return serve(store=open_store(str(tmp_path / "events.db")))


def not_ready(client: TestClient, words: str) -> None:
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("name", ["events.db", "events.db-wal"])
def test_a_file_that_was_moved_takes_no_events(stored: TestClient, tmp_path: Path, name: str) -> None:
    assert stored.post("/events", json=EVENT).status_code == 200
    file, moved = tmp_path / name, tmp_path / "moved"
    file.rename(moved)
    not_ready(stored, "was moved, deleted or replaced")
    assert stored.post("/events", json=EVENT).status_code == 503
    moved.rename(file)
    assert stored.get("/ready").status_code == 200
    assert stored.post("/events", json=EVENT).status_code == 200
    assert len(stored.get("/users/u/history").json()["items"]) == 2


def test_ready_fails_where_nothing_can_be_written(stored: TestClient) -> None:
    writer = stored.app.state.api.store._writer  # type: ignore[attr-defined]
    writer.execute("PRAGMA query_only = 1")
    not_ready(stored, "readonly")
    assert stored.post("/events", json=EVENT).status_code == 503
    writer.execute("PRAGMA query_only = 0")
    assert stored.get("/ready").status_code == 200


def test_ready_fails_where_the_disk_is_full(stored: TestClient) -> None:
    """A limit of file sizes: every write of this process beyond it fails, as on a full disk."""
    assert stored.post("/events", json=EVENT).status_code == 200
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        answers = [stored.get("/ready"), stored.post("/events", json=EVENT)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [answer.status_code for answer in answers] == [503, 503]
    assert stored.get("/ready").status_code == 200
    assert stored.post("/events", json=EVENT).status_code == 200
    assert len(stored.get("/users/u/history").json()["items"]) == 2


def test_a_thread_that_died_is_reported_and_nobody_waits_for_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    batcher = client.app.state.api.service.batcher  # type: ignore[attr-defined]

    def die(jobs: list[Any]) -> Any:
        raise SystemExit

    monkeypatch.setattr(batcher, "work", die)
    for _ in range(2):
        answer = client.post("/recommend", json={"history": [1]})
        assert answer.status_code == 503
        assert "has died" in answer.json()["detail"]
    not_ready(client, "thread of the server has died")
    assert client.get("/health").status_code == 200


def test_ready_fails_while_the_queue_is_full(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    batcher = client.app.state.api.service.batcher  # type: ignore[attr-defined]
    monkeypatch.setattr(batcher, "room", 0)
    not_ready(client, "the queue is full")
    monkeypatch.undo()
    assert client.get("/ready").status_code == 200


def test_a_model_that_fails_is_not_ready_until_it_answers_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    first = client.app.state.api.service.model().recommender  # type: ignore[attr-defined]
    monkeypatch.setattr(first, "recommend_many", lambda *_, **__: 1 / 0)
    for _ in range(3):
        assert client.post("/recommend", json={"history": [1]}).status_code == 500
    not_ready(client, "a model cannot answer: cpr")
    assert client.get("/ready?model=softmax").json()["models"] == ["softmax"]
    assert client.get("/ready?model=cpr").status_code == 503
    assert client.get("/ready?model=x").status_code == 404
    monkeypatch.undo()
    assert client.get("/ready").status_code == 200


def test_a_slow_check_holds_no_other_probe(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One check runs, however many probes wait for it; each is answered."""
    store = open_store(str(tmp_path / "events.db"))
    go, calls = threading.Event(), []
    monkeypatch.setattr(readiness, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(store, "check", lambda: (calls.append(1), go.wait(60)))
    client = serve(store=store)
    for _ in range(5):
        not_ready(client, "does not answer")
    assert len(calls) == 1
    go.set()
    while client.get("/ready").status_code == 503:
        time.sleep(0.01)


def test_a_request_that_the_end_does_not_wait_for_gets_a_503() -> None:
    sent: list[Any] = []

    async def never(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def keep(message: Any) -> None:
        sent.append(message)

    async def end() -> None:
        scope = {"type": "http", "method": "GET", "path": "/model", "headers": [], "client": None}
        task = asyncio.create_task(RequestLog(never, Metrics())(scope, keep, keep))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(end())
    assert sent[0]["status"] == 503
    assert b"shutting down" in sent[1]["body"]

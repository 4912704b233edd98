"""What every store promises, on both real databases."""

import sqlite3
import threading
from pathlib import Path

import pytest

import abaca
from abaca.errors import BusyError, StoreError
from abaca.serve import app, postgres, sqlite
from abaca.serve.events import Event, Store
from abaca.serve.store import open_store, stored_rows

from .databases import Cluster
from .samples import Serve, Shop


def items(store: Store, user: str, most: int) -> list[str]:
    """The items of a stored history."""
    return [past.item for past in store.history(user, most)]


def event(id: str, time: float, item: str = "", user: str = "u") -> Event:
    return Event(id, user, item or id, time)


def test_events_stand_in_the_order_of_time_however_late_they_come(store: Store) -> None:
    store.add([[event("c", 3), event("a", 1)]])
    store.add([[event("e", 5)], [event("b", 2), event("d", 3), event("x", 9, user="other")]])
    assert items(store, "u", 100) == ["a", "b", "c", "d", "e"]
    assert items(store, "u", 2) == ["d", "e"]
    assert items(store, "other", 9) == ["x"]
    assert items(store, "nobody", 9) == []


def test_an_event_is_there_once_however_often_it_is_sent(store: Store) -> None:
    assert store.add([[event("a", 1), event("a", 2)], [event("a", 3), event("b", 4)]]) == [1, 1]
    assert store.add([[event("b", 5), event("a", 1, "other")], [event("c", 6)]]) == [0, 1]
    assert items(store, "u", 9) == ["a", "b", "c"]


def test_what_fails_leaves_nothing_behind(store: Store) -> None:
    broken = Event("z", "u", "z", None)  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"(?i)null"):
        store.add([[event("a", 1)], [event("b", 2), broken]])
    assert items(store, "u", 9) == []
    assert store.add([[event("a", 1)]]) == [1]


def test_a_user_can_be_forgotten(store: Store) -> None:
    store.add([[event("a", 1), event("b", 2), event("c", 3, user="other")]])
    assert store.forget("u") == 2
    assert store.forget("u") == 0
    assert items(store, "u", 9) == []
    assert items(store, "other", 9) == ["c"]


def test_users_are_read_in_pages_each_once(store: Store) -> None:
    names = [f"user {number:02}" for number in range(7)]
    store.add([[event(f"{name} {time}", time, user=name) for name in reversed(names) for time in range(3)]])
    assert store.users("", 100) == names
    assert store.users("", 3) == names[:3]
    assert store.users(names[2], 3) == names[3:6]
    assert store.users(names[5], 3) == names[6:]
    assert store.users(names[6], 3) == []
    store.forget(names[3])
    assert store.users(names[2], 2) == [names[4], names[5]]


def test_any_text_comes_back_as_it_was(store: Store) -> None:
    odd = ["'; DROP TABLE abaca_events; --", '"', "%s ? $1 {}", "Straße 🛒 \u202e", " \t\n", "\\", ""]
    store.add([[Event(f"e{place}", text, text, place)] for place, text in enumerate(odd)])
    assert [items(store, text, 9) for text in odd] == [[text] for text in odd]


def test_times_keep_their_fractions(store: Store) -> None:
    moments = [1_700_000_000 + step / 1000 for step in (3, 1, 2)]
    store.add([[event(f"{moment}", moment) for moment in moments]])
    assert items(store, "u", 9) == [f"{moment}" for moment in sorted(moments)]


def test_a_history_has_its_times(store: Store) -> None:
    store.add([[event("c", 3.25), event("a", -1), event("b", 3.25)]])
    assert store.history("u", 9) == [("a", -1, None), ("c", 3.25, None), ("b", 3.25, None)]


def test_events_keep_their_types(store: Store) -> None:
    store.add([[Event("1", "u", "milk", 1, "view"), Event("2", "u", "milk", 2, "buy"), event("tea", 3)]])
    assert [(past.item, past.type) for past in store.history("u", 9)] == [
        ("milk", "view"), ("milk", "buy"), ("tea", None),
    ]  # fmt: skip
    assert stored_rows(store).to_pydict()["event"] == ["view", "buy", None]


OF_THE_LAST_RELEASE = """
CREATE TABLE abaca_store (version INTEGER NOT NULL);
CREATE TABLE abaca_events (
  place {number} PRIMARY KEY{numbered},
  id TEXT NOT NULL UNIQUE,
  "user" TEXT NOT NULL,
  item TEXT NOT NULL,
  time DOUBLE PRECISION NOT NULL
);
CREATE INDEX abaca_events_of_user ON abaca_events ("user", time, place);
INSERT INTO abaca_store SELECT 1;
INSERT INTO abaca_events (id, "user", item, time) VALUES ('x', 'u', 'tea', 7.5), ('y', 'u', 'milk', 3);
"""


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("typed", [False, True])
def test_an_earlier_store_opens_with_its_times(address: str, version: int, typed: bool) -> None:
    """Whether its tables have the column of types already, or not."""
    script = OF_THE_LAST_RELEASE.replace("SELECT 1;", f"SELECT {version};")
    if typed:
        script += "ALTER TABLE abaca_events ADD COLUMN type TEXT;"
    if address.startswith("postgresql"):
        import psycopg

        with psycopg.connect(address) as connection:
            connection.execute(script.format(number="BIGINT GENERATED ALWAYS AS IDENTITY", numbered="").encode())
    else:
        with sqlite3.connect(address) as file:
            file.executescript(script.format(number="INTEGER", numbered=" AUTOINCREMENT"))
        file.close()
    store = open_store(address)
    assert store.add([[event("x", 9), event("z", 5)]]) == [1]
    assert store.history("u", 9) == [("milk", 3, None), ("z", 5, None), ("tea", 7.5, None)]
    assert store._read("SELECT version FROM abaca_store") == [(2,)]  # it was migrated
    store.add([[Event("typed", "u", "jam", 8, "buy")]])
    store.close()
    store = open_store(address)  # the column of types is there already
    assert store.history("u", 1) == [("jam", 8, "buy")]
    assert [past.type for _, _, past in store.since(-1)] == [None, None, None, "buy"]
    assert store.forget("u") == 4
    assert store.add([[event("z", 5)]]) == [0]
    salt = store.salt
    store.close()
    again = open_store(address)
    assert again.salt == salt
    assert again.add([[event("z", 5)]]) == [0]
    again.close()


def test_a_store_opened_again_has_everything(address: str) -> None:
    first = open_store(address)
    first.add([[event("a", 1)]])
    first.close()
    second = open_store(address)
    second.check()
    assert second.add([[event("a", 1), event("b", 2)]]) == [1]
    assert items(second, "u", 9) == ["a", "b"]
    second.close()


def test_two_servers_share_a_store(address: str) -> None:
    """Each writes from two threads at once; nothing is lost, and every write is read by the other."""
    stores = [open_store(address) for _ in range(2)]

    def write(number: int) -> None:
        for step in range(10):
            stores[number % 2].add([[event(f"{number}-{step}", step)]])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        assert len(items(store, "u", 100)) == 40
        store.close()


def test_tables_of_another_version_are_refused(address: str) -> None:
    open_store(address).close()
    if address.startswith("postgresql"):
        import psycopg

        with psycopg.connect(address) as connection:
            connection.execute("UPDATE abaca_store SET version = 99")
    else:
        with sqlite3.connect(address) as file:
            file.execute("UPDATE abaca_store SET version = 99")
        file.close()
    with pytest.raises(StoreError, match="version 99, this release reads versions 1 to 2"):
        open_store(address)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened as a store"):
        open_store(str(tmp_path / "missing" / "events.db"))
    (tmp_path / "text").write_text("this is not a database, but long enough to be one" * 50)
    with pytest.raises(StoreError, match="cannot be opened as a store"):
        open_store(str(tmp_path / "text"))
    with pytest.raises(StoreError, match="would lose everything"):
        open_store(":memory:")
    with pytest.raises(StoreError, match="--store cannot be 'mysql://…'"):
        open_store("mysql://host/name")
    with pytest.raises(StoreError, match="the PostgreSQL store cannot be opened"):
        open_store(f"postgresql://nobody@/none?host={tmp_path}")


def test_a_file_that_another_server_is_just_making_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says at once that it is locked, whatever the timeout of the connection."""

    class Locked:
        times = 3

        def execute(self, sql: str) -> None:
            self.times -= 1
            if self.times > 0:
                raise sqlite3.OperationalError("database is locked")

    connection = Locked()
    sqlite.use_write_ahead_log(connection)  # type: ignore[arg-type]
    assert connection.times == 0
    monkeypatch.setattr(sqlite, "SECONDS", 0.0)
    with pytest.raises(sqlite3.OperationalError):
        sqlite.use_write_ahead_log(Locked())  # type: ignore[arg-type]


def test_sqlite_syncs_every_commit(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "events.db"))
    writer = store._writer  # type: ignore[attr-defined]
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_a_database_that_comes_back_is_found_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart breaks every connection; the next call succeeds. While it is away, callers are told to wait."""
    store = open_store(cluster.database("restarted"))
    store.add([[event("a", 1)]])
    cluster.stop()
    monkeypatch.setattr(postgres, "SECONDS", 3.0)
    monkeypatch.setattr(postgres, "CHECK_SECONDS", 0.2)
    with pytest.raises(BusyError, match="cannot be reached"):
        store.check()
    cluster.start()
    assert store.add([[event("b", 2)]]) == [1]
    cluster.stop()
    cluster.start()
    assert items(store, "u", 9) == ["a", "b"]
    store.close()


def test_recommendations_follow_the_remembered_history(serve: Serve, store: Store, shop: Shop) -> None:
    client = serve(store=store)
    assert client.get("/model").json()["store"] is True
    assert client.get("/ready").status_code == 200
    late = {"events": [{"user": 7, "item": 3, "time": 30}, {"user": "7", "item": "5", "time": 10.5, "id": "x"}]}
    assert client.post("/events", json=late).json() == {"stored": 2, "duplicates": 0}
    early = {"events": [{"user": "7", "item": 4, "time": 20}, {"user": "7", "item": 5, "time": 99, "id": "x"}]}
    assert client.post("/events", json=early).json() == {"stored": 1, "duplicates": 1}
    stored = client.get("/users/7/history").json()["items"]
    assert [(item["id"], item["time"]) for item in stored] == [(5, 10.5), (4, 20), (3, 30)]
    found = client.get("/users/7/recommendations", params={"n": 5, "repeats": "exclude", "model": "softmax"}).json()
    expected = abaca.load(shop.softmax).recommend([5, 4, 3], 5, repeats="exclude")
    assert [item["id"] for item in found["items"]] == expected.ids
    assert (found["user"], found["events"], found["model"]) == ("7", 3, "softmax")
    client.post("/events", json={"events": [{"user": 7, "item": "odd"}]})
    assert client.get("/users/7/recommendations").json()["unknown"] == ["odd"]
    assert "abaca_unknown_ids_total 1.0" in client.get("/metrics").text
    stranger = client.get("/users/somebody/recommendations").json()
    assert stranger["events"] == 0
    assert {item["partition"] for item in stranger["items"]} == {"popular"}
    assert client.request("DELETE", "/users/7").json() == {"deleted": 4}
    assert client.get("/users/7/history").json()["items"] == []
    assert 'abaca_events_total{result="duplicate"} 1.0' in client.get("/metrics").text


def test_users_are_found_by_a_part_of_their_id(
    serve: Serve, store: Store, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["100%", "Anna", "anna/1", "bert", "joanna", "zoe"]
    store.add([[event(f"{name} {time}", time, user=name) for name in names for time in range(2)]])
    client = serve([shop.cpr], store=store)

    def find(**query: str | int) -> tuple[list[str], str | None]:
        page = client.get("/users", params=query).raise_for_status().json()
        return page["users"], page["next"]

    everyone, following = find(n=4)
    while following is not None:
        more, following = find(n=4, after=following)
        everyone += more
    assert sorted(everyone) == sorted(names)
    assert sorted(find(q="ANNA")[0]) == ["Anna", "anna/1", "joanna"]
    assert find(q="nobody") == ([], None)
    assert find(q="%") == (["100%"], None)
    first, following = find(q="anna", n=2)
    assert len(first) == 2
    assert following == first[-1]
    rest, end = find(q="anna", n=2, after=following)
    assert sorted(first + rest) == ["Anna", "anna/1", "joanna"]
    assert end is None
    monkeypatch.setattr(app, "MOST_READ", 5)  # a page may end before a match: the next one continues
    found, following = find(q="zoe")
    assert (found, following is None) == ([], False)
    assert find(q="zoe", after=str(following)) == (["zoe"], None)
    for wrong in ({"n": 0}, {"n": 101}, {"size": 3}, {"after": "a\u0000"}, {"q": "x" * 201}):
        assert client.get("/users", params=wrong).status_code == 422


@pytest.mark.parametrize(
    "events",
    [
        [],
        [{}],
        [{"user": 1}],
        [{"user": "", "item": 1}],
        [{"user": 1, "item": 1.5}],
        [{"user": 1, "item": 1, "time": "now"}],
        [{"user": 1, "item": ""}],
        [{"user": 1, "item": 1, "time": 1e300}],
        [{"user": 1, "item": 1, "time": 1e10}],  # hundreds of years ahead
        [{"user": 1, "item": 1, "id": ""}],
        [{"user": 1, "item": 1, "id": 5}],
        [{"user": 1, "item": 1, "when": 5}],
        [{"user": "a\u0000", "item": 1}],
        [{"user": "a\nb", "item": 1}],  # no address could name it again
        [{"user": 1, "item": 1}] * 1001,
        "events",
    ],
)
def test_events_that_do_not_fit_are_refused(serve: Serve, shop: Shop, tmp_path: Path, events: object) -> None:
    store = open_store(str(tmp_path / "events.db"))
    refused = serve([shop.cpr], store=store).post("/events", json={"events": events})
    assert refused.status_code == 422
    assert refused.json()["hint"]
    assert items(store, "1", 9) == []


def test_a_store_that_is_away_is_a_503(serve: Serve, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "events.db"))
    client = serve(store=store)
    with sqlite3.connect(tmp_path / "events.db") as other:
        other.execute("DROP TABLE abaca_events")
    other.close()
    for answer in (client.post("/events", json={"events": [{"user": 1, "item": 1}]}), client.get("/users/1/history")):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "the store cannot be used now" in answer.json()["detail"]

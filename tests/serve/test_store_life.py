"""The life of a store on both real databases: migrated, backed up, restored, exported, erased, pruned."""

import json
import logging
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from abaca.errors import StoreError
from abaca.serve import life
from abaca.serve.events import Event, Store
from abaca.serve.feedback import Feedback, add_feedback
from abaca.serve.store import open_store
from commandline import Cli
from faults import largest_file

from .samples import Serve

NOW = time.time()


def event(id: str, user: str = "u", item: str = "tea", moment: float = NOW - 100) -> Event:
    return Event(id, user, item, moment)


def shown(id: str, user: str = "u") -> Feedback:
    return Feedback(id, user, "tea", NOW - 50, "shown", "model")


def history(store: Store, user: str = "u") -> list[str]:
    return [past.item for past in store.history(user, 100)]


def test_a_late_copy_does_not_bring_an_erased_user_back(store: Store) -> None:
    store.add([[event("a"), event("b", moment=NOW + 1e6), event("x", "other")]])
    add_feedback(store, [shown("f")])
    assert store.forget("u", "an officer") == 2
    late = [event("a"), event("b", moment=NOW + 1e6), event("never seen"), event("a", moment=time.time() + 1e6)]
    late += [event("typed")._replace(type="view")]
    assert store.add([late, [event("y", "other")]]) == [0, 1]
    assert add_feedback(store, [shown("f"), shown("g")]) == 0
    assert history(store) == []
    assert history(store, "other") == ["tea", "tea"]
    assert store.add([[event("new", item="milk", moment=time.time() + 1)]]) == [1]  # the user came back
    assert history(store) == ["milk"]
    assert store.forget("u") == 1


def test_a_user_with_many_events_is_erased(store: Store) -> None:
    """More than one statement can name."""
    many = [event(f"{number}", moment=NOW + 1e6) for number in range(1201)]
    store.add([many])
    assert store.forget("u") == 1201
    assert store.add([many]) == [0]
    assert life.figures(store)["erased"] == 1202


def test_a_tombstone_holds_no_name(store: Store) -> None:
    store.add([[event("event-of-anna", "anna@example.org")]])
    store.forget("anna@example.org")
    rows = [str(row) for table in ("erased", "audit", "events") for row in store._read(f"SELECT * FROM abaca_{table}")]
    assert len(rows) == 3
    assert not any("anna" in row for row in rows)


def test_erasure_removes_the_bytes(tmp_path: Path) -> None:
    """Not only the rows: nothing of the user is left in the file or in its write-ahead log, while it is open."""
    path = tmp_path / "events.db"
    store = open_store(str(path))
    for number in range(200):
        store.add([[event(f"id-of-anna-{number}", "user-anna", f"item-{number}"), event(f"o{number}", "bert")]])

    def held(word: bytes) -> bool:
        return any(word in file.read_bytes() for file in tmp_path.iterdir())

    assert held(b"anna")
    store.forget("user-anna")
    assert not held(b"anna")
    assert held(b"bert")
    store.prune(NOW)
    assert not held(b"bert")
    store.close()


def test_a_store_that_is_open_knows_the_tombstones_of_a_backup(tmp_path: Path) -> None:
    """A server runs on a new store; a backup with another salt is restored into it."""
    first = open_store(str(tmp_path / "first.db"))
    first.add([[event("a")]])
    first.forget("u")
    life.backup(first, tmp_path / "backup.db")
    server, line = open_store(str(tmp_path / "new.db")), open_store(str(tmp_path / "new.db"))
    life.restore(line, tmp_path / "backup.db", "me")
    assert server.add([[event("a")]]) == [0]
    server.add([[event("b", "other")]])
    assert server.forget("other") == 1
    again = open_store(str(tmp_path / "new.db"))
    assert again.add([[event("b", "other")]]) == [0]
    for opened in (first, server, line, again):
        opened.close()


def test_pruning_takes_what_is_older(store: Store) -> None:
    store.add([[event("old", item="old", moment=NOW - 5000), event("new", item="new")]])
    add_feedback(store, [shown("f")])
    assert store.prune(NOW - 1000, "cron") == 1
    assert history(store) == ["new"]
    assert store.prune(NOW + 1) == 2


def test_an_export_carries_times_and_all_that_is_stored(store: Store) -> None:
    store.add([[event("b", moment=1_700_000_000.5), Event("a", "u", "milk", 3, "view")]])
    add_feedback(store, [shown("f")])
    found = life.export_user(store, "u", "me")
    assert found["events"] == [
        {"id": "a", "item": "milk", "time": 3.0, "type": "view", "when": "1970-01-01T00:00:03Z"},
        {"id": "b", "item": "tea", "time": 1_700_000_000.5, "type": None, "when": "2023-11-14T22:13:20.500000Z"},
    ]
    assert [row["kind"] for row in found["feedback"]] == ["shown"]
    ((who, what, subject),) = store._read("SELECT who, what, subject FROM abaca_audit")
    assert (who, what, subject) == ("me", "export", found["subject"])


def test_a_backup_of_a_live_store_is_of_one_moment(store: Store, tmp_path: Path) -> None:
    """Pairs of events are stored together: a backup has both or none, however fast they come."""
    stop = threading.Event()
    stored: list[int] = []

    def write() -> None:
        while not stop.is_set():
            number = len(stored)
            store.add([[event(f"{number}-a"), event(f"{number}-b", "other")]])
            stored.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(3):
            known = len(stored)
            counts = life.backup(store, tmp_path / f"{number}.db")
            with sqlite3.connect(tmp_path / f"{number}.db") as file:
                ids = {id for (id,) in file.execute("SELECT id FROM abaca_events")}
            file.close()
            assert {id[:-2] for id in ids if id.endswith("a")} == {id[:-2] for id in ids if id.endswith("b")}
            assert len(ids) == counts["events"] >= 2 * known
    finally:
        stop.set()
        thread.join()


def test_a_backup_is_restored_and_the_erased_stay_erased(store: Store, address: str, tmp_path: Path) -> None:
    store.add([[event("a"), event("b", item="milk")._replace(type="view"), event("x", "other")]])
    add_feedback(store, [shown("f"), shown("g", "other")])
    store.forget("somebody")
    life.backup(store, tmp_path / "backup.db")
    store.forget("u")
    store.add([[event("z", "other", "bread", NOW)]])
    assert life.restore(store, tmp_path / "backup.db", "me") == {"events": 0, "feedback": 0}
    assert (history(store), history(store, "other")) == ([], ["tea", "bread"])
    fresh = open_store(str(tmp_path / "fresh.db"))  # of the other database, where the store is in PostgreSQL
    assert life.restore(fresh, tmp_path / "backup.db", "me") == {"events": 3, "feedback": 2}
    assert life.restore(fresh, tmp_path / "backup.db", "me") == {"events": 0, "feedback": 0}
    assert [(past.item, past.type) for past in fresh.history("u", 9)] == [("tea", None), ("milk", "view")]
    assert [model for (model,) in fresh._read("SELECT model FROM abaca_feedback")] == ["model"] * 2
    assert fresh.add([[event("late", "somebody")]]) == [0]
    assert [what for (what,) in fresh._read("SELECT what FROM abaca_audit ORDER BY place")] == [
        "erase",
        "restore",
        "restore",
    ]
    other = open_store(str(tmp_path / "third.db"))
    other.add([[event("q")]])
    with pytest.raises(StoreError, match="is a backup of another store"):
        life.restore(other, tmp_path / "backup.db", "me")
    fresh.close()
    other.close()


def test_a_backup_on_a_full_disk_leaves_the_one_before(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "events.db"))
    life.backup(store, tmp_path / "backup.db")
    before = (tmp_path / "backup.db").read_bytes()
    store.add([[event(f"{number}", item="x" * 400) for number in range(500)]])
    with largest_file(len(before) + 8192), pytest.raises(StoreError, match=r"backup\.db cannot be written"):
        life.backup(store, tmp_path / "backup.db")
    assert (tmp_path / "backup.db").read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("backup*")) == ["backup.db"]
    store.close()


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "events.db"))
    (tmp_path / "text").write_text("no database " * 500)
    sqlite3.connect(tmp_path / "empty.db").close()
    for name in ("text", "empty.db", "missing"):
        with pytest.raises(StoreError, match=r"is no backup of a store|damaged or no backup"):
            life.restore(store, tmp_path / name, "me")
    store.close()


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = open_store(str(path))
    store.add([[event(f"{number}", f"user {number % 50}", "x" * 100) for number in range(3000)]])
    assert life.figures(store)["faults"] == []
    store.close()
    content = bytearray(path.read_bytes())
    for place in range(40_960, 45_056):
        content[place] = 255
    path.write_bytes(content)
    damaged = open_store(str(path))
    assert life.figures(damaged)["faults"] != []
    damaged.close()


def test_figures_count_what_is_there(store: Store) -> None:
    store.add([[event("a", moment=0.0), event("b", "other", moment=86_400.0)]])
    found = life.figures(store)
    assert (found["version"], found["events"], found["users"], found["erased"]) == (2, 2, 2, 0)
    assert (found["first"], found["last"]) == ("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z")


def test_a_server_logs_who_read_erased_and_reloaded(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(str(tmp_path / "events.db"))
    client = serve(store=store, admin_port=80)
    client.post("/events", json={"events": [{"user": "anna", "item": 1, "time": 5}]})
    caplog.set_level(logging.INFO, "abaca.audit")
    assert client.get("/users/anna/history").status_code == 200
    assert client.request("DELETE", "/users/anna").json() == {"deleted": 1}
    client.post("/model/reload")
    entries = [record.entry for record in caplog.records if record.name == "abaca.audit"]  # type: ignore[attr-defined]
    assert [entry["what"] for entry in entries][:2] == ["read history", "erase"]
    assert {entry["subject"] for entry in entries[:2]} == {store.subject("anna")}
    assert all(entry["who"].startswith("anyone at ") for entry in entries)
    assert "anna" not in str(entries)
    assert client.post("/events", json={"events": [{"user": "anna", "item": 1, "time": 5}]}).json()["stored"] == 0


def test_the_life_of_a_store_on_the_command_line(address: str, tmp_path: Path, cli: Cli) -> None:
    store = open_store(address)
    store.add([[event("a"), event("b", "other", moment=NOW - 400 * 86_400)]])
    store.close()

    assert cli("store", "check", address, "--json").json["events"] == 2
    assert "2 events" in cli("store", "backup", address, tmp_path / "backup.db").done
    assert cli("store", "export", address, "u").json["events"][0]["id"] == "a"
    assert cli("store", "export", address, "u", "--to", tmp_path / "u.json").code == 0
    assert json.loads((tmp_path / "u.json").read_text())["user"] == "u"
    assert cli("store", "erase", address, "u", "--json").json == {"deleted": 1}
    assert "1 rows deleted" in cli("store", "prune", address, "--older-than", "365d").done
    assert "restored 1 events" in cli("store", "restore", address, tmp_path / "backup.db").done
    assert "faults    none" in cli("store", "check", address).done
    refused = cli("store", "prune", address, "--older-than", "soon")
    assert refused.code == 2
    assert "is not an age" in refused.error


@pytest.mark.parametrize("command", ["check", "prune", "report", "backup", "restore", "export", "erase"])
def test_the_help_names_the_variable_where_it_is_read(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    open_store(str(tmp_path / "events.db")).close()
    monkeypatch.setenv("ABACA_STORE", str(tmp_path / "events.db"))
    rest = {"check": [], "prune": ["--older-than", "1d"], "report": []}.get(command, ["c7"])
    found = cli("store", command, *rest)
    assert ("ABACA_STORE" in cli("store", command, "--help").out) == (found.code == 0), found.error


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, cli: Cli) -> None:
    found = cli("store", "check", tmp_path / "events.db")
    assert found.code == 2
    assert "does not exist" in found.error
    assert not (tmp_path / "events.db").exists()


@pytest.mark.parametrize("address", [
    "postgresql://anna:s3cr3t@pass@localhost:1/store",
    "postgresql://anna:s3cr3t@localhost:port/store",
    "postgresql://anna:s3cr3t@127.0.0.1:1/store",
    "postgresql://anna:s3cr3t@localhost/store?what=s3cr3t",
])  # fmt: skip
def test_no_message_holds_a_password(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(address)
    assert "s3cr3t" not in str(caught.value)
    assert "pass@" not in str(caught.value)

"""An event that was acknowledged survives a power loss: the disk keeps what was synced, and any part of the rest."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest

from abaca.serve import readiness
from abaca.serve.store import open_store

from . import power
from .databases import Cluster, pg_bin
from .samples import Live, Shop
from .test_kill import CLIENTS, Row, Sender, kept

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None, reason="writes are recorded by a library in C"
)
EVENTS = 1000
ROUNDS = 20
SHARES = 0.0, 0.5, 0.9
"""How much of what was not synced a power loss spares."""


Rows = Callable[[Path], Iterable[Row]]


class Noting(Sender):
    """Knows what was recorded before each acknowledgement arrived."""

    def __init__(self, log: Path) -> None:
        super().__init__(seed=3)
        self.log, self.at = log, dict[Row, int]()

    def acknowledge(self, rows: set[Row]) -> None:
        size = self.log.stat().st_size
        with self.lock:
            self.at.update(dict.fromkeys(rows, size))
            self.acknowledged |= rows


def lost(at: Mapping[Row, int], log: Path, state: power.Disk, to: Path, rows: Rows) -> list[int]:
    """The power is lost at random moments: how many of the events that were acknowledged are lost each time."""
    rng, found = random.Random(4), list[int]()
    moments = sorted(rng.randrange(min(at.values()), log.stat().st_size) for _ in range(ROUNDS))
    for record in power.read(log):
        while moments and record.end > moments[0]:
            state.lose_power(to, rng.choice(SHARES), rng)
            expected = {row for row, moment in at.items() if moment <= moments[0]}
            found.append(len(expected - set(rows(to))))
            shutil.rmtree(to)
            moments.pop(0)
        state.replay(record)
    assert len(found) == ROUNDS
    return found


COMMITS = """
import os, sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("PRAGMA journal_mode = WAL")
file.execute(f"PRAGMA synchronous = {sys.argv[2]}")
file.execute("CREATE TABLE t (number)")
for number in range(200):
    file.execute("INSERT INTO t VALUES (?)", (number,))
    print(number, os.stat(sys.argv[3]).st_size)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_a_commit_that_was_not_synced_is_lost(disk: Path, synchronous: str) -> None:
    """What these tests rest on: NORMAL does not sync the write-ahead log at each commit."""
    data, before, log = disk / "data", disk / "before", disk / "record"
    data.mkdir()
    before.mkdir()
    command = [sys.executable, "-c", COMMITS, data / "file", synchronous, log]
    environment = {**os.environ, **power.recording(power.build(disk), data, log)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    at = {(number, "", 0.0): int(size) for number, size in map(str.split, done.stdout.splitlines())}

    def rows(to: Path) -> list[Row]:
        with closing(sqlite3.connect(to / "file")) as file, suppress(sqlite3.OperationalError):  # the table is lost
            return [(str(number), "", 0.0) for (number,) in file.execute("SELECT number FROM t")]
        return []

    assert len(at) == 200
    found = lost(at, log, power.Disk(data, before), disk / "after", rows)
    assert (found == [0] * ROUNDS) == (synchronous == "FULL")


def send(server: Live, sender: Sender) -> None:
    threads = [threading.Thread(target=sender.run, args=(server.url,)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while len(sender.acknowledged) < EVENTS:
        time.sleep(0.01)
    server.process.kill()
    for thread in threads:
        thread.join()
    server.end("kill")


def checked(sender: Sender, found: Counter[Row]) -> Counter[Row]:
    """Nothing is there twice, and nothing that nobody sent."""
    assert set(found) <= sender.sent
    assert set(found.values()) <= {1}
    return found


@pytest.mark.slow
def test_sqlite_keeps_what_was_acknowledged(shop: Shop, disk: Path) -> None:
    data, before, log = disk / "data", disk / "before", disk / "record"
    data.mkdir()
    before.mkdir()
    sender = Noting(log)
    environment = power.recording(power.build(disk), data, log)
    send(Live(shop.cpr, "--store", data / "events.db", **environment).ready(), sender)

    def rows(to: Path) -> Counter[Row]:
        store = open_store(str(to / "events.db"))
        assert store.faults() == []
        store.close()
        return checked(sender, kept(str(to / "events.db")))

    assert lost(sender.at, log, power.Disk(data, before), disk / "after", rows) == [0] * ROUNDS


@pytest.mark.slow
def test_a_disk_that_fails_is_a_503_and_costs_no_acknowledged_event(shop: Shop, disk: Path) -> None:
    """Every write and every sync of the store fails for a while with an I/O error."""
    data, sign = disk / "data", disk / "failing"
    data.mkdir()
    environment = power.recording(power.build(disk), data, disk / "record")
    server = Live(shop.cpr, "--store", data / "events.db", FAIL_WHILE=str(sign), **environment).ready()

    def store(number: int) -> int:
        body = {"events": [{"user": "u", "item": number, "time": number}]}
        return server.client.post("/events", json=body).status_code

    assert [store(number) for number in range(5)] == [200] * 5
    sign.touch()
    assert [store(number) for number in range(5, 10)] == [503] * 5
    time.sleep(readiness.FRESH_SECONDS)
    assert server.client.get("/ready").status_code == 503
    assert server.client.post("/recommend", json={"history": [1]}).status_code == 200
    sign.unlink()
    assert [store(number) for number in range(10, 15)] == [200] * 5
    time.sleep(readiness.FRESH_SECONDS)
    assert server.client.get("/ready").status_code == 200
    server.end("kill")
    found = {int(item) for _, item, _ in kept(str(data / "events.db"))}
    assert {*range(5), *range(10, 15)} <= found <= set(range(15))


@pytest.mark.slow
def test_postgres_keeps_what_was_acknowledged(shop: Shop, disk: Path) -> None:
    programs = pg_bin()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    cluster = Cluster(programs)
    data, before, log = cluster.folder / "data", disk / "before", cluster.folder / "record"
    address = cluster.database("lost")
    cluster.stop()
    shutil.copytree(data, before)
    log.touch()
    log.chmod(0o666)
    cluster.start(**power.recording(power.build(cluster.folder), data, log))
    sender = Noting(log)
    send(Live(shop.cpr, "--store", address).ready(), sender)
    cluster.stop("immediate")
    shutil.rmtree(data)

    def rows(to: Path) -> Counter[Row]:
        (to / "postmaster.pid").unlink(missing_ok=True)
        for path in (to, *to.rglob("*")):
            shutil.chown(path, cluster.user)
        cluster.start("-c fsync=off")  # what it writes now need not last
        try:
            return checked(sender, kept(address))
        finally:
            cluster.stop("immediate")

    assert lost(sender.at, log, power.Disk(data, before), data, rows) == [0] * ROUNDS
    shutil.rmtree(cluster.folder)

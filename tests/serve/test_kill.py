"""An event that was acknowledged survives `kill -9`, once, on both databases."""

import itertools
import random
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2
import psycopg
import pytest

from .databases import KINDS, Cluster
from .samples import Forked, Shop

EVENTS = 10_000
KILLS = 20
CLIENTS = 4

Row = tuple[str, str, float]


class Sender:
    """Sends events until the server is gone, and knows which ones were acknowledged.

    Every second event has an id and is sent again, after the next start, until it is acknowledged; the others are
    sent once.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.acknowledged: set[Row] = set()
        self.sent: set[Row] = set()
        self.again: list[dict[str, object]] = []

    def next(self) -> list[dict[str, object]]:
        """A few events: those that must be sent again first."""
        with self.lock:
            many = self.rng.randint(1, 3)
            events, self.again = self.again[:many], self.again[many:]
            while len(events) < many:
                number = next(self.numbers)
                made: dict[str, object] = {"user": f"u{number % 50}", "item": number, "time": float(number)}
                events.append({**made, "id": f"e{number}"} if number % 2 else made)
            self.sent |= {row(event) for event in events}
            return events

    def run(self, url: str) -> None:
        with httpx2.Client(base_url=url, timeout=60) as client:
            while True:
                events = self.next()
                try:
                    client.post("/events", json={"events": events}).raise_for_status()
                except httpx2.HTTPError:
                    with self.lock:
                        self.again += [event for event in events if "id" in event]
                    return
                self.acknowledge({row(event) for event in events})

    def acknowledge(self, rows: set[Row]) -> None:
        with self.lock:
            self.acknowledged |= rows


def row(event: dict[str, object]) -> Row:
    return str(event["user"]), str(event["item"]), float(str(event["time"]))


def kept(address: str) -> Counter[Row]:
    """What the database holds, read without the server."""
    sql = 'SELECT "user", item, time FROM abaca_events'
    if address.startswith("postgresql"):
        with psycopg.connect(address) as connection:
            return Counter(connection.execute(sql).fetchall())
    file = sqlite3.connect(address)
    rows = Counter(file.execute(sql).fetchall())
    file.close()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_acknowledged_event_is_there_once(
    kind: str, shop: Shop, disk: Path, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster | None = request.getfixturevalue("cluster") if kind == "postgres" else None
    address = str(disk / "events.db") if cluster is None else cluster.database("killed")
    sender = Sender(seed=1)
    for number in range(1, KILLS + 1):
        server = Forked(shop.cpr, "--store", address)
        threads = [threading.Thread(target=sender.run, args=(server.url,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while len(sender.acknowledged) < number * EVENTS // KILLS:
            time.sleep(0.002)
        time.sleep(sender.rng.random() / 10)
        if cluster is not None and number % 4 == 0:
            cluster.stop("immediate")  # the database crashes too
        server.process.kill()
        for thread in threads:
            thread.join()
        server.end("kill")
        if cluster is not None and number % 4 == 0:
            cluster.start()
        found = kept(address)
        assert sender.acknowledged <= set(found)
        assert set(found) <= sender.sent
        assert set(found.values()) == {1}
    assert len(sender.acknowledged) >= EVENTS

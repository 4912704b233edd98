"""Several workers behind one port: they share the load, agree, replace each other, and end together."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import psutil
import pytest

import abaca
from models import untrained

from .samples import Live, Shop

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("workers") / "model"
    untrained(made, "softmax+C+habits+followers")
    return made


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    options = ("--store", folder.parent / "events.db", "--learn", "--workers", "2", "--admin-port", "0")
    server = Live(folder, *options).ready()
    yield server
    code, log = server.end()
    assert code == 0
    assert not [line for line in log if '"error"' in line and "worker" not in line]


def processes(live: Live) -> list[psutil.Process]:
    return psutil.Process(live.process.pid).children()


def clients(live: Live, opened: ExitStack) -> list[httpx2.Client]:
    """Two connections: the supervisor gives each to the worker that has fewer."""
    made = [opened.enter_context(httpx2.Client(base_url=live.url, timeout=120)) for _ in range(2)]
    for client in made:
        assert client.get("/health").status_code == 200
    return made


def within_bound(check: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not check():
        assert time.monotonic() < until
        time.sleep(0.05)


def answered(text: str) -> dict[str, float]:
    found = re.findall(r'abaca_requests_total\{[^}]*route="/health"[^}]*worker="(\d)"[^}]*\} (\S+)', text)
    return {worker: float(value) for worker, value in found}


def test_connections_are_shared_and_metrics_are_of_all_workers(live: Live) -> None:
    live.client.close()
    with ExitStack() as opened:
        first, second = clients(live, opened)
        before = answered(first.get("/metrics").text)
        for _ in range(5):
            first.get("/health")
            second.get("/health")
        after = answered(second.get("/metrics").text)
    assert {worker: after[worker] - before[worker] for worker in after} == {"0": 5.0, "1": 5.0}


def test_what_one_worker_learned_or_erased_the_other_knows(live: Live) -> None:
    def followers(client: httpx2.Client) -> dict[str, float]:
        found = client.post("/recommend", json={"history": ["i3"], "n": 40}).json()["answers"][0]["items"]
        return {item["id"]: item["terms"]["followers"] for item in found}

    with ExitStack() as opened:
        first, second = clients(live, opened)
        plain = followers(first)
        assert followers(second) == plain
        for number in range(20):
            events = [{"user": f"u{number}", "item": item, "time": number} for item in ("i3", "pesto")]
            assert (first, second)[number % 2].post("/events", json={"events": events}).status_code == 200
        within_bound(lambda: "pesto" in followers(first) and followers(first) == followers(second))
        assert first.get("/metrics").text.count("abaca_learned_events{") == 2
        for number in range(20):
            assert (first, second)[number % 3 == 0].delete(f"/users/u{number}").json() == {"deleted": 2}
        within_bound(lambda: followers(first) == followers(second) == plain)


def test_a_reload_is_of_all_workers(live: Live, folder: Path) -> None:
    def versions(both: list[httpx2.Client]) -> set[str]:
        return {client.get("/model").json()["models"][0]["version"] for client in both}

    admin = live.line().split()[-1]
    with ExitStack() as opened:
        both = clients(live, opened)
        (first,) = versions(both)
        saved = abaca.load(folder)
        assert saved.saved is not None
        saved.saved.training["fingerprint"] = "another"
        with __import__("torch").no_grad():
            next(saved.saved.model.parameters()).mul_(1.01)
        saved.save(folder)
        assert httpx2.post(admin, timeout=120).status_code == 200
        within_bound(lambda: len(versions(both)) == 1 and versions(both) != {first})


def test_a_killed_worker_costs_only_its_own_requests_and_comes_back(live: Live) -> None:
    """Connections that are made after the kill are all answered, though the worker is not back yet."""
    victim = processes(live)[0]
    with ExitStack() as opened:
        both = clients(live, opened)
        victim.kill()
        for _ in range(30):
            assert httpx2.get(f"{live.url}/health", timeout=120).status_code == 200
        lost = 0
        for client in both:  # the connection to the other worker lives on
            try:
                client.get("/health")
            except httpx2.TransportError:
                lost += 1
        assert lost <= 1
    within_bound(lambda: len(processes(live)) == 2 and victim.pid not in {one.pid for one in processes(live)})
    within_bound(lambda: metrics(live).count("abaca_model_info{") == 2)


def test_the_end_waits_for_requests_of_all_workers(shop: Shop) -> None:
    """Two requests are begun, one at each worker; their bodies come when the port is closed already."""
    server = Live(shop.cpr, "--workers", "2").ready()
    host, port = server.url.removeprefix("http://").split(":")
    body = b'{"history": [1, 2]}'
    head = f"host: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    with ExitStack() as opened:
        begun = [opened.enter_context(socket.create_connection((host, int(port)), timeout=120)) for _ in range(2)]
        for connection in begun:
            connection.sendall(f"POST /recommend HTTP/1.1\r\n{head}expect: 100-continue\r\n\r\n".encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 100")  # the request is being received
        server.process.send_signal(signal.SIGTERM)
        within_bound(lambda: refuses(host, int(port)))
        for connection in begun:
            connection.sendall(body)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    assert server.process.wait(120) == 0
    server.end("kill")


def refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=120).close()
    except ConnectionRefusedError:
        return True
    return False


def metrics(server: Live) -> str:
    return httpx2.get(f"{server.url}/metrics", timeout=120).text


def test_workers_end_with_their_supervisor(shop: Shop) -> None:
    server = Live(shop.cpr, "--workers", "2").ready()
    workers = processes(server)
    assert len(workers) == 2
    server.end("kill")
    _, alive = psutil.wait_procs(workers, timeout=120)
    assert not alive


def test_a_model_that_cannot_be_read_ends_the_start(shop: Shop, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    shutil.copytree(shop.cpr, broken)
    next(broken.glob("weights-*")).write_bytes(b"")
    program = [sys.executable, "-m", "abaca", "serve", str(broken), "--port", "0", "--workers", "2"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "error:" in done.stderr
    assert all(json.loads(line)["level"] != "info" for line in done.stderr.splitlines() if line.startswith("{"))

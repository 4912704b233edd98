"""`abaca serve` as a process: signals, the admin port, an end that finishes what was begun."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import abaca
from abaca.cli.serve import command
from abaca.errors import UserError

from .samples import Live, Shop


@pytest.fixture
def folder(shop: Shop, tmp_path: Path) -> Path:
    """A model directory that may be changed."""
    copy = tmp_path / "model"
    shutil.copytree(shop.cpr, copy)
    return copy


@pytest.fixture
def live(folder: Path) -> Iterator[Live]:
    server = Live(folder, "--admin-port", "0").ready()
    yield server
    server.end("kill")


def version(server: Live) -> str:
    return str(server.client.get("/model").json()["models"][0]["version"])


def wait_until(server: Live, changed_from: str) -> str:
    deadline = time.monotonic() + 120
    while (now := version(server)) == changed_from:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return now


def test_it_reloads_by_signal_and_at_the_admin_port_and_ends_in_order(live: Live, folder: Path, shop: Shop) -> None:
    first = version(live)
    abaca.load(shop.softmax).save(folder)
    live.process.send_signal(signal.SIGHUP)
    second = wait_until(live, first)
    admin = live.line().split()[-1]
    abaca.load(shop.cpr).save(folder)
    assert live.client.post("/model/reload").status_code == 403
    assert httpx2.post(admin, timeout=120).json()["models"][0]["version"] == first
    assert version(live) == first != second
    next(folder.glob("weights-*")).write_bytes(b"")
    assert httpx2.post(admin, timeout=120).status_code == 409
    live.process.send_signal(signal.SIGHUP)
    assert live.client.post("/recommend", json={"history": [1]}).json()["version"] == first
    code, log = live.end()
    assert code == 0
    entries = [json.loads(line) for line in log if line.startswith("{")]  # libraries may write at the exit
    assert any("reload refused, the old models stay" in entry["message"] for entry in entries)
    assert not any("error" in entry for entry in entries)
    assert {entry.get("route") for entry in entries if entry["logger"] == "abaca.serve.access"} >= {
        "/recommend",
        "/model",
    }


def test_the_end_waits_for_requests_that_were_begun(live: Live) -> None:
    """A large request is sent, then the server is told to end: the answer still comes, whole."""
    answers: list[httpx2.Response] = []
    body = {"histories": [[item % 30 for item in range(start, start + 50)] for start in range(1000)], "n": 30}
    asking = threading.Thread(target=lambda: answers.append(live.client.post("/recommend", json=body)))
    before = live.client.get("/metrics").text
    assert 'route="/recommend"' not in before
    asking.start()
    deadline = time.monotonic() + 120
    while "abaca_waiting_histories 0.0" in httpx2.get(f"{live.url}/metrics", timeout=120).text and not answers:
        assert time.monotonic() < deadline
    live.process.send_signal(signal.SIGTERM)
    asking.join(120)
    assert answers[0].status_code == 200
    assert len(answers[0].json()["answers"]) == 1000
    assert live.process.wait(120) == 0


def test_what_cannot_be_served_is_refused_with_one_message(folder: Path, tmp_path: Path) -> None:
    short = tmp_path / "token"
    short.write_text("short\n")
    for arguments, said in (
        ([tmp_path / "nothing"], "is not a model directory"),
        ([folder, "--token-file", short], "at least 16"),
        ([folder, "--store", "mysql://x"], "--store cannot be 'mysql://…'"),
    ):
        program = [sys.executable, "-m", "abaca", "serve", *map(str, arguments)]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stdout == ""
        assert said in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


def test_without_the_extra_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "abaca.serve.worker", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r"needs the package uvicorn; pip install 'abaca\[serve\]'"):
        command([folder])


def test_a_port_that_is_taken_is_refused(live: Live, folder: Path) -> None:
    port = live.url.rsplit(":", 1)[1]
    program = [sys.executable, "-m", "abaca", "serve", str(folder), "--port", port]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"cannot listen at 127.0.0.1 port {port}" in " ".join(done.stderr.split())

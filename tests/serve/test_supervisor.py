"""The supervisor and the channels of workers, with small programs in the place of servers."""

import asyncio
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from abaca.serve import supervisor as module
from abaca.serve.supervisor import Supervisor, listen
from abaca.serve.worker import Place, Worker

START = """
import json, os, select, socket, sys, time
number, _, _, sockets, messages = map(int, os.environ["ABACA_WORKER"].split(":"))
sockets, messages = socket.socket(fileno=sockets), socket.socket(fileno=messages)
def ready():
    messages.sendall(json.dumps({"kind": "ready", "names": [], "closed": False}).encode() + b"\\n")
"""
IDLE = START + "ready(); messages.recv(1)"


async def until(check: Callable[[], bool]) -> None:
    """Wait until something is so, for a long time at most."""
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def supervised(program: str, count: int, test: Callable[[Supervisor, int], Awaitable[None]]) -> None:
    """Run a test with a supervisor of some workers, once all are ready, and its port."""

    async def run() -> None:
        listener = listen("127.0.0.1", 0)
        supervisor = Supervisor([sys.executable, "-S", "-c", program], count, [listener])
        ready = asyncio.Event()
        supervisor.announced = lambda message: ready.set()
        running = asyncio.create_task(supervisor.run())
        await asyncio.wait_for(ready.wait(), 60)
        try:
            await test(supervisor, listener.getsockname()[1])
        finally:
            supervisor._ending.set()
            await running

    asyncio.run(run())


def test_connections_that_no_worker_can_take_are_handed_over_later(tmp_path: Path) -> None:
    """The workers are busy until there is a file; then they answer all connections."""
    busy = f"""
ready()
while not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.02)
while True:
    found = select.select([sockets, messages], [], [])[0]
    if messages in found and not messages.recv(65536): sys.exit()
    if sockets in found:
        content, given, _, _ = socket.recv_fds(sockets, 1, 1)
        if not content: sys.exit()
        sockets.sendall(b"+")
        for one in given:
            with socket.socket(fileno=one) as connection: connection.sendall(b"hello")
            sockets.sendall(b"-")
"""

    async def test(supervisor: Supervisor, port: int) -> None:
        clients = []
        while not supervisor._homeless:
            assert len(clients) < 2000
            clients.append(await asyncio.open_connection("127.0.0.1", port))
        accepted = len(supervisor._homeless)
        more = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]  # they wait in the system
        await asyncio.sleep(3 * module.RETRY_SECONDS)
        assert len(supervisor._homeless) == accepted
        (tmp_path / "go").touch()
        for reader, writer in [*clients, *more]:
            assert await asyncio.wait_for(reader.read(), 60) == b"hello"
            writer.close()
        await until(lambda: not supervisor._homeless and not supervisor.slots[0].open)

    supervised(START + busy, 1, test)


def test_without_room_for_files_accepting_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_SECONDS", 0.2)
    tries = 0

    class Full:
        def accept(self) -> Any:
            nonlocal tries
            tries += 1
            raise OSError(errno.EMFILE, "Too many open files")

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

    listener = listen("127.0.0.1", 0)

    async def run() -> None:
        supervisor = Supervisor(["true"], 1, [Full()])  # type: ignore[list-item]
        supervisor.slots[0].ready = supervisor._announced = True
        supervisor._listen(True)
        with socket.create_connection(listener.getsockname()):
            await asyncio.sleep(1)
        supervisor._listen(False)

    with listener:
        asyncio.run(run())
    assert 2 <= tries <= 6


def test_a_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = asyncio.create_subprocess_exec, 0

    async def fails_twice(*arguments: Any, **options: Any) -> Any:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return await real(*arguments, **options)

    async def test(supervisor: Supervisor, port: int) -> None:
        (slot,) = supervisor.slots
        monkeypatch.setattr(asyncio, "create_subprocess_exec", fails_twice)
        files = len(os.listdir("/proc/self/fd"))
        assert slot.process is not None
        killed = slot.process.pid
        slot.process.kill()
        await until(lambda: slot.ready and slot.process is not None and slot.process.pid != killed)
        assert failures == 2
        assert len(os.listdir("/proc/self/fd")) <= files

    supervised(IDLE, 1, test)


def test_a_worker_that_is_starting_gets_messages_when_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second worker starts slowly, once it was killed; it writes down the lines that it reads."""
    slow = f"""
first = not os.path.exists({str(tmp_path / "begun")!r})
if number and not first:
    open({str(tmp_path / "starting")!r}, "w").close()
    while not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.02)
ready()
if number == 0:
    while not os.path.exists({str(tmp_path / "starting")!r}): time.sleep(0.02)
    for message in ({{"kind": "metrics", "id": 1}}, {{"kind": "forgotten", "user": "u"}}):
        messages.sendall(json.dumps(message).encode() + b"\\n")
with open({str(tmp_path)!r} + "/lines" + str(number), "ab", buffering=0) as lines:
    while content := messages.recv(65536): lines.write(content)
"""

    real, passed = module._send, []

    def send(slot: Any, content: bytes, **options: Any) -> None:
        passed.append(json.loads(content)["kind"])
        real(slot, content, **options)

    monkeypatch.setattr(module, "_send", send)

    async def test(supervisor: Supervisor, port: int) -> None:
        for name in ("begun", "lines0", "lines1"):
            (tmp_path / name).touch()
        process = supervisor.slots[1].process
        assert process is not None
        process.kill()
        await until(lambda: (tmp_path / "starting").exists())
        supervisor._reload()
        await until(lambda: "forgotten" in passed)
        (tmp_path / "go").touch()
        await until(lambda: (tmp_path / "lines1").read_bytes().count(b"\n") >= 2)
        kinds = [json.loads(line)["kind"] for line in (tmp_path / "lines1").read_bytes().splitlines()]
        assert sorted(kinds) == ["forgotten", "reload"]
        await until(lambda: b"reload" in (tmp_path / "lines0").read_bytes())

    supervised(START + slow, 2, test)


def test_signs_that_the_channel_had_no_room_for_are_sent_later() -> None:
    async def run() -> int:
        ours, theirs = socket.socketpair()
        others = socket.socketpair()
        ours.setblocking(False)
        worker = Worker(Place(0, 1, None, ours, others[0]))
        with ours, theirs, others[0], others[1]:
            for _ in range(5000):
                worker.ended()
            theirs.setblocking(False)
            told = 0
            while told < 5000:
                await asyncio.sleep(0)
                try:
                    told += theirs.recv(65536).count(b"-")
                except BlockingIOError:
                    assert worker._owed
            assert not worker._owed
            return told

    assert asyncio.run(run()) == 5000

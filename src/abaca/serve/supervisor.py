"""Several workers behind one port: this process accepts connections and hands each to the worker with the fewest.

A worker that dies costs the requests that it was answering. Connections that it did not have yet go to the others, and
it is started again. Messages of a worker are passed on to all others, or to one.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

logger = logging.getLogger(__name__)

VARIABLE = "ABACA_WORKER"
"""Set for workers: number, count, the admin port or 0, and the descriptors of connections and messages."""
END_SECONDS = 30.0
"""How long workers may take to end."""
STEADY_SECONDS = 30.0
"""A worker that ran for this time is started again at once; one that dies sooner waits, twice as long each time."""
LONGEST_PAUSE = 30.0
LONGEST_LINE = 32 << 20
"""Bytes of a message, and of messages that a worker has not read; it is then ended as hung."""
AT_ONCE = 64
RETRY_SECONDS = 0.05
"""Pause before a connection that no worker could take is handed over again."""
FULL_SECONDS = 1.0
"""Pause before connections are accepted again, where the process or the system has no room for more."""
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    opened = socket.socket(family, kind, number)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
    except OSError as error:
        opened.close()
        raise OSError(
            error.errno, f"cannot listen at {host} port {port}: {error.strerror}; choose another --port"
        ) from error
    opened.listen(1024)
    return opened


class _Slot:
    """One worker: its process and its channels, while it runs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.sockets: socket.socket | None = None
        self.messages: asyncio.StreamWriter | None = None
        self.ready = False
        self.open = 0
        """Connections that it has."""
        self.last = 0.0
        """When it got the last one."""
        self.handed: deque[socket.socket] = deque()
        """Connections that were handed to it and that it has not taken yet; others get them if it dies."""


class Supervisor:
    """Starts workers, keeps them running, and ends with them."""

    def __init__(self, command: Sequence[str], count: int, listeners: Sequence[socket.socket]) -> None:
        self.command, self.listeners = list(command), list(listeners)
        self.slots = [_Slot(number) for number in range(count)]
        self.announced: Callable[[dict[str, Any]], None] = lambda message: None
        """Called once, when all workers are ready, with the message of the last."""
        self.code = 0
        self._ending = asyncio.Event()
        self._first = asyncio.Event()
        """Set when the first worker is ready, or nothing is started any more."""
        self._announced = False
        self._homeless: deque[socket.socket] = deque()
        """Connections that were accepted and that no worker could take yet."""
        self._pausing: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; SIGHUP has all workers reload. The exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        keepers = [asyncio.create_task(self._keep(slot)) for slot in self.slots]
        await self._ending.wait()
        self._first.set()
        self._listen(False)
        for listener in self.listeners:
            listener.close()
        self._signal(signal.SIGTERM)
        _, late = await asyncio.wait(keepers, timeout=END_SECONDS)
        if late:
            logger.error("%d workers did not end in time", len(late))
            self._signal(signal.SIGKILL)
            await asyncio.wait(keepers)
        return self.code or int(bool(late))

    async def _keep(self, slot: _Slot) -> None:
        """Run one worker, again and again. The first one starts alone: what is wrong is then said once."""
        if slot.number:
            await self._first.wait()
        pause = 0.0
        while not self._ending.is_set():
            began = time.monotonic()
            code = await self._run_one(slot)
            if self._ending.is_set():
                return
            if not self._announced:  # it could not start, and wrote why
                self.code = code or 1
                self._ending.set()
                self._first.set()
                return
            steady = time.monotonic() - began > STEADY_SECONDS
            pause = 0.0 if steady else min(max(2 * pause, 0.1), LONGEST_PAUSE)
            logger.error("worker %d ended with code %d; it is started again in %.1f s", slot.number, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)

    async def _run_one(self, slot: _Slot) -> int:
        """Start a worker, pass its messages on, and wait for its end; its exit code."""
        try:
            slot.process, sockets, messages = await self._start(slot)
        except OSError as error:
            logger.error("worker %d cannot be started: %s", slot.number, error)
            return 1
        sockets.setblocking(False)
        slot.sockets, slot.open = sockets, 0
        asyncio.get_running_loop().add_reader(sockets, self._told, slot)
        reader, slot.messages = await asyncio.open_unix_connection(sock=messages, limit=LONGEST_LINE)
        if self._ending.is_set():
            slot.process.terminate()
        relaying = asyncio.create_task(self._relay(slot, reader))
        code = await slot.process.wait()
        slot.process = None
        self._told(slot)
        self._died(slot)
        relaying.cancel()
        slot.messages.close()
        sockets.close()
        slot.sockets = slot.messages = None
        return code

    async def _start(self, slot: _Slot) -> tuple[asyncio.subprocess.Process, socket.socket, socket.socket]:
        """The process of a worker, and the ends of its channels for connections and for messages."""
        with contextlib.ExitStack() as kept, contextlib.ExitStack() as given:
            sockets, theirs = _pair(kept, given)
            messages, others = _pair(kept, given)
            admin = self.listeners[1].getsockname()[1] if self.listeners[1:] else 0
            told = f"{slot.number}:{len(self.slots)}:{admin}:{theirs.fileno()}:{others.fileno()}"
            process = await asyncio.create_subprocess_exec(
                *self.command, env={**os.environ, VARIABLE: told}, pass_fds=(theirs.fileno(), others.fileno()),
                start_new_session=True,
            )  # fmt: skip
            kept.pop_all()
        return process, sockets, messages

    async def _relay(self, slot: _Slot, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = {**json.loads(line), "from": slot.number}
                if message["kind"] == "ready":
                    self._is_ready(slot, message)
                    continue
                content = json.dumps(message).encode() + b"\n"
                for other in self.slots:
                    if other is not slot and message.get("to") in (None, other.number):
                        _send(other, content, at_once="id" in message)

    def _reload(self) -> None:
        """Have every worker read its models again."""
        for slot in self.slots:
            _send(slot, b'{"kind": "reload", "who": "signal"}\n')

    def _is_ready(self, slot: _Slot, message: dict[str, Any]) -> None:
        slot.ready = True
        self._first.set()
        if not self._announced and all(one.ready for one in self.slots):
            self._announced = True
            self.announced(message)
        self._resume()

    def _pause(self, seconds: float) -> None:
        """Accept nothing for a moment."""
        self._listen(False)
        if self._pausing is None:
            self._pausing = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        """Hand over the connections that wait, then accept others."""
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None
        while self._homeless and self._place(self._homeless[0]):
            self._homeless.popleft()
        if self._homeless:
            self._pause(RETRY_SECONDS)
        elif self._announced and not self._ending.is_set():
            self._listen(True)

    def _listen(self, wanted: bool) -> None:
        """Accept connections, or leave them in the queue of the system."""
        loop = asyncio.get_running_loop()
        for listener in self.listeners:
            if listener.fileno() < 0:
                continue
            listener.setblocking(False)
            if wanted:
                loop.add_reader(listener, self._accept, listener)
            else:
                loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        """Hand new connections to the workers with the fewest."""
        for _ in range(AT_ONCE):
            if not any(slot.ready for slot in self.slots):
                return self._listen(False)
            try:
                connection, _ = listener.accept()
            except OSError as error:  # none is left, or the client is gone, or there is no room
                if error.errno in FULL:
                    logger.error("no connection is accepted for %g s: %s", FULL_SECONDS, error)
                    self._pause(FULL_SECONDS)
                return None
            if not self._place(connection):
                self._homeless.append(connection)
                return self._pause(RETRY_SECONDS)
        return None

    def _place(self, connection: socket.socket) -> bool:
        """Hand a connection to the worker with the fewest; False where none takes it now."""
        ready = [slot for slot in self.slots if slot.ready]
        return any(_hand_over(slot, connection) for slot in sorted(ready, key=lambda one: (one.open, one.last)))

    def _told(self, slot: _Slot) -> None:
        """A worker sends a byte for each connection that it took, and one for each that ended."""
        assert slot.sockets is not None
        told = b"?"
        while told:
            try:
                told = slot.sockets.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                told = b""
            slot.open -= told.count(b"-")
            for _ in range(told.count(b"+")):
                slot.handed.popleft().close()
        self._died(slot)

    def _died(self, slot: _Slot) -> None:
        """Give the others what a dead worker has not taken."""
        assert slot.sockets is not None
        asyncio.get_running_loop().remove_reader(slot.sockets)
        slot.ready = False
        if not any(one.ready for one in self.slots):
            self._listen(False)
        self._homeless.extend(slot.handed)
        slot.handed.clear()
        if self._homeless:
            self._resume()

    def _signal(self, number: int) -> None:
        for slot in self.slots:
            if slot.process is not None and slot.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    slot.process.send_signal(number)


def _pair(kept: contextlib.ExitStack, given: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """The two ends of a channel, each closed by its stack."""
    ours, theirs = socket.socketpair()
    return kept.enter_context(ours), given.enter_context(theirs)


def _hand_over(slot: _Slot, connection: socket.socket) -> bool:
    """Send a connection to a worker; False where it takes none now."""
    try:
        assert slot.sockets is not None
        socket.send_fds(slot.sockets, [b"+"], [connection.fileno()])
    except OSError:
        return False
    slot.open, slot.last = slot.open + 1, time.monotonic()
    slot.handed.append(connection)
    return True


def _send(slot: _Slot, content: bytes, *, at_once: bool = False) -> None:
    """Send a message; a worker that is starting reads it when it is ready, unless it is to be answered at once."""
    if slot.messages is None or (at_once and not slot.ready):
        return
    if slot.messages.transport.get_write_buffer_size() > LONGEST_LINE and slot.process is not None:
        logger.error("worker %d reads no messages; it is ended", slot.number)
        slot.process.kill()
        return
    slot.messages.write(content)


def own_command() -> list[str]:
    """The command that started this process."""
    return [sys.executable, "-m", "abaca", *sys.argv[1:]]

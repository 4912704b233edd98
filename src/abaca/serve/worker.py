"""A worker of a supervisor: it takes connections and messages from there, and ends with it."""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

import uvicorn

from abaca.serve.supervisor import LONGEST_LINE, VARIABLE

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 1.0
"""How long a worker waits for the answers of the others."""


class Place(NamedTuple):
    """Which worker this process is, and its channels."""

    number: int
    workers: int
    admin_port: int | None
    sockets: socket.socket
    messages: socket.socket


def place_of_worker() -> Place | None:
    """This process's place among the workers; None where it has no supervisor."""
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return None
    number, count, admin, sockets, messages = map(int, given.split(":"))
    return Place(number, count, admin or None, socket.socket(fileno=sockets), socket.socket(fileno=messages))


class Worker:
    """The channels of a worker, in its event loop."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.handlers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        """What to do with messages of other workers, by kind; a result is sent back."""
        self._owed = b""
        """Signs that the supervisor has not got yet: its channel was full."""
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = itertools.count()
        self._asked: dict[int, list[tuple[int, Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, server: uvicorn.Server, facts: dict[str, Any]) -> None:
        """Take connections and messages until the supervisor is gone."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self.place.messages, limit=LONGEST_LINE)
        while not server.started:
            await asyncio.sleep(0.01)
        self.place.sockets.setblocking(False)
        asyncio.get_running_loop().add_reader(self.place.sockets.fileno(), self._take, server)
        self.send("ready", **facts)
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self._start(self._handle(json.loads(line)))
        logger.error("the supervisor is gone; the worker ends")
        server.should_exit = True

    def ended(self) -> None:
        """Tell the supervisor that a connection ended."""
        self._sign(b"-")

    def _sign(self, sign: bytes = b"") -> None:
        """Send a sign to the supervisor, with those before it that its channel had no room for."""
        self._owed += sign
        loop, channel = asyncio.get_running_loop(), self.place.sockets.fileno()
        try:
            self._owed = self._owed[self.place.sockets.send(self._owed) :]
        except BlockingIOError:
            loop.add_writer(channel, self._sign)
        except OSError:  # the supervisor is gone
            self._owed = b""
        if not self._owed:
            loop.remove_writer(channel)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message to all other workers."""
        if self._writer is not None:
            self._writer.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    async def ask(self, kind: str) -> list[tuple[int, Any]]:
        """The answers of the other workers with their numbers, as far as they come in time."""
        number = next(self._numbers)
        answers = self._asked[number] = []
        self.send(kind, id=number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while len(answers) < self.place.workers - 1:
                    await asyncio.sleep(0.005)
        del self._asked[number]
        return answers

    async def _handle(self, message: dict[str, Any]) -> None:
        if message["kind"] == "answer":
            if message["id"] in self._asked:
                self._asked[message["id"]].append((message["from"], message["result"]))
            return
        try:
            result = await asyncio.to_thread(self.handlers[message["kind"]], message)
        except Exception:
            logger.exception("a message of another worker failed: %s", message["kind"])
            return
        if "id" in message:
            self.send("answer", to=message["from"], id=message["id"], result=result)

    def _take(self, server: uvicorn.Server) -> None:
        """Take one connection that the supervisor accepted."""
        try:
            content, descriptors, _, _ = socket.recv_fds(self.place.sockets, 1, 1)
        except (BlockingIOError, InterruptedError):
            return
        if not content:
            asyncio.get_running_loop().remove_reader(self.place.sockets.fileno())
            return
        self._sign(b"+")
        for descriptor in descriptors:
            self._start(self._connect(server, socket.socket(fileno=descriptor)))

    async def _connect(self, server: uvicorn.Server, connection: socket.socket) -> None:
        config, loop = server.config, asyncio.get_running_loop()
        connection.setblocking(False)

        kind: Any = config.http_protocol_class

        def protocol() -> Any:
            return kind(config=config, server_state=server.server_state, app_state=server.lifespan.state)

        try:
            _, made = await loop.connect_accepted_socket(protocol, connection)
        except OSError:  # the client is gone
            connection.close()
            return self.ended()
        if server.should_exit:  # it came too late to be told
            loop.call_later(1.0, made.shutdown)
        return None

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""HTTP connections with limits: the head of a request, the time to send it, the number of connections.

uvicorn's protocol over httptools parses. This subclass counts before it parses, so what is refused costs nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from abaca.serve.problems import problem

PROBES = ("/health", "/ready", "/metrics")
"""Addresses that are answered when every other connection is taken."""
PIPELINED = 16
"""Requests that may wait for the answer to an earlier one of their connection."""
LINGER_SECONDS = 1.0
"""How long a refused connection is read on, so that the client receives the refusal."""


@dataclass(frozen=True)
class Limits:
    """What one client may send, and how many may be connected."""

    head_bytes: int = 32 * 1024
    """Largest head: the first line and the header fields."""
    address_bytes: int = 16 * 1024
    """Longest address, with its parameters."""
    fields: int = 100
    """Most header fields."""
    head_seconds: float = 10.0
    """Longest time to send a head."""
    read_seconds: float = 30.0
    """How long a client may leave an answer unread."""
    connections: int = 1000
    """Most connections. Beyond them the longest half-sent or idle one is closed."""
    reserve: int = 32
    """Further connections that only ask probes, where no other is half-sent or idle."""


class Refusal(NamedTuple):
    """Why a connection is closed before there is a request."""

    status: int
    detail: str
    hint: str


class Hooks(NamedTuple):
    """Functions that are called by every connection."""

    note: Callable[[int], None]
    """With the status of each refusal."""
    ended: Callable[[], None] = lambda: None
    """When a connection is closed."""


MALFORMED = Refusal(400, "the request is not HTTP", "send a request of HTTP/1.1")
LATE = Refusal(408, "the head of the request came too slowly", "send it at once")
PIPELINE = Refusal(400, f"more than {PIPELINED} requests wait on one connection", "wait for answers")


class LimitedProtocol(HttpToolsProtocol):
    """A connection within limits; `limited` binds them."""

    limits: ClassVar[Limits]
    hooks: ClassVar[Hooks]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head, self._head, self._begun = True, 0, False
        self._why: Refusal | None = None
        self._refused = False
        self._since = self.loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def waiting(self) -> bool:
        """Whether no request is being answered: the head is half-sent, or the connection is idle."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start("head", self.limits.head_seconds, self._late)
        self._make_room()

    def _make_room(self) -> None:
        """Beyond the limit, close what has waited longest; where all are busy, answer probes only, or nothing."""
        if len(self.connections) <= self.limits.connections:
            return
        others = [one for one in self.connections if isinstance(one, LimitedProtocol) and one is not self]
        waiting = [one for one in others if one.waiting]
        if waiting:
            oldest = min(waiting, key=lambda one: (not one._begun and one.cycle is not None, one._since))
            self.connections.discard(oldest)
            self.hooks.note(503)
            oldest.transport.abort()
        elif len(self.connections) > self.limits.connections + self.limits.reserve:
            self.hooks.note(503)
            self.connections.discard(self)
            self.transport.abort()
        else:
            self.app = probes_only(self.app)

    def data_received(self, data: bytes) -> None:
        if self.waiting:
            self._start("head", self.limits.head_seconds, self._late)
        while data and not self._refused and not self.transport.is_closing():
            room = self.limits.head_bytes - self._head if self._in_head else len(data)
            if room <= 0:
                most = f"{self.limits.head_bytes:,} bytes"
                return self._refuse(Refusal(431, f"the head of the request has more than {most}", "send fewer fields"))
            piece, data = data[:room], data[room:]
            self._begun = True
            self._head += len(piece) if self._in_head else 0
            super().data_received(piece)
        return None

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.address_bytes:
            most = f"{self.limits.address_bytes:,} bytes"
            self._raise(Refusal(414, f"the address has more than {most}", "send a list in a body, as /docs describes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= self.limits.fields:
            self._raise(Refusal(431, f"the head has more than {self.limits.fields} fields", "send fewer fields"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop("head")
        self._in_head, self._head = False, 0
        if len(self.pipeline) >= PIPELINED:
            self._raise(PIPELINE)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.waiting:  # the body came after the answer: the connection is idle now
            self._stop("head")
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        self._in_head, self._head, self._begun = True, 0, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._start("read", self.limits.read_seconds, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop("read")
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for name in list(self._timers):
            self._stop(name)
        self.hooks.ended()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn where parsing failed, also by an error of a callback."""
        self._refuse(self._why or MALFORMED)

    def _late(self) -> None:
        """The head did not come in time; a client that sent nothing is not answered."""
        if self._begun and not self._refused:
            self._refuse(LATE)
        else:
            self.transport.abort()

    def _raise(self, why: Refusal) -> None:
        """Stop the parser, which then calls `send_400_response`."""
        self._why = why
        raise ValueError(why.detail)

    def _refuse(self, why: Refusal) -> None:
        """Answer, and read on for a moment: closing at once would destroy the answer on its way."""
        self._refused = True
        self.hooks.note(why.status)
        if not self.waiting or self.transport.is_closing():
            return self.transport.abort()
        answer = problem(*why, headers={"connection": "close"})
        fields = b"".join(b"%s: %s\r\n" % field for field in answer.raw_headers)
        self.transport.write(STATUS_LINE[why.status] + fields + b"\r\n" + bytes(answer.body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stop("head")
        return self._start("linger", LINGER_SECONDS, self.transport.abort)

    def _start(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, action)

    def _stop(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def limited(limits: Limits, hooks: Hooks) -> type[LimitedProtocol]:
    """The protocol under some limits."""

    class Bound(LimitedProtocol):
        pass

    Bound.limits, Bound.hooks = limits, hooks
    return Bound


def probes_only(app: ASGIApp) -> ASGIApp:
    """An application that answers probes, and everything else with 503."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            return await app(scope, receive, send)
        headers = {"retry-after": "1", "connection": "close"}
        busy = problem(503, "every connection is taken", "try again in a moment", headers)
        return await busy(scope, receive, send)

    return answer

"""Middleware of every endpoint: the log of requests, a deadline, limits of size."""

import asyncio
import logging
import time
import uuid

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abaca.serve.batching import DEADLINE
from abaca.serve.bodies import MOST_PARAMETERS
from abaca.serve.logs import JsonLines as JsonLines
from abaca.serve.metrics import Metrics
from abaca.serve.problems import HINTS, problem
from abaca.serve.tokens import RELOAD, TOKEN

access = logging.getLogger("abaca.serve.access")

MODEL_NAME = "abaca.model"
"""Where a request's scope holds the name of the model that answered."""
BODIES = 32
"""The largest bodies that are held at once, or smaller ones of the same size together."""

POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", POLICY.encode()),
]


class RequestLog:
    """Counts and logs each request, one JSON line each, under an id that errors repeat."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, status, sent = time.perf_counter(), 0, 0
        request_id = uuid.uuid4().hex

        async def record(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message.get("headers", []), *HEADERS, named]}
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, record)
        except asyncio.CancelledError:  # the server ends, and does not wait for this request any longer
            if not status:
                ending = problem(503, "the server is shutting down", HINTS[503], {"retry-after": "1"})
                await ending(scope, receive, record)
        except Exception:
            logging.getLogger(__name__).exception("request %s failed", request_id)
            answer = problem(500, "the server failed to answer", f"its log has the cause under {request_id}")
            if not status:
                await answer(scope, receive, record)
        finally:
            seconds = time.perf_counter() - began
            self._note(scope, {"status": status or 499, "bytes": sent, "request_id": request_id}, seconds)
        return None

    def _note(self, scope: Scope, facts: dict[str, int | str], seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", None)
        self.metrics.request(scope["method"], route, int(facts["status"]), seconds)
        path = "/users/…" if scope["path"].startswith("/users/") else scope["path"][:200]  # users are not for logs
        where = {"route": route} if route else {"path": path}
        client = (scope.get("client") or ("",))[0]
        entry = {"method": scope["method"], **where, **facts, "ms": round(seconds * 1000, 2), "client": client}
        if scope.get(TOKEN) is not None:
            entry["token"] = scope[TOKEN].name
        if scope.get(MODEL_NAME) is not None:
            entry["model"] = scope[MODEL_NAME]
        access.info("request", extra={"entry": entry})


class Deadline:
    """Answers 503 where an answer takes too long, or longer than the client waits; reloading has no deadline."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == RELOAD:
            return await self.app(scope, receive, send)
        named = dict(scope["headers"]).get(b"x-deadline-ms", b"")
        if named and not (named.isdigit() and int(named[:9]) > 0 and len(named) < 10):
            hint = "send the milliseconds that you wait, such as x-deadline-ms: 200"
            return await problem(400, "x-deadline-ms is not a whole number above 0", hint)(scope, receive, send)
        seconds = min(self.seconds, int(named) / 1000) if named else self.seconds
        DEADLINE.set(time.monotonic() + seconds)
        return await self._within(seconds, scope, receive, send)

    async def _within(self, seconds: float, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in time, or 503; what nobody waits for any more is taken from the queue."""
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(seconds):
                await self.app(scope, receive, watch)
        except TimeoutError:
            if started:
                raise
            late = f"no answer within {seconds:g} s"
            hint = "try again; send fewer histories at once or send the body faster"
            await problem(503, late, hint, {"retry-after": "1"})(scope, receive, send)


class SizeLimit:
    """Refuses a body that is too large, whatever its header says, and an address with too many parameters."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most = app, most
        self.refusal = f"the body has more than {most:,} bytes"
        self.held = 0
        """Bytes of all bodies that are being received or answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
            said = f"the address has more than {MOST_PARAMETERS} parameters"
            return await problem(422, said, HINTS[400])(scope, receive, send)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > self.most:
            return await problem(413, self.refusal, HINTS[413])(scope, receive, send)
        taken = 0

        async def take() -> Message:
            nonlocal taken
            message = await receive()
            size = len(message.get("body", b""))
            taken, self.held = taken + size, self.held + size
            if taken > self.most:
                raise HTTPException(413, self.refusal)
            if self.held > BODIES * self.most:
                raise HTTPException(503, "too many large bodies at once", {"retry-after": "1"})
            return message

        try:
            return await self.app(scope, take, send)
        finally:
            self.held -= taken

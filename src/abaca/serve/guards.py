"""Middleware of every endpoint: the log of requests, a deadline, the token, a limit of the body."""

import asyncio
import hmac
import json
import logging
import time
import uuid

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abaca.serve.metrics import Metrics
from abaca.serve.problems import HINTS, problem

access = logging.getLogger("abaca.serve.access")

RELOAD = "/model/reload"
ITEMS = "/items"
OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json")
"""Addresses that need no token: they show nothing of the data."""

POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
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
        access.info("request", extra={"entry": entry})


class Deadline:
    """Answers 503 where an answer takes too long; reloading has no deadline."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == RELOAD:
            return await self.app(scope, receive, send)
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(self.seconds):
                await self.app(scope, receive, watch)
        except TimeoutError:
            if started:
                raise
            late = f"no answer within {self.seconds:g} s"
            hint = "try again; send fewer histories at once or send the body faster"
            await problem(503, late, hint, {"retry-after": "1"})(scope, receive, send)
        return None


class TokenAuth:
    """Refuses requests without the token; reloading and adding items have a token or a port of their own."""

    def __init__(self, app: ASGIApp, token: str | None, admin_token: str | None, admin_port: int | None) -> None:
        self.app, self.token = app, token
        self.admin_token, self.admin_port = admin_token, admin_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        path = scope["path"]
        if path == RELOAD or (path == ITEMS and scope["method"] == "POST"):
            return self._admin_refusal(scope, "reloading" if path == RELOAD else "adding items")
        if self.token is None or path in OPEN or path.startswith("/static/") or _has_token(scope, self.token):
            return None
        hint = "send the header Authorization: Bearer TOKEN"
        return problem(401, "this server needs a token", hint, {"www-authenticate": "Bearer"})

    def _admin_refusal(self, scope: Scope, what: str) -> JSONResponse | None:
        if self.admin_token is not None:
            if _has_token(scope, self.admin_token):
                return None
            hint = "send the header Authorization: Bearer ADMIN-TOKEN"
            return problem(401, f"{what} needs the admin token", hint, {"www-authenticate": "Bearer"})
        if self.admin_port is not None and scope["server"] and scope["server"][1] == self.admin_port:
            return None
        port = f"post to 127.0.0.1:{self.admin_port}" if self.admin_port else "start it with --admin-port"
        signal = "send SIGHUP to the server, " if what == "reloading" else ""
        return problem(403, f"{what} is not allowed from here", f"{signal}{port}, or give it an admin token")


class BodyLimit:
    """Refuses a body that is too large, whatever its header says."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most = app, most
        self.refusal = f"the body has more than {most:,} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self.most:
            return await problem(413, self.refusal, HINTS[413])(scope, receive, send)
        taken = 0

        async def take() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self.most:
                raise HTTPException(413, self.refusal)
            return message

        return await self.app(scope, take, send)


def _has_token(scope: Scope, token: str) -> bool:
    """Whether a request has the token, compared in constant time."""
    given = dict(scope["headers"]).get(b"authorization", b"")
    kind, _, value = given.partition(b" ")
    return kind.lower() == b"bearer" and hmac.compare_digest(value.strip(), token.encode())


class JsonLines(logging.Formatter):
    """One JSON object per line, with the fields of a request where it is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "entry", {}),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)

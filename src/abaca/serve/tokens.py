"""Tokens and their roles: who may read, write events, erase users, and administer the server."""

import hashlib
import hmac
import logging
import re
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from abaca.errors import UserError
from abaca.serve.problems import problem

logger = logging.getLogger(__name__)

ROLES = ("read", "events", "erase", "admin")
RELOAD, ITEMS = "/model/reload", "/items"
OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json")
"""Addresses that need no token: they show nothing of the data."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at the file of tokens."""
SHORTEST = 16
ADMIN_HOST = "127.0.0.1"
"""The address of the admin port; another address may have the same port."""
TOKEN = "abaca.token"
"""Where a request's scope holds its token, for the log and for limits of rates."""


class Token(NamedTuple):
    """A token by its digest; the token itself is not kept."""

    name: str
    digest: bytes
    roles: frozenset[str]
    rate: float | None = None
    """Requests a second."""


def digest_of(token: str) -> bytes:
    """SHA-256 of a token; UserError where it is too short or has other characters than printable ASCII."""
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"a token must have at least {SHORTEST} letters, digits or signs and no space")
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """The tokens of the command line and of a file, which is read again when it changes."""

    def __init__(self, fixed: Sequence[Token] = (), file: Path | None = None) -> None:
        self._fixed, self._file = tuple(fixed), file
        self._seen: tuple[int, int, int] | None = None
        self._looked = time.monotonic()
        self._of_file: tuple[Token, ...] = ()
        if file is not None:
            self._seen, self._of_file = _state(file), read_tokens(file)  # a change while it is read is seen later

    @property
    def all(self) -> tuple[Token, ...]:
        """Every token that is valid now."""
        if self._file is not None and time.monotonic() - self._looked > LOOK_SECONDS:
            self._look(self._file)
        return self._fixed + self._of_file

    @property
    def closed(self) -> bool:
        """Whether requests other than those of an administrator need a token."""
        return self._file is not None or any(token.roles - {"admin"} for token in self._fixed)

    def find(self, value: bytes) -> Token | None:
        """The token with this value. Every token is compared, each in constant time."""
        digest, found = hashlib.sha256(value).digest(), None
        for token in self.all:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def _look(self, file: Path) -> None:
        """Read the file again where it has changed; a broken one is reported, and the old tokens stay."""
        self._looked = time.monotonic()
        state = _state(file)
        if state == self._seen:
            return
        self._seen = state
        try:
            self._of_file = read_tokens(file)
            logger.info("read %d tokens again", len(self._of_file))
        except UserError as error:
            logger.error("the old tokens stay: %s", error)


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def read_tokens(file: Path) -> tuple[Token, ...]:
    """The tokens of a TOML file: a table for each, with token or sha256, roles, and rate where it has one."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        kind = f"line {found[1]}" if (found := re.search(r"line (\d+)", str(error))) else type(error).__name__
        raise UserError(f"{file} cannot be read as a file of tokens ({kind}); write a TOML table for each") from None
    if not tables:
        raise UserError(f"{file} has no tokens; write a TOML table for each")
    tokens = tuple(_token(file, name, table) for name, table in tables.items())
    if len({token.digest for token in tokens}) < len(tokens):
        raise UserError(f"{file} has the same token twice; give each table its own")
    return tokens


def _token(file: Path, name: str, table: Any) -> Token:
    def wrong(said: str) -> UserError:
        return UserError(f"{file}: [{name}] {said}")

    if not isinstance(table, dict) or set(table) - {"token", "sha256", "roles", "rate"}:
        raise wrong("takes token or sha256, roles and rate")
    roles, rate = table.get("roles"), table.get("rate")
    if not isinstance(roles, list) or not roles or any(role not in ROLES for role in roles):
        raise wrong(f"needs roles, a list of some of {', '.join(ROLES)}")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0):
        raise wrong("has a rate that is not a number of requests a second above 0")
    value, hashed = table.get("token"), table.get("sha256")
    if isinstance(hashed, str) and value is None and re.fullmatch(r"[0-9a-fA-F]{64}", hashed):
        digest = bytes.fromhex(hashed)
    elif isinstance(value, str) and hashed is None:
        try:
            digest = digest_of(value)
        except UserError as error:
            raise wrong(str(error)) from None
    else:
        raise wrong('needs token = "…", or sha256 with the token\'s digest in hexadecimal')
    return Token(name, digest, frozenset(roles), None if rate is None else float(rate))


def role_for(method: str, path: str) -> str | None:
    """The role that a request needs; None: none; empty: any."""
    if path in OPEN or path.startswith("/static/"):
        return None
    if path == "/metrics":
        return ""
    if path == RELOAD or (path == ITEMS and method == "POST"):
        return "admin"
    if method == "DELETE":
        return "erase"
    return "events" if path in ("/events", "/feedback") else "read"


class TokenAuth:
    """Refuses requests without a token of the right role; an administrator may have a port instead."""

    def __init__(self, app: ASGIApp, tokens: Tokens, admin_port: int | None) -> None:
        self.app, self.tokens, self.admin_port = app, tokens, admin_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        role = role_for(scope["method"], scope["path"])
        token = scope[TOKEN] = self._given(scope)
        if role is None or (token is not None and (role in token.roles or role == "")):
            return None
        if role == "admin":
            if not any("admin" in known.roles for known in self.tokens.all):
                return self._port_refusal(scope)
        elif not self.tokens.closed:
            return None
        if token is not None:
            said = "reloading and adding items need the admin token" if role == "admin" else f"it needs the role {role}"
            return problem(403, said, f"the token '{token.name}' has: {', '.join(sorted(token.roles))}")
        kind = "ADMIN-TOKEN" if role == "admin" else "TOKEN"
        said = "reloading and adding items need the admin token" if role == "admin" else "this server needs a token"
        hint = f"send the header Authorization: Bearer {kind}"
        return problem(401, said, hint, {"www-authenticate": "Bearer"})

    def _given(self, scope: Scope) -> Token | None:
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, value = given.partition(b" ")
        return self.tokens.find(value.strip()) if kind.lower() == b"bearer" else None

    def _port_refusal(self, scope: Scope) -> JSONResponse | None:
        """Without a token for it, administration has a port of its own, or is off."""
        if self.admin_port is not None and tuple(scope["server"] or ()) == (ADMIN_HOST, self.admin_port):
            return None
        what = "reloading" if scope["path"] == RELOAD else "adding items"
        port = f"post to {ADMIN_HOST}:{self.admin_port}" if self.admin_port else "start it with --admin-port"
        signal = "send SIGHUP to the server, " if what == "reloading" else ""
        return problem(403, f"{what} is not allowed from here", f"{signal}{port}, or give it an admin token")

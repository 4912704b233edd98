"""Which names the server answers to, and whose pages may send it requests.

A page of another site can make a browser send requests to a server that only the browser's machine reaches. Such a
request names another site in `Origin`; after DNS rebinding it names that site in `Host`.
"""

import ipaddress
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from abaca.serve.problems import problem

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PROBES = ("/health", "/ready")
"""Addresses for load balancers, which send the address of a machine as the name."""


class HostCheck:
    """Refuses names that are not the server's, and requests from pages of other sites."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, tuple(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if scope["path"] not in PROBES and not self._answers_to(_name(host), scope):
            hint = "start the server with --allowed-host NAME"
            return problem(421, f"this server does not answer to the name '{_name(host)[:80]}'", hint)
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own(origin.decode("latin-1").lower(), host):
            hint = "send it from a page of this server, or allow the other one's name with --allowed-host"
            return problem(403, "the request comes from a page of another site", hint)
        return None

    def _answers_to(self, name: str, scope: Scope) -> bool:
        """Whether a name is allowed, or is the address that the connection was made to."""
        own = scope.get("server")
        return self._allowed(name) or (own is not None and name == plain_address(own[0]))

    def _allowed(self, name: str) -> bool:
        return any(fnmatchcase(name, host) for host in self.hosts)

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether a page has the name and port of this server, or a name that was allowed beside the loopback's."""
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        return bool(name) and (parts.netloc == host or (name not in LOOPBACK and self._allowed(name)))


def plain_address(host: str) -> str:
    """An address; one of IPv4 that a socket of IPv6 shows as ::ffff:192.0.2.5 is 192.0.2.5."""
    try:
        mapped = getattr(ipaddress.ip_address(host), "ipv4_mapped", None)
    except ValueError:
        return host
    return host if mapped is None else str(mapped)


def _name(host: str) -> str:
    """A host without its port and without brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""

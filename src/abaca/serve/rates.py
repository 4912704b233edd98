"""Limits of rates: each token, or each address without one, has a number of requests a second."""

import ipaddress
import math
import time
from collections import OrderedDict

from starlette.types import ASGIApp, Receive, Scope, Send

from abaca.serve.hosts import plain_address
from abaca.serve.problems import problem
from abaca.serve.protocol import PROBES
from abaca.serve.tokens import TOKEN, Token

MOST_KEYS = 10_000
"""Callers that are remembered; the one that was away longest is forgotten."""
BURST_SECONDS = 2.0
"""A caller that was quiet may send the requests of this time at once."""


class RateLimit:
    """A token bucket for each caller; 429 where it is empty."""

    def __init__(self, app: ASGIApp, rate: float | None, share: float = 1.0) -> None:
        self.app, self.rate, self.share = app, rate, share
        """`share` is the part of a rate that this process allows, where several share the port."""
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = self._wait(scope) if scope["type"] == "http" and scope["path"] not in PROBES else 0.0
        if not wait:
            return await self.app(scope, receive, send)
        headers = {"retry-after": str(max(1, math.ceil(wait)))}
        return await problem(429, "too many requests", "send fewer requests a second", headers)(scope, receive, send)

    def _wait(self, scope: Scope) -> float:
        """Seconds until the caller may send again; 0 where this request is allowed."""
        token: Token | None = scope.get(TOKEN)
        rate = token.rate if token is not None and token.rate is not None else self.rate
        if rate is None:
            return 0.0
        rate *= self.share
        key = f"token {token.name}" if token is not None else _network(scope)
        now, room = time.monotonic(), max(rate * BURST_SECONDS, 1.0)
        left, then = self._buckets.pop(key, (room, now))
        left = min(room, left + rate * (now - then))
        allowed = left >= 1
        self._buckets[key] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MOST_KEYS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / rate


def _network(scope: Scope) -> str:
    """The client's address; of IPv6 the first 64 bits, which one client may have whole."""
    host = plain_address((scope.get("client") or ("",))[0])
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))

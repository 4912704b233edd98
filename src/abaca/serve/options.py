"""Tokens and limits of a server."""

from dataclasses import dataclass, field

from abaca.serve.hosts import LOOPBACK
from abaca.serve.split import Split
from abaca.serve.tokens import Tokens

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class ServerOptions:
    """Tokens and limits of the server."""

    tokens: Tokens = field(default_factory=Tokens)
    """The tokens and their roles; without any, only administration is closed."""
    admin_port: int | None = None
    """Reloading and adding items need no token at this port."""
    rate: float | None = None
    """Requests a second of each token, or of each address without one."""
    share: float = 1.0
    """The part of a rate that this process allows."""
    seconds: float = 30.0
    """Longest time of an answer."""
    body_bytes: int = 4 * MEBIBYTE
    """Largest body of a request."""
    hosts: tuple[str, ...] = LOOPBACK
    """Names that the server answers to; `*` stands for any part."""
    split: Split | None = None
    """Shares of the models among users; without one, the first model is everyone's."""
    learn: bool = False
    """Whether the counts of followers take every event that is accepted."""

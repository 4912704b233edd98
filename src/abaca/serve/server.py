"""Running the application: sockets, signals, and a graceful end."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn
from fastapi import FastAPI

logger = logging.getLogger(__name__)

GRACE = 30
"""Seconds for requests to finish when the server ends."""

IDLE = 130
"""Seconds that a connection may stay idle: longer than proxies keep theirs (nginx 60, Traefik 90, Caddy 120).
So a proxy never sends a request to a connection that is being closed."""


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


def run(app: FastAPI, sockets: Sequence[socket.socket]) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads the models."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACE, timeout_keep_alive=IDLE,
        server_header=False, ws="none",
    )  # fmt: skip
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _ignore)  # uvicorn handles both and raises them again at the end
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_serve(uvicorn.Server(config), app, list(sockets)))


async def _serve(server: uvicorn.Server, app: FastAPI, sockets: list[socket.socket]) -> None:
    tasks: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.get_running_loop().create_task(_reload(app))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    await server.serve(sockets=sockets)


async def _reload(app: FastAPI) -> None:
    with contextlib.suppress(Exception):  # refused and logged; the old models stay
        await app.state.api.reload_models()


def _ignore(number: int, frame: FrameType | None) -> None:
    logger.info("ended by signal %d", number)

"""Running the application: sockets, signals, and a graceful end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import uvicorn
from fastapi import FastAPI

from abaca.serve.app import Api
from abaca.serve.metrics import Metrics
from abaca.serve.protocol import Hooks, Limits, limited
from abaca.serve.worker import Worker

logger = logging.getLogger(__name__)

GRACE = 20
"""Seconds for requests to finish when the server ends."""

END_SECONDS = 29.0
"""Seconds after which the process ends, whatever still waits."""

OTHER_FILES = 64
"""Open files that are no connections: models, the store, the log."""

IDLE = 130
"""Seconds that a connection may stay idle: longer than proxies keep theirs (nginx 60, Traefik 90, Caddy 120).
So a proxy never sends a request to a connection that is being closed."""


_early = threading.Event()
"""Set by a SIGHUP that came before the server could reload."""


def keep_hangups() -> None:
    """Remember a SIGHUP that comes while models are read; they are then read again."""
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, lambda number, frame: _early.set())


def run(
    app: FastAPI, sockets: Sequence[socket.socket], limits: Limits | None = None, worker: Worker | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads the models. A worker gets its connections from its supervisor."""
    metrics: Metrics = app.state.metrics
    hooks = Hooks(metrics.refusal) if worker is None else Hooks(metrics.refusal, worker.ended)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACE, timeout_keep_alive=IDLE,
        server_header=False, ws="none", http=limited(within_files(limits or Limits()), hooks),
    )  # fmt: skip
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _ignore)  # uvicorn handles both and raises them again at the end
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_serve(_Server(config), app, list(sockets), worker))


def within_files(limits: Limits) -> Limits:
    """Limits whose connections fit the files that this process may open; as many as possible are allowed."""
    try:
        import resource
    except ImportError:  # not on Windows
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + limits.reserve + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        room = max(soft - limits.reserve - OTHER_FILES, 16)
        if room < limits.connections:
            logger.warning("%d connections instead of %d: raise the limit of open files", room, limits.connections)
            return replace(limits, connections=room)
    return limits


class _Server(uvicorn.Server):
    """A server whose end has a limit, though a thread may hang in a system call."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            last = threading.Timer(END_SECONDS, _give_up)
            last.daemon = True
            last.start()
        super().handle_exit(sig, frame)


def _give_up() -> None:
    logger.error("the server did not end in time")
    os._exit(1)


async def _serve(server: uvicorn.Server, app: FastAPI, sockets: list[socket.socket], worker: Worker | None) -> None:
    tasks: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.get_running_loop().create_task(_reload(app))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
        if _early.is_set():
            reload()
    if worker is not None:
        api: Api = app.state.api
        api.join(worker)
        facts = {"names": [model.name for model in api.service.models], "closed": api.closed}
        tasks.add(asyncio.create_task(worker.run(server, facts)))
    await server.serve(sockets=sockets)


async def _reload(app: FastAPI) -> None:
    with contextlib.suppress(Exception):  # refused and logged; the old models stay
        await app.state.api.reload_models()


def _ignore(number: int, frame: FrameType | None) -> None:
    logger.info("ended by signal %d", number)

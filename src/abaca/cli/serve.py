"""`abaca serve`: recommendations over HTTP, and a web page that shows reasons."""

import asyncio
import ipaddress
import logging
import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.errors import UserError
from abaca.serve.supervisor import VARIABLE, Supervisor, listen, own_command

if TYPE_CHECKING:
    from abaca.serve.logs import QueuedLines
    from abaca.serve.options import ServerOptions
    from abaca.serve.protocol import Limits
    from abaca.serve.tokens import Token
    from abaca.serve.worker import Worker

Models = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL [MODEL2]", help="A model directory; with two, the page shows both side by side."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Require the bearer token in this file. Or set ABACA_TOKEN."),
]
AdminToken = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Require this token for POST /model/reload and POST /items. Or set ABACA_ADMIN_TOKEN."
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A TOML file of tokens with roles; it is read again when it changes."),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A further name that the server answers to, such as *.example.org."),
]
Store = Annotated[
    str | None,
    typer.Option(
        envvar="ABACA_STORE",
        show_envvar=False,
        help="Store events in a SQLite file, or postgresql://USER@HOST/NAME. Or set ABACA_STORE.",
    ),
]


def command(
    models: Models,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 selects a free one.")] = 8000,
    store: Store = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Count every accepted event, so that followers and new items are known.")
    ] = False,
    split: Annotated[
        str | None, typer.Option(metavar="A=0.9,B=0.1", help="Shares of users for models, by a hash of the user.")
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(metavar="SEQUENCES", help="A prepared folder: the page offers some of its users.")
    ] = None,
    token_file: TokenFile = None,
    admin_token_file: AdminToken = None,
    tokens_file: TokensFile = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="A port on 127.0.0.1 where POST /model/reload and POST /items are allowed."
        ),
    ] = None,
    allowed_host: AllowedHost = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="Requests a second of each token, or address without one.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.1, help="Timeout of an answer in seconds.")] = 30.0,
    body_mib: Annotated[float, typer.Option(min=0.001, help="Largest accepted body, in MiB.")] = 4.0,
    connections: Annotated[int, typer.Option(min=1, help="Most connections of a process.")] = 1000,
    head_seconds: Annotated[float, typer.Option(min=0.1, help="Longest time to send the head of a request.")] = 10.0,
    read_seconds: Annotated[float, typer.Option(min=0.1, help="How long an answer may stay unread.")] = 30.0,
    queue_seconds: Annotated[
        float, typer.Option(min=0.1, help="Longest expected time of a history in the queue.")
    ] = 5.0,
    batch: Annotated[int, typer.Option(min=1, help="Largest batch of concurrent histories.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the model.")] = 1,
) -> None:
    """Serve a model over HTTP, with a page at / that shows what it recommends and why.

    Example: [bold]abaca serve model/ --store events.db[/]

    SIGHUP reloads the model directory while the old version answers. Logs are JSON lines on standard error.
    """
    if workers > 1 and VARIABLE not in os.environ:
        _supervise(workers, _listen(host, port, admin_port))
    try:
        from abaca.serve.options import MEBIBYTE, ServerOptions
        from abaca.serve.protocol import Limits
        from abaca.serve.worker import Worker, place_of_worker
    except ImportError as error:
        raise UserError(f"abaca serve needs the package {error.name}; pip install 'abaca[serve]'") from error
    from abaca.serve.hosts import LOOPBACK
    from abaca.serve.tokens import Tokens

    if learn and not store:
        raise UserError("--learn counts the events of a store; give --store FILE")
    secrets = [
        *_secret(token_file, "ABACA_TOKEN", "token", {"read", "events", "erase"}),
        *_secret(admin_token_file, "ABACA_ADMIN_TOKEN", "admin-token", {"admin"}),
    ]
    tokens = Tokens(secrets, tokens_file)
    place = place_of_worker()
    sockets = [] if place else _listen(host, port, admin_port)
    options = ServerOptions(
        tokens=tokens,
        admin_port=place.admin_port if place else sockets[1].getsockname()[1] if sockets[1:] else None,
        hosts=(*LOOPBACK, *(allowed_host or ())),
        rate=rate,
        share=1 / workers,
        seconds=seconds,
        body_bytes=int(body_mib * MEBIBYTE),
        learn=learn,
    )
    limits = Limits(connections=connections, head_seconds=head_seconds, read_seconds=read_seconds)
    what = _Served(models, store, split, examples, batch, queue_seconds, threads)
    _serve(what, options, limits, sockets, Worker(place) if place else None)


@dataclass(frozen=True)
class _Served:
    """What is served, as it was given."""

    models: list[Path]
    store: str | None
    split: str | None
    examples: Path | None
    batch: int
    queue_seconds: float
    threads: int


def _serve(
    what: _Served, options: "ServerOptions", limits: "Limits", sockets: list[socket.socket], worker: "Worker | None"
) -> None:
    """Load the models and serve them in this process."""
    import torch

    from abaca.memory import share_memory
    from abaca.serve.app import make_app
    from abaca.serve.examples import example_users
    from abaca.serve.metrics import Metrics
    from abaca.serve.server import keep_hangups, run
    from abaca.serve.service import Service
    from abaca.serve.split import parse_split
    from abaca.serve.store import open_store

    keep_hangups()
    share_memory()
    torch.set_num_threads(what.threads)
    metrics = Metrics()
    shown = example_users(what.examples) if what.examples is not None else []
    service = Service(what.models, what.batch, metrics.batch, what.queue_seconds)
    names = [model.name for model in service.models]
    if what.split is not None:
        options = replace(options, split=parse_split(what.split, names))
    app = make_app(service, metrics, open_store(what.store) if what.store else None, shown, options)
    log = _log_to_standard_error()
    metrics.watch_log(lambda: log.dropped)
    if worker is None:
        _announce(names, sockets, options.tokens.closed)
    run(app, sockets, limits, worker)


def _listen(host: str, port: int, admin_port: int | None) -> list[socket.socket]:
    return [listen(host, port), *([] if admin_port is None else [listen("127.0.0.1", admin_port)])]


def _supervise(workers: int, sockets: list[socket.socket]) -> None:
    """Start workers with the same command, and end when they have ended. This process loads no model."""

    async def run() -> int:
        supervisor = Supervisor(own_command(), workers, sockets)
        supervisor.announced = lambda message: _announce(message["names"], sockets, message["closed"])
        return await supervisor.run()

    _log_to_standard_error()
    raise typer.Exit(asyncio.run(run()))


def _secret(file: Path | None, variable: str, name: str, roles: set[str]) -> list["Token"]:
    """A token from a file or the environment, never from the command line, where others could read it."""
    from abaca.serve.tokens import Token, digest_of

    value = os.environ.get(variable) if file is None else file.read_text(encoding="utf-8").strip()
    if value is None:
        return []
    try:
        return [Token(name, digest_of(value), frozenset(roles))]
    except UserError as error:
        raise UserError(f"{variable if file is None else file}: {error}") from None


def _log_to_standard_error() -> "QueuedLines":
    from abaca.serve.logs import JsonLines, QueuedLines

    handler = QueuedLines(2)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return handler


def _announce(names: list[str], sockets: list[socket.socket], closed: bool) -> None:
    out = show.console()
    host, port = sockets[0].getsockname()[:2]
    address = ipaddress.ip_address(host)
    named = f"[{host}]" if address.version == 6 else host
    out.print(f"Serving {escape(', '.join(names))} at http://{named}:{port}", markup=False, soft_wrap=True)
    if sockets[1:]:
        out.print(f"Reload by POST to http://127.0.0.1:{sockets[1].getsockname()[1]}/model/reload", soft_wrap=True)
    if not address.is_loopback and not closed:
        out.print("Anyone who reaches this address may ask: no token is set (--token-file).", soft_wrap=True)
    out.file.flush()


def add_to(app: typer.Typer) -> None:
    app.command("serve")(command)

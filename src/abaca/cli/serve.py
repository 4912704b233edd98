"""`abaca serve`: recommendations over HTTP, and a web page that shows reasons."""

import ipaddress
import logging
import os
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from abaca.cli import show
from abaca.errors import UserError

Models = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL [MODEL2]", help="A model directory; with two, the page shows both side by side."),
]
Token = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Require the bearer token in this file. Or set ABACA_TOKEN."),
]
AdminToken = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Require this token for POST /model/reload. Or set ABACA_ADMIN_TOKEN."),
]


def command(
    models: Models,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 selects a free one.")] = 8000,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="ABACA_STORE",
            show_envvar=False,
            help="Store events in a SQLite file, or postgresql://USER@HOST/NAME. Or set ABACA_STORE.",
        ),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Count every accepted event, so that followers and new items are known.")
    ] = False,
    examples: Annotated[
        Path | None, typer.Option(metavar="SEQUENCES", help="A prepared folder: the page offers some of its users.")
    ] = None,
    token_file: Token = None,
    admin_token_file: AdminToken = None,
    admin_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="A port on 127.0.0.1 where POST /model/reload is allowed.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Timeout of an answer in seconds.")] = 30.0,
    body_mib: Annotated[float, typer.Option(min=0.001, help="Largest accepted body, in MiB.")] = 4.0,
    batch: Annotated[int, typer.Option(min=1, help="Largest batch of concurrent histories.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the model.")] = 1,
) -> None:
    """Serve a model over HTTP, with a page at / that shows what it recommends and why.

    Example: [bold]abaca serve model/ --store events.db[/]

    SIGHUP reloads the model directory while the old version answers. Logs are JSON lines on standard error.
    """
    try:
        from abaca.serve.app import MEBIBYTE, ServerOptions, make_app
        from abaca.serve.metrics import Metrics
        from abaca.serve.server import listen, run
    except ImportError as error:
        raise UserError(f"abaca serve needs the package {error.name}; pip install 'abaca[serve]'") from error
    import torch

    from abaca.memory import share_memory
    from abaca.serve.examples import example_users
    from abaca.serve.service import Service
    from abaca.serve.store import open_store

    if learn and not store:
        raise UserError("--learn counts the events of a store; give --store FILE")
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server takes it: nothing is loaded yet
    share_memory()
    torch.set_num_threads(threads)
    metrics = Metrics()
    token, admin_token = _secret(token_file, "ABACA_TOKEN"), _secret(admin_token_file, "ABACA_ADMIN_TOKEN")
    shown = example_users(examples) if examples is not None else []
    service = Service(models, batch, metrics.batch)
    sockets = [listen(host, port), *([] if admin_port is None else [listen("127.0.0.1", admin_port)])]
    options = ServerOptions(
        token, admin_token, sockets[1].getsockname()[1] if sockets[1:] else None, seconds, int(body_mib * MEBIBYTE),
        learn,
    )  # fmt: skip
    app = make_app(service, metrics, open_store(store) if store else None, shown, options)
    _log_to_standard_error()
    _announce([model.name for model in service.models], sockets, token)
    run(app, sockets)


def _secret(file: Path | None, variable: str) -> str | None:
    """A token from a file or the environment, never from the command line, where others could read it."""
    value = os.environ.get(variable) if file is None else file.read_text(encoding="utf-8").strip()
    if value is None:
        return None
    if len(value) < 16 or not value.isascii() or not value.isprintable() or " " in value:
        source = variable if file is None else str(file)
        raise UserError(f"the token in {source} must have at least 16 letters, digits or signs and no space")
    return value


def _log_to_standard_error() -> None:
    from abaca.serve.guards import JsonLines

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _announce(names: list[str], sockets: list[socket.socket], token: str | None) -> None:
    out = show.console()
    host, port = sockets[0].getsockname()[:2]
    address = ipaddress.ip_address(host)
    named = f"[{host}]" if address.version == 6 else host
    out.print(f"Serving {escape(', '.join(names))} at http://{named}:{port}", markup=False, soft_wrap=True)
    if sockets[1:]:
        out.print(f"Reload by POST to http://127.0.0.1:{sockets[1].getsockname()[1]}/model/reload", soft_wrap=True)
    if not address.is_loopback and token is None:
        out.print("Anyone who reaches this address may ask: no token is set (--token-file).", soft_wrap=True)
    out.file.flush()


def add_to(app: typer.Typer) -> None:
    app.command("serve")(command)

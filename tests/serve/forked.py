"""The start of a forked server; it imports little, since each fork imports it."""

import os
import sys
from multiprocessing.connection import Connection

PRELOAD = ["abaca.cli.serve", "abaca.serve.server", "abaca.serve.postgres", "uvicorn.lifespan.on", "uvloop"]


def serve(arguments: list[str], printed: Connection) -> None:
    """Be `abaca serve`, with standard output into a pipe and without a log."""
    os.dup2(printed.fileno(), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    from abaca.cli import main

    sys.argv = ["abaca", "serve", "--port", "0", *arguments]
    main()

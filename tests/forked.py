"""Programs in processes forked from one that has imported their modules: a start takes a moment instead of seconds."""

import atexit
import multiprocessing
import os
import sys
import tempfile
import types
from multiprocessing.connection import Connection
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "abaca.cli.serve",
        "abaca.recommender",
        "abaca.serve.server",
        "abaca.serve.postgres",
        "uvicorn.lifespan.on",
        "uvloop",
    ]
)


def command(arguments: list[str]) -> None:
    """Be `abaca`."""
    from abaca.cli import main

    sys.argv = ["abaca", *arguments]
    main()


def serve(arguments: list[str], printed: Connection) -> None:
    """Be `abaca serve`, with standard output into a pipe and without a log."""
    os.dup2(printed.fileno(), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    command(["serve", "--port", "0", *arguments])


def run(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """Run `abaca WORDS…`, or Python with `-c CODE`, in a folder; the exit code, and what was printed."""
    with tempfile.NamedTemporaryFile() as output:
        process = CONTEXT.Process(target=_program, args=(words, folder, environment, output.name))
        process.start()
        process.join()
        return process.exitcode, Path(output.name).read_text(encoding="utf-8")


def _program(words: list[str], folder: Path, environment: dict[str, str], output: str) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    handle = os.open(output, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    sys.path.insert(0, "")
    try:
        if words[0] != "-c":
            return command(words)
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    finally:
        atexit._run_exitfuncs()  # a forked process ends without them

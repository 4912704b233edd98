"""Processes that form a group, started without a launcher: what torchrun would set is in their environment."""

import os
import socket
import subprocess
from collections.abc import Sequence
from typing import NamedTuple


class Ended(NamedTuple):
    code: int
    said: str  # standard error and output


def start(command: Sequence[str], size: int, **variables: str) -> "list[subprocess.Popen[str]]":
    """As many processes of one group, each with one thread."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = []
    for rank in map(str, range(size)):
        environment = {**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank, **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen(command, env=environment, **pipes))  # type: ignore[call-overload]
    return started


def wait(processes: "Sequence[subprocess.Popen[str]]") -> list[Ended]:
    """How each ended."""
    said = [process.communicate()[0] for process in processes]
    return [Ended(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def run(command: Sequence[str], size: int, **variables: str) -> list[Ended]:
    return wait(start(command, size, **variables))

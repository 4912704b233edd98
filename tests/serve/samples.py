"""A shop with two small models, and a server as people start it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pyarrow
from fastapi.testclient import TestClient

import forked
from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.synthetic import synthetic_log
from abaca.recommender import Recommender

Serve = Callable[..., TestClient]

ITEMS = 30
SMALL: dict[str, Any] = {
    "epochs": 2, "lr": 0.02, "warmup": 2, "batch_targets": 100, "targets": 6, "overlap": 4, "window": 8, "dim": 8
}  # fmt: skip


def title(item: int) -> str:
    return f"{['Red', 'Green', 'Blue'][item % 3]} thing {item}"


class Shop(NamedTuple):
    cpr: Path
    softmax: Path
    sequences: Path

    @property
    def models(self) -> list[Path]:
        return [self.cpr, self.softmax]


def make_shop(folder: Path) -> Shop:
    shop = Shop(folder / "cpr", folder / "softmax", folder / "sequences")
    table = synthetic_log("copy-after-repeat", users=40, items=ITEMS, length=12, seed=2)
    titles = pyarrow.table({"item": list(range(ITEMS)), "title": [title(item) for item in range(ITEMS)]})
    with read_log(table) as log:
        sequences = prepare(log, shop.sequences, items=titles)
    for path, output in ((shop.cpr, "softmax+CPR:5"), (shop.softmax, "softmax")):
        Recommender("gru4rec", output, **SMALL).fit(sequences).save(path)
    return shop


def wait_until_ready(url: str) -> None:
    with httpx2.Client(transport=httpx2.HTTPTransport(retries=20), timeout=120) as client:
        client.get(f"{url}/ready").raise_for_status()


class Forked:
    """`abaca serve`, forked from a process that has imported its modules: a start takes a moment instead of seconds."""

    def __init__(self, *arguments: str | Path) -> None:
        reads, writes = forked.CONTEXT.Pipe(duplex=False)
        self.process = forked.CONTEXT.Process(target=forked.serve, args=([*map(str, arguments)], writes), daemon=True)
        self.process.start()
        writes.close()
        with open(os.dup(reads.fileno()), encoding="utf-8") as printed:
            first = printed.readline().strip()
        assert " at http" in first, "the server did not start"
        self._printed, self.url = reads, first.split(" at ")[1]
        wait_until_ready(self.url)

    def end(self, how: str = "terminate") -> int | None:
        """End it, and wait until it has ended; its exit code."""
        getattr(self.process, how)()
        self.process.join(120)
        self._printed.close()
        return self.process.exitcode


class Live:
    """`abaca serve` as a process of its own."""

    def __init__(self, *arguments: str | Path, log: int | None = None, **environment: str) -> None:
        command = [sys.executable, "-m", "abaca", "serve", "--port", "0", *map(str, arguments)]
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.log if log is None else log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        first = self.line()
        if " at http" not in first:
            self.process.communicate()
            self.log.seek(0)
            raise AssertionError(f"the server did not start: {first} {self.log.read()}")
        self.url = first.split(" at ")[1]
        self.client = httpx2.Client(base_url=self.url, timeout=120)

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ready(self) -> "Live":
        wait_until_ready(self.url)
        return self

    def end(self, how: str = "terminate") -> tuple[int, list[str]]:
        """End it, if it has not ended; its exit code and the lines of its log."""
        getattr(self.process, how)()
        self.process.communicate(timeout=120)
        if self.log.closed:
            return self.process.returncode, []
        self.client.close()
        with self.log:
            self.log.seek(0)
            return self.process.returncode, self.log.read().splitlines()

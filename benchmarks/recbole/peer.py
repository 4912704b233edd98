"""RecBole in a process and environment of its own, which stays alive and answers requests."""

import json
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from abaca.bench.measure import Spent
from abaca.data.sequences import Sequences
from abaca.errors import SpecError

PROGRAM = Path(__file__).parent / "recbole_side.py"
NAME = "log"
"""The name of the data set in RecBole."""


class Peer:
    """RecBole with one prepared log."""

    def __init__(self, python: Path, sequences: Sequences, **settings: Any) -> None:
        if shutil.which(python) is None:
            raise SpecError(f"{python} cannot be run; benchmarks/recbole/setup.sh makes a Python that has RecBole")
        self.folder = tempfile.TemporaryDirectory(prefix="abaca-bench-")
        self.errors = Path(self.folder.name) / "errors.txt"
        (Path(self.folder.name) / NAME).mkdir()
        write_atomic(sequences, Path(self.folder.name) / NAME / f"{NAME}.inter")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [python.absolute(), PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder.name,
                env={"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HOME": self.folder.name},
            )
        weakref.finalize(self, _end, self.process, self.folder)
        self.facts = self.ask("open", folder=self.folder.name, name=NAME, **settings)

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            last = self.errors.read_text(errors="replace").strip().splitlines()[-1:] or ["no error message"]
            raise SpecError(f"RecBole stopped at '{do}': {last[0]}; is it the environment of setup.sh?")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def spend(self, do: str, **request: Any) -> Spent:
        """The cost of some work in RecBole."""
        answer = self.ask(do, **request)
        return Spent(answer["cpu"], answer["wall"], answer["targets"])

    def scores(self, model: str) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        """RecBole's scores of all items (T, V), the test targets (T,), both in its own numbers, and its metrics."""
        to = str(Path(self.folder.name) / model)
        metrics = self.ask("scores", model=model, to=to)
        return np.load(f"{to}-scores.npy", mmap_mode="r"), np.load(f"{to}-targets.npy"), metrics


def _end(process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
    folder.cleanup()


def write_atomic(sequences: Sequences, path: Path) -> None:
    """A prepared log as RecBole's atomic file; the position in a user's history replaces the time."""
    users = np.repeat(np.arange(sequences.users), np.diff(sequences.offsets))
    place = np.arange(len(sequences.items)) - sequences.offsets[users]
    with path.open("w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        np.savetxt(file, np.column_stack([users, sequences.items, place]), fmt="%d", delimiter="\t")

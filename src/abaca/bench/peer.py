"""Another library in a process and environment of its own, which stays alive and does work when it is asked to."""

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
"""What the data set is called on the other side."""


class Peer:
    """RecBole with one log, started at the first question."""

    def __init__(self, python: Path, sequences: Sequences, **settings: Any) -> None:
        check_runs(python)
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
        """Put a question and wait for the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            last = self.errors.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise SpecError(
                f"the peer stopped at '{do}': {last[0]}; is it the environment of benchmarks/peers/setup.sh?"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def spend(self, do: str, **request: Any) -> Spent:
        """Let it do some work; what that cost."""
        answer = self.ask(do, **request)
        return Spent(answer["cpu"], answer["wall"], answer["targets"], answer["peak_bytes"])

    def scores(self, model: str) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        """Its scores of all items (T, V), the test targets (T,), both in its own numbering, and its metrics."""
        to = str(Path(self.folder.name) / model)
        metrics = self.ask("scores", model=model, to=to)
        return np.load(f"{to}-scores.npy", mmap_mode="r"), np.load(f"{to}-targets.npy"), metrics


def check_runs(python: Path) -> None:
    """Refuse what is no program."""
    if shutil.which(python) is None:
        raise SpecError(f"{python} cannot be run; benchmarks/peers/setup.sh makes a Python that has RecBole")


def _end(process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    """The peer ends when nobody can ask any more."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
    folder.cleanup()


def write_atomic(sequences: Sequences, path: Path) -> None:
    """A prepared log as RecBole's atomic file; the order within a user's history stands for the time."""
    users = np.repeat(np.arange(sequences.users), np.diff(sequences.offsets))
    place = np.arange(len(sequences.items)) - sequences.offsets[users]
    with path.open("w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        np.savetxt(file, np.column_stack([users, sequences.items, place]), fmt="%d", delimiter="\t")

"""The parts of a run that is under way: each is complete or not there, and in the end they become one file.

Beside the file to write, `<file>.parts/` holds `run.json`, which describes the run, and the finished parts.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from abaca.batch.answers import WRITERS
from abaca.durable import locked, whole_file, write_text
from abaca.errors import QueryError
from abaca.shapes import loads

RUN = "run.json"


class Parts:
    """The finished parts of a run, and the file they become."""

    def __init__(self, to: Path, run: dict[str, Any]) -> None:
        self.to = to
        self.run = run
        self.folder = to.with_name(to.name + ".parts")
        self.lock = to.with_name(to.name + ".lock")
        self.done = 0

    def finished(self) -> bool:
        """Whether the file is the output of this run; only Parquet records that."""
        if self.to.suffix != ".parquet" or not self.to.is_file():
            return False
        try:
            metadata = pyarrow.parquet.read_schema(self.to).metadata or {}
        except pyarrow.ArrowInvalid:
            return False
        if metadata.get(b"abaca") != json.dumps(self.run).encode():
            return False
        with locked(self.lock, wait=False):
            shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse to replace a file without permission, or to resume another run."""
        begun = self._part(0).exists()
        if resume and (self.folder / RUN).exists():
            return self._check_same()
        if not overwrite and self.to.exists():
            raise QueryError(f"{self.to} exists already; pass --overwrite to replace it, or give another name")
        if not overwrite and begun and not resume:
            raise QueryError(
                f"{self.folder} holds parts of a run that was stopped; pass --resume to go on with it, "
                "or --overwrite to start again"
            )
        return None

    @contextlib.contextmanager
    def begun(self, *, resume: bool) -> Iterator[None]:
        """Create or open the folder of parts, and lock it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.lock, wait=False) as alone:
            if not alone:
                raise QueryError(
                    f"{self.folder} is being written by another process; wait for it, or give another name"
                )
            if resume and (self.folder / RUN).exists():
                self._check_same()
            else:
                for old in self.folder.iterdir():
                    old.unlink()
                write_text(self.folder / RUN, json.dumps(self.run, indent=1) + "\n")
            while self._part(self.done).exists():
                self.done += 1
            yield

    def add(self, answers: pyarrow.Table) -> None:
        """Store one more part."""
        with whole_file(self._part(self.done)) as part:
            pyarrow.parquet.write_table(answers, part)
        self.done += 1

    def answers(self) -> Iterator[pyarrow.Table]:
        """All parts, in their order; of a finished run, of its file."""
        if not self.folder.exists():
            with pyarrow.parquet.ParquetFile(self.to) as file:
                yield from (file.read_row_group(group) for group in range(file.num_row_groups))
            return
        for number in range(self.done):
            yield pyarrow.parquet.read_table(self._part(number))

    def finish(self, schema: pyarrow.Schema) -> None:
        """Merge the parts into one file, and delete them."""
        schema = schema.with_metadata({"abaca": json.dumps(self.run)})
        with whole_file(self.to) as part:
            WRITERS[self.to.suffix](part, schema, self.answers())
        shutil.rmtree(self.folder)

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.parquet"

    def _check_same(self) -> None:
        try:
            before = loads((self.folder / RUN).read_text(encoding="utf-8"))
        except ValueError:
            before = {}
        changed = [key for key in self.run if before.get(key) != self.run[key]]
        if changed:
            raise QueryError(
                f"{self.folder} holds parts of a run with another {', '.join(changed)}; resume with what it began "
                "with, or pass --overwrite without --resume to start again"
            )

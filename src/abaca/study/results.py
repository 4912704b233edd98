"""The results of a study: one file of JSON lines that is only ever appended to, by any number of processes."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from abaca.durable import locked
from abaca.study.environment import environment

Entry = dict[str, Any]

KINDS = ("data", "run", "test", "baseline", "comparison", "example")


class Results:
    """What is in a results file, by kind and id; the first entry of an id is the one that counts, of data the last."""

    def __init__(self, path: Path, lock: Path) -> None:
        self.path, self.lock = path, lock
        self.entries: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
        self._read_to = 0
        self.refresh()

    def refresh(self) -> None:
        """Read what was appended since; a line that a killed process left unfinished is no entry."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            entry = _parsed(line)
            if entry is not None and entry["kind"] == "data":  # the latest is the current one
                self.entries["data"].pop(entry["id"], None)
                self.entries["data"][entry["id"]] = entry
            elif entry is not None:
                self.entries[entry["kind"]].setdefault(entry["id"], entry)

    def get(self, kind: str, id: str) -> Entry | None:
        """An entry, if it is there."""
        return self.entries[kind].get(id)

    def all(self, kind: str) -> Iterable[Entry]:
        """Every entry of a kind, oldest first."""
        return self.entries[kind].values()

    def append(self, kind: str, id: str, **values: Any) -> None:
        """Add an entry with when, where and by which version it was made."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"kind": kind, "id": id, **values, "when": when, "environment": environment()}
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            with locked(self.lock):
                os.write(handle, _healed(handle) + line)
                os.fsync(handle)
        finally:
            os.close(handle)
        self.refresh()


def _parsed(line: bytes) -> Entry | None:
    """A line's entry; None for what a killed process left of one."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and entry.get("kind") in KINDS and "id" in entry else None


def _healed(handle: int) -> bytes:
    """A line's end where the last writer was killed before it wrote one."""
    size = os.fstat(handle).st_size
    return b"" if size == 0 or os.pread(handle, 1, size - 1) == b"\n" else b"\n"

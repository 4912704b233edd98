"""The results of a study: a file of JSON lines that any number of processes append to."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from abaca.durable import append_line, locked
from abaca.shapes import loads
from abaca.study.environment import environment

Entry = dict[str, Any]

KINDS = ("data", "run", "test", "baseline", "comparison", "margin", "example")


class Results:
    """The entries of a results file by kind and id; the first of an id counts, of data the last."""

    def __init__(self, path: Path, lock: Path) -> None:
        self.path, self.lock = path, lock
        self.entries: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
        self._read_to = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the lines appended since; the unfinished line of a killed process is ignored."""
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
        """An entry; None if it does not exist."""
        return self.entries[kind].get(id)

    def all(self, kind: str) -> Iterable[Entry]:
        """Every entry of a kind, oldest first."""
        return self.entries[kind].values()

    def append(self, kind: str, id: str, **values: Any) -> None:
        """Add an entry with its time and environment."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"kind": kind, "id": id, **values, "when": when, "environment": environment()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.lock):
            append_line(self.path, json.dumps(entry, ensure_ascii=False, separators=(",", ":")))
        self.refresh()


def _parsed(line: bytes) -> Entry | None:
    """A line's entry; None for the rest of an unfinished one."""
    try:
        entry = loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and entry.get("kind") in KINDS and "id" in entry else None

"""What a disk may hold after a power loss, from a record of what was written and synced (`recorder.c`).

What was synced is there. Of what was written since, any sectors may be there and any may not. Names, lengths and
folders are as they were last, as on a file system with a journal.
"""

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SECTOR = 512
HEADER = struct.Struct("<IIQQ")


class Record(NamedTuple):
    end: int  # where the next record begins
    kind: str
    path: str
    offset: int
    data: bytes


def build(folder: Path) -> Path:
    """The library that records."""
    made = folder / "recorder.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", Path(__file__).with_name("recorder.c"), "-o", made, "-ldl"]
    subprocess.run(command, check=True)
    return made


def recording(library: Path, folder: Path, log: Path) -> dict[str, str]:
    """The environment of a process whose writes below a folder are recorded."""
    return {"LD_PRELOAD": str(library), "RECORD_UNDER": str(folder), "RECORD_TO": str(log)}


def read(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        while header := file.read(HEADER.size):
            kind, length, offset, size = HEADER.unpack(header)
            name, data = file.read(length).decode(), file.read(size)
            yield Record(file.tell(), chr(kind), name, offset, data)


@dataclass
class File:
    """Bytes that are on the disk for certain, and writes that may be."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    length: int = 0

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))
        self.length = max(self.length, offset + len(data))

    def cut(self, length: int) -> None:
        """Change the length; what was written beyond it is gone."""
        del self.synced[length:]
        self.pending = [(offset, data[: length - offset]) for offset, data in self.pending if offset < length]
        self.length = length

    def sync(self) -> None:
        self.synced.extend(bytes(self.length - len(self.synced)))
        for offset, data in self.pending:
            self.synced[offset : offset + len(data)] = data
        self.pending = []

    def after(self, share: float, rng: random.Random) -> bytes:
        """The bytes after a power loss that spared about a share of the sectors."""
        found = self.synced.ljust(self.length, b"\0")
        for offset, data in self.pending:
            for start in range(offset - offset % SECTOR, offset + len(data), SECTOR):
                begin, end = max(start, offset), min(start + SECTOR, offset + len(data))
                if rng.random() < share:
                    found[begin:end] = data[begin - offset : end - offset]
        return bytes(found)


class Disk:
    """A folder as it was, and the records that were replayed since."""

    def __init__(self, folder: Path, before: Path) -> None:
        self.folder, self.before = folder, before
        self.files: dict[Path, File] = {}
        self.gone: set[Path] = set()
        self.folders: set[Path] = set()

    def replay(self, record: Record) -> None:
        path = Path(record.path).relative_to(self.folder)
        if record.kind == "d":
            self.folders.add(path)
        elif record.kind == "u":
            self.files.pop(path, None)
            self.gone.add(path)
        elif record.kind == "r":
            self.files[Path(record.data.decode()).relative_to(self.folder)] = self._file(path)
            del self.files[path]
            self.gone.add(path)
        elif record.kind != "s":
            file = self._file(path)
            if record.kind == "w":
                file.write(record.offset, record.data)
            else:
                file.cut(record.offset if record.kind == "t" else max(file.length, record.offset))
        elif not (self.folder / path).is_dir():
            self._file(path).sync()

    def _file(self, path: Path) -> File:
        if path not in self.files:
            there = self.before / path
            content = bytearray(there.read_bytes() if path not in self.gone and there.is_file() else b"")
            self.files[path] = File(content, length=len(content))
        self.gone.discard(path)
        return self.files[path]

    def lose_power(self, to: Path, share: float, rng: random.Random) -> None:
        """Write the folder as it may be found."""
        shutil.copytree(self.before, to)
        for path in self.folders:
            (to / path).mkdir(parents=True, exist_ok=True)
        for path in self.gone:
            (to / path).unlink(missing_ok=True)
        for path, file in self.files.items():
            (to / path).write_bytes(file.after(share, rng))

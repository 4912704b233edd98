"""Files that survive a crash: one lock, one whole-or-nothing write, one checksum."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from abaca.errors import UserError

LOCK = ".lock"
"""The lock file of a folder."""


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file while the block runs; False where another holds it and `wait` is off.

    The operating system frees the lock when the process ends, so a stale file does no harm.
    """
    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):  # Windows deletes no open file
            path.unlink()
        lock.release()


@contextlib.contextmanager
def whole_file(path: Path, error: type[UserError] = UserError) -> Iterator[Path]:
    """A part file to write; it replaces `path` when the block succeeds, and is deleted if not.

    The file gets the mode of any new file, whatever mode the library that writes it chooses.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)  # that of a process that was killed may have another mode
        part.touch()
        mode = part.stat().st_mode
        yield part
        part.chmod(mode)
        put_in_place(part, path)
    except BaseException as cause:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(cause, OSError):
            raise error(f"{path} cannot be written ({cause}); {write_cure(cause)}") from cause
        raise


def write_cure(error: OSError) -> str:
    """What to do about a file that cannot be written."""
    if isinstance(error, PermissionError):
        return "give this user the permission to write there, or give another folder"
    return "free disk space, or give another folder"


def append_line(path: Path, line: str, error: type[UserError] = UserError) -> None:
    """Append a whole line or nothing, on disk when this returns; one writer at a time.

    The unfinished line of a process that was killed is ended first.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            _append(handle, line.encode() + b"\n")
        finally:
            os.close(handle)
    except OSError as cause:
        raise error(f"{path}: a line could not be added ({cause}); {write_cure(cause)}") from cause


def _append(handle: int, text: bytes) -> None:
    """Write all bytes at the end, however often the system takes a part only; or leave the file as it was."""
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        text = b"\n" + text
    try:
        while text:
            text = text[os.write(handle, text) :]
        os.fsync(handle)
    except BaseException:
        os.ftruncate(handle, size)
        raise


def write_text(path: Path, text: str, error: type[UserError] = UserError) -> None:
    """Write a whole text file or nothing."""
    with whole_file(path, error) as part:
        part.write_bytes(text.encode())


def put_in_place(part: Path, path: Path) -> None:
    """Give a complete file its name; after a crash there is this file or the one before it."""
    sync(part)
    os.replace(part, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk; Windows cannot flush folders."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path, kind: str = "sha256") -> str:
    """The SHA-256, or another digest, of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def file_facts(path: Path) -> dict[str, Any]:
    """The size and checksum that a manifest records of a file."""
    return {"bytes": path.stat().st_size, "sha256": checksum(path)}

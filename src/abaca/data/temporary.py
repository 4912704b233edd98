"""Temporary folders that go with their process: what a killed one left, the next one deletes; and the locks for it."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

PREFIX = "abaca-tmp-"
SETTLED_SECONDS = 60.0
"""A folder that nobody holds is nobody's after so long: between its making and its locking there is a moment."""


class Temporary:
    """A folder that is deleted by `close`, or when it is forgotten, or after a kill by the next one that is made."""

    def __init__(self) -> None:
        _tidy(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = contextlib.ExitStack()
        lock.enter_context(locked(folder))
        self.path = folder / "files"  # not the locked folder itself: whoever writes there may want its lock
        self.path.mkdir()
        self._finalizer = weakref.finalize(self, _discard, folder, lock)

    def close(self) -> None:
        """Delete it now."""
        self._finalizer()


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a folder's lock, which goes with the process; False where another holds it or the disk knows no locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        alone = True
    except OSError:
        alone = False
    try:
        yield alone
    finally:
        os.close(handle)


def _tidy(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if time.time() - folder.stat().st_ctime < SETTLED_SECONDS:
                continue
            with locked(folder) as alone:
                if alone:
                    shutil.rmtree(folder, ignore_errors=True)


def _discard(folder: Path, lock: contextlib.ExitStack) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.close()

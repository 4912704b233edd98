"""Temporary folders that end with their process; the next process deletes those of a killed one."""

import contextlib
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from abaca.durable import LOCK, locked

PREFIX = "abaca-tmp-"
SETTLED_SECONDS = 60.0
"""A younger folder is kept even without a lock: it is locked a moment after it is made."""


class Temporary:
    """A folder that is deleted by `close`, with the object, or after a kill by the next one."""

    def __init__(self) -> None:
        _tidy(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = contextlib.ExitStack()
        lock.enter_context(locked(folder / LOCK))
        self.path = folder / "files"
        self.path.mkdir()
        self._finalizer = weakref.finalize(self, _discard, folder, lock)

    def close(self) -> None:
        """Delete it now."""
        self._finalizer()


def _tidy(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if time.time() - folder.stat().st_ctime < SETTLED_SECONDS:
                continue
            with locked(folder / LOCK, wait=False) as alone:
                pass
            if alone:
                shutil.rmtree(folder, ignore_errors=True)


def _discard(folder: Path, lock: contextlib.ExitStack) -> None:
    lock.close()
    shutil.rmtree(folder, ignore_errors=True)

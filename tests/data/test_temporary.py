"""Temporary folders go with their process, however it ends."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from abaca.data import temporary
from abaca.data.temporary import Temporary

SCRIPT = "import os, signal; from abaca.data.temporary import Temporary; kept = Temporary(); os.kill(os.getpid(), {})"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def run_and_end(place: Path, number: int) -> None:
    environment = {**os.environ, "TMPDIR": str(place)}
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(number)], env=environment, check=False)
    assert done.returncode == -number


def test_it_goes_when_it_is_closed_or_forgotten(place: Path) -> None:
    one, other = Temporary(), Temporary()
    (one.path / "deep").mkdir()
    one.close()
    assert list(place.iterdir()) == [other.path.parent]
    del other
    gc.collect()
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not what a living process holds, nor what is too young to be judged, nor what is not ours."""
    (place / "abaca-other").mkdir()
    mine = Temporary()
    run_and_end(place, signal.SIGKILL)
    (left,) = set(place.glob("abaca-tmp-*")) - {mine.path.parent}
    young = Temporary()
    assert left.exists()
    monkeypatch.setattr(temporary, "SETTLED_SECONDS", 0.0)
    last = Temporary()
    assert set(place.iterdir()) == {place / "abaca-other", mine.path.parent, young.path.parent, last.path.parent}

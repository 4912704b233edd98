"""One lock that ends with its process, and files that are whole or not there."""

import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from abaca import durable
from abaca.durable import checksum, locked, put_in_place, whole_file, write_text
from abaca.errors import ModelError, UserError

HOLD = """
import os, signal, sys
from pathlib import Path
from abaca.durable import locked
with locked(Path(sys.argv[1])) as alone:
    print(alone, flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_by_one_process_and_goes_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"True\n"
    with locked(lock, wait=False) as alone:
        assert not alone
    assert lock.exists()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    assert lock.exists()  # the file that the killed process left does no harm
    with locked(lock, wait=False) as alone:
        assert alone
    assert not lock.exists()


def test_only_one_of_many_is_inside(tmp_path: Path) -> None:
    """Although each deletes the lock file when it leaves."""
    inside, most = 0, 0
    guard = threading.Lock()

    def enter(_: int) -> None:
        nonlocal inside, most
        with locked(tmp_path / "x.lock") as alone:
            assert alone
            with guard:
                inside += 1
                most = max(most, inside)
            os.sched_yield()
            with guard:
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(64)))
    assert most == 1
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as part:
        part.write_text(f"new {1 // 0}")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("x", "old")]
    write_text(path, "new\n")
    assert path.read_bytes() == b"new\n"


def test_a_disk_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"missing/x cannot be written .*; free disk space, or give another folder"):
        write_text(tmp_path / "missing" / "x", "text")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(ModelError, match=r"x cannot be written \(.*No space left"):
        write_text(tmp_path / "x", "text", ModelError)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def replaced(*paths: Path) -> None:
        done.append("name")
        replace(*paths)

    monkeypatch.setattr(durable.os, "fsync", synced)
    monkeypatch.setattr(durable.os, "replace", replaced)
    (tmp_path / "part").write_text("text")
    put_in_place(tmp_path / "part", tmp_path / "x")
    assert done == ["file", "name", "folder"]


def test_a_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    """Also where a library replaces the part by a private file, as safetensors does."""
    path = tmp_path / "x"
    with whole_file(path) as part:
        part.unlink()
        os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_checksums_are_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert checksum(tmp_path / "x").startswith("ba7816bf8f01cfea")
    assert checksum(tmp_path / "x", "md5") == "900150983cd24fb0d6963f7d28e17f72"

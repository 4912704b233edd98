"""Prepared folders: all or nothing, and what is wrong with one is said."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow
import pytest

from abaca.data import prepare as preparing
from abaca.data.folder import FILES, new_folder
from abaca.data.prepare import PrepareOptions
from abaca.data.sequences import Sequences
from abaca.errors import LogError, SequencesError, SpecError

from .samples import ROWS, histories, prepared, table, write_csv


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepared(tmp_path / "s").path.resolve()


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A folder with every file."""
    log = table(ROWS).append_column("event", pyarrow.array(["view", "buy"] * (len(ROWS) // 2)))
    options = PrepareOptions(min_user=1, types=True)
    return prepared(tmp_path / "typed", log, options, counting=lambda engine, training: {"counts": training.order}).path


def test_a_failure_midway_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "write_manifest", _fail)
    with pytest.raises(RuntimeError, match="the disk is full"):
        prepared(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_midway_keeps_the_old_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Sequences.open(folder).fingerprint
    monkeypatch.setattr(preparing, "write_manifest", _fail)
    with pytest.raises(RuntimeError, match="the disk is full"):
        prepared(folder, ROWS[:5], overwrite=True)
    sequences = Sequences.open(folder)
    sequences.verify()
    assert sequences.fingerprint == before
    assert list(folder.parent.iterdir()) == [folder]


def test_a_failure_of_the_last_move_keeps_the_old_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name.endswith(".part"):
            raise OSError("no such luck")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no such luck"):
        prepared(folder, ROWS[:5], overwrite=True)
    assert len(Sequences.open(folder).items) == 8
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("moved", [False, True], ids=["while writing", "between the two moves"])
def test_what_a_killed_process_left_is_cleaned_up(folder: Path, moved: bool) -> None:
    """`kill -9`, for real; what another live process writes at the same place is left alone."""
    script = f"""
import os, signal
from pathlib import Path
from abaca.data import folder
path = Path({str(folder)!r})
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if {moved}:
    rename = Path.rename
    Path.rename = lambda self, to: rename(self, to) if self == path else die()
with folder.new_folder(path, overwrite=True) as draft:
    (draft / "items.npy").write_bytes(b"half")
    if not {moved}:
        die()
"""
    before = Sequences.open(folder).fingerprint
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert {path.suffix for path in folder.parent.iterdir() if path != folder} >= {".lock", ".part"}
    assert folder.exists() != moved
    with pytest.raises(SequencesError, match="is prepared already"):
        prepared(folder)
    assert list(folder.parent.iterdir()) == [folder]
    assert Sequences.open(folder).fingerprint == before
    with new_folder(folder, overwrite=True) as draft:
        prepared(folder, ROWS[:5], overwrite=True)
        assert draft.exists()
        shutil.copytree(folder, draft, dirs_exist_ok=True)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_full_disk_is_an_error_before_anything_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing to a mapped file without room on the disk would kill the process."""

    def full(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*items\.npy'"):
        prepared(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_no_room_for_duckdb_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise duckdb.OutOfMemoryException("failed to offload data block")

    monkeypatch.setattr(preparing, "write_catalogue", full)
    with pytest.raises(
        LogError, match=r"not enough disk space or memory: .*offload data block; free some, or set TMPDIR"
    ):
        prepared(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_of_two_who_prepare_one_place_the_first_wins(tmp_path: Path) -> None:
    with pytest.raises(SequencesError, match="is prepared already"), new_folder(tmp_path / "s", overwrite=False):
        before = prepared(tmp_path / "s").fingerprint
    assert Sequences.open(tmp_path / "s").fingerprint == before
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_what_is_written_stands_apart_from_what_is_read(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "a.csv"
    log.parent.mkdir()
    write_csv(log)
    for place, source in (
        (log.parent, log.parent),
        (log.parent / "deep" / "s", log.parent),
        (log.parent, log),
        (tmp_path, log.parent),
    ):
        with pytest.raises(SpecError, match="must be separate from the input"):
            prepared(place, source)
    assert list(log.parent.iterdir()) == [log]
    assert len(prepared(log.parent / "s", log).items) == 8


def test_a_prepared_folder_is_replaced_only_when_asked(folder: Path) -> None:
    with pytest.raises(SequencesError, match="is prepared already; pass `overwrite=True`"):
        prepared(folder)
    assert len(prepared(folder, ROWS[:5], overwrite=True).items) == 5
    assert list(folder.parent.iterdir()) == [folder]


def test_nothing_else_is_ever_replaced(folder: Path, tmp_path: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(SequencesError, match="holds files that are not a prepared folder's"):
        prepared(folder, overwrite=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SequencesError, match="is a file"):
        prepared(tmp_path / "file", overwrite=True)
    (tmp_path / "empty").mkdir()
    assert len(prepared(tmp_path / "empty").items) == 8


def test_missing_folders_and_files(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SequencesError, match="is not a folder; make it with `abaca prepare"):
        Sequences.open(tmp_path / "nothing")
    with pytest.raises(SequencesError, match=r"has no manifest\.json: it is not a prepared folder"):
        Sequences.open(tmp_path)
    (folder / "valid.npy").unlink()
    with pytest.raises(SequencesError, match=r"valid\.npy is missing; prepare the log again"):
        Sequences.open(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused(name: str, typed: Path) -> None:
    folder = typed
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-4])
    with pytest.raises(SequencesError, match="it was cut or changed"):
        Sequences.open(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_tampered_file_fails_its_checksum(name: str, typed: Path) -> None:
    folder = typed
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(bytes(content))
    with pytest.raises(SequencesError, match=r"checksum differs|do not belong together"):
        Sequences.open(folder).verify()


def test_arrays_that_do_not_fit_are_refused(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    np.save(folder / "train_end.npy", np.zeros(9, np.int64))
    manifest["files"]["train_end.npy"]["bytes"] = (folder / "train_end.npy").stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SequencesError, match="do not belong together"):
        Sequences.open(folder)
    np.save(folder / "train_end.npy", np.zeros(9, np.int32))
    manifest["files"]["train_end.npy"]["bytes"] = (folder / "train_end.npy").stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SequencesError, match="holds int32 where int64 belongs"):
        Sequences.open(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "is in format 3, this release reads 1 and 2; update abaca"),
        ({"format": 0}, "is in format 0, this release reads 1 and 2; prepare the log again"),
        ({"kind": "a cake"}, "does not describe sequences"),
        ({"counts": None}, "lacks counts"),
    ],
)
def test_manifests_of_another_kind_are_refused(change: dict[str, object], message: str, folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(SequencesError, match=message):
        Sequences.open(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(SequencesError, match="is not JSON"):
        Sequences.open(folder)


def test_arrays_are_mapped_not_loaded(folder: Path) -> None:
    sequences = Sequences.open(folder)
    assert isinstance(sequences.items, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        sequences.items[0] = 1
    assert sequences.training()[0].tolist() == sequences.history(0, 2).tolist()
    assert histories(sequences)["cid"] == ["tea"]


def test_the_manifest_names_files_but_not_places(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    assert str(folder.parent) not in text


def _fail(*_: object) -> None:
    raise RuntimeError("the disk is full")


def test_only_its_own_leftovers_are_tidied(tmp_path: Path) -> None:
    (tmp_path / ".s.v2.0123abcd.old").mkdir()
    (tmp_path / ".s.v2.0123abcd.part").mkdir()
    (tmp_path / ".s.89abcdef.part").mkdir()
    prepared(tmp_path / "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".s.v2.0123abcd.old", ".s.v2.0123abcd.part", "s"]

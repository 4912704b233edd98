"""Prepared folders: written as a draft beside their place, and moved there when complete."""

import contextlib
import glob
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

from abaca.data.sequences import COUNTED, EVENTS, KIND, MANIFEST, PLAIN, TYPED, is_prepared
from abaca.durable import file_facts, locked, sync
from abaca.errors import SequencesError, SpecError

FILES = (
    "items.npy",
    "times.npy",
    EVENTS,
    "offsets.npy",
    "train_end.npy",
    "valid.npy",
    "test.npy",
    "catalogue.parquet",
    "users.parquet",
    COUNTED,
)

MARK = "[0-9a-f]" * 8
"""The random part in the names of drafts and of folders moved aside, as a pattern."""


@contextlib.contextmanager
def new_folder(path: Path, overwrite: bool) -> Iterator[Path]:
    """A draft folder that replaces `path` when the block succeeds, and is deleted when it fails."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex[: MARK.count("[")]
    draft = path.parent / f".{path.name}.{mark}.part"
    whole = path.with_name(f".{path.name}.lock")
    with contextlib.ExitStack() as held:
        with locked(whole):
            _tidy(path)
            check_place(path, overwrite)
            held.enter_context(locked(draft.with_suffix(".lock")))
            draft.mkdir()
        try:
            yield draft
            for file in draft.iterdir():
                sync(file)
            sync(draft)
            with locked(whole):
                check_place(path, overwrite)  # another process may have been faster
                _move(draft, path, path.parent / f".{path.name}.{mark}.old")
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def check_apart(path: Path, source: Path | None) -> None:
    """Refuse to write into what is read, around it or beside its files."""
    if source is None:
        return
    written, read = path.resolve(), source.resolve()
    if written == read or written in read.parents or (read.is_dir() and read in written.parents):
        raise SpecError(f"{path} and {source} overlap: the output folder must be separate from the input")


def _tidy(path: Path) -> None:
    """Clean up after killed processes: put back a folder that was moved aside, delete drafts."""
    for aside in path.parent.glob(f".{glob.escape(path.name)}.{MARK}.old"):
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(path)
    for left in path.parent.glob(f".{glob.escape(path.name)}.{MARK}.*"):
        with locked(left.with_suffix(".lock"), wait=False) as alone:
            if alone:
                shutil.rmtree(left.with_suffix(".part"), ignore_errors=True)


def check_place(path: Path, overwrite: bool) -> None:
    """Refuse a place with any files, or with `overwrite` with any but those of sequences."""
    if not path.exists():
        return
    if not path.is_dir():
        raise SequencesError(f"{path} is a file; give the name of a new folder")
    held = {entry.name for entry in path.iterdir()}
    if not held:
        return
    if not is_prepared(path) or held - {*FILES, MANIFEST}:
        raise SequencesError(f"{path} holds files that are not a prepared folder's; give the name of a new folder")
    if not overwrite:
        raise SequencesError(f"{path} is prepared already; pass `overwrite=True` to replace it, or give a new name")


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Describe a folder whose other files are complete."""
    files = {file.name: file_facts(file) for file in sorted(folder.iterdir(), key=lambda file: FILES.index(file.name))}
    digest = _fingerprint(folder, files, facts.get("event_types"))
    version = TYPED if EVENTS in files else PLAIN
    manifest = {"kind": KIND, "format": version, **facts, "fingerprint": digest, "files": files}
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def _fingerprint(folder: Path, files: dict[str, Any], types: Any) -> str:
    """Names the data by its arrays, ids and types of events, whatever wrote the Parquet files."""
    digest = hashlib.sha256(b"" if types is None else json.dumps(types, sort_keys=True).encode())
    for name, facts in files.items():
        if name.endswith(".npy"):
            digest.update(f"{name} {facts['sha256']}\n".encode())
            continue
        if name == COUNTED:  # which follows from the others
            continue
        with pyarrow.parquet.ParquetFile(folder / name) as table:
            for batch in table.iter_batches(columns=["id"]):
                digest.update(json.dumps(batch.column(0).to_pylist()).encode())
    return digest.hexdigest()


def _move(draft: Path, path: Path, aside: Path) -> None:
    replaced = path.exists()
    if replaced:
        path.rename(aside)
    try:
        draft.rename(path)
    except OSError:
        if replaced:
            aside.rename(path)
        raise
    sync(path.parent)
    if replaced:
        shutil.rmtree(aside)

"""Sequences: the flat memory-mapped arrays of a prepared folder, for training and evaluation."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet

from abaca.data.catalogue import Catalogue
from abaca.data.reading.values import unix_unit
from abaca.durable import checksum
from abaca.errors import SequencesError
from abaca.histories import EventTypes, Flat, Histories, Ints, stretches
from abaca.shapes import loads

__all__ = ["Catalogue", "Sequences", "Targets"]

PLAIN, TYPED = 1, 2
"""Versions of a prepared folder: without types of events, and with them; a reader refuses any other."""

EVENTS = "events.npy"
COUNTED = "transitions.npz"
MANIFEST = "manifest.json"
KIND = "abaca sequences"

Array = npt.NDArray[Any]


class Targets(NamedTuple):
    """Target t is `items[positions[t]]`, its history the user's items before it."""

    users: npt.NDArray[np.int64]  # (T,)
    positions: npt.NDArray[np.int64]  # (T,) index into items


class Sequences:
    """A prepared folder: every user's items in time order, and the split."""

    events: npt.NDArray[np.uint8] | None = None  # (n,) numbers of types
    types: EventTypes | None = None
    """The types of events that the folder tells apart."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.items: npt.NDArray[np.int32] = self._array("items.npy", np.int32)  # (n,)
        self.offsets: npt.NDArray[np.int64] = self._array("offsets.npy", np.int64)  # (users + 1,)
        self.train_end: npt.NDArray[np.int64] = self._array("train_end.npy", np.int64)  # (users,)
        self.times: npt.NDArray[np.float64] | None = None
        if "times.npy" in manifest["files"]:
            self.times = self._array("times.npy", np.float64)  # (n,)
        if EVENTS in manifest["files"]:
            self.events = self._array(EVENTS, np.uint8)
            self.types = EventTypes.of(manifest["event_types"])
        self.valid = self._targets("valid.npy")
        self.test = self._targets("test.npy")
        self._check_shapes()
        self._verified = False

    @classmethod
    def open(cls, path: str | Path) -> "Sequences":
        """Memory-map a prepared folder after a cheap check of its version and file sizes."""
        path = Path(path)
        manifest = read_manifest(path)
        for name, facts in manifest["files"].items():
            file = path / name
            if not file.is_file():
                raise SequencesError(f"{file} is missing; prepare the log again")
            size, wanted = file.stat().st_size, facts["bytes"]
            if size != wanted:
                raise SequencesError(
                    f"{file} has {size} bytes instead of {wanted}: it was cut or changed; prepare again"
                )
        return cls(path, manifest)

    def verify(self) -> None:
        """Read every file, once, and compare its checksum with the manifest."""
        if self._verified:
            return
        for name, facts in self.manifest["files"].items():
            if checksum(self.path / name) != facts["sha256"]:
                raise SequencesError(
                    f"{self.path / name} is not what was prepared: its checksum differs; prepare again"
                )
        self._verified = True

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.offsets) - 1

    @cached_property
    def _plain_items(self) -> npt.NDArray[np.int32]:
        """The same memory as a plain array: slicing a memory map itself takes many times longer."""
        return np.asarray(self.items)

    @property
    def _flat(self) -> Flat:
        return Flat(self._plain_items, self.times, self.events)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Raw ids by item index, and the item table's columns."""
        columns = self._table("catalogue.parquet")
        ids = columns.pop("id")
        if len(ids) != self.manifest["counts"].get("items"):
            raise SequencesError(f"{self.path / 'catalogue.parquet'} does not fit its manifest; prepare the log again")
        return Catalogue(ids, self.manifest["catalogue"], columns)

    @cached_property
    def user_ids(self) -> list[str] | list[int]:
        """Raw ids by user index."""
        ids: list[str] | list[int] = self._table("users.parquet")["id"]
        return ids

    @cached_property
    def counted(self) -> dict[str, Array] | None:
        """The transitions of training rows, as `evidence/transitions.py` has them, where preparing counted them."""
        if COUNTED not in self.manifest["files"]:
            return None
        with np.load(self.path / COUNTED, allow_pickle=False) as arrays:
            return dict(arrays)

    @property
    def training_targets(self) -> int:
        """Training targets of an epoch: of the types that are predicted, every one but the first row of each user."""
        if self.types is not None:
            return int(self.manifest["counts"]["training_targets"])
        without_rows = int(np.count_nonzero(self.train_end == self.offsets[:-1]))
        return self.training_interactions - self.users + without_rows

    @property
    def training_interactions(self) -> int:
        """Rows that training may see."""
        return int(self.train_end.sum()) - int(self.offsets[:-1].sum())

    @property
    def fingerprint(self) -> str:
        """Names the data: equal for equal items, times, split and ids."""
        return str(self.manifest["fingerprint"])

    @property
    def source(self) -> str:
        """The files that it was prepared from."""
        return ", ".join(self.manifest["source"]["files"])

    @cached_property
    def time_unit(self) -> str | None:
        """The unit of times that count from 1970, such as seconds; None for other numbers, and without times."""
        return None if self.times is None or not len(self.times) else unix_unit(float(np.max(self.times)))

    def history(self, user: int, position: int) -> npt.NDArray[np.int32]:
        """The user's items before a position, oldest first, cold ones included."""
        return self._plain_items[self.offsets[user] : position]

    def histories(self, users: Ints, positions: Ints) -> Histories:
        """What came before each position, with times where the log has them; `now` is the time at the position."""
        now = None if self.times is None else np.asarray(self.times[positions])
        return stretches(self._flat, self.offsets[users], positions, now)

    def training(self, *, everything: bool = False) -> Histories:
        """What training may see of every user, with times where the log has them; or everything."""
        end = self.offsets[1:] if everything else self.train_end
        return stretches(self._flat, self.offsets[:-1], end)

    def __repr__(self) -> str:
        return f"Sequences({str(self.path)!r}, {self.users} users, {len(self.items)} interactions)"

    def _array(self, name: str, dtype: type) -> Array:
        file = self.path / name
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise SequencesError(f"{file} cannot be read ({error}); prepare the log again") from error
        if array.dtype != np.dtype(dtype):
            raise SequencesError(f"{file} holds {array.dtype} where {np.dtype(dtype)} belongs; prepare the log again")
        return np.asarray(array) if array.size == 0 else array

    def _targets(self, name: str) -> Targets:
        rows = self._array(name, np.int64)  # (T, 2)
        if rows.ndim != 2 or rows.shape[1] != 2:
            raise SequencesError(f"{self.path / name} has shape {rows.shape} where (targets, 2) belongs; prepare again")
        return Targets(rows[:, 0], rows[:, 1])

    def _table(self, name: str) -> dict[str, list[Any]]:
        try:
            table = pyarrow.parquet.read_table(self.path / name)
        except (OSError, ValueError) as error:
            raise SequencesError(f"{self.path / name} cannot be read ({error}); prepare the log again") from error
        if "id" not in table.column_names:
            raise SequencesError(f"{self.path / name} has no column 'id'; prepare the log again")
        columns: dict[str, list[Any]] = table.to_pydict()
        return columns

    def _check_shapes(self) -> None:
        users = len(self.train_end)
        fits = len(self.offsets) == users + 1 and self.offsets[-1] == len(self.items)
        beside = [column for column in (self.times, self.events) if column is not None]
        if not fits or any(len(column) != len(self.items) for column in beside):
            raise SequencesError(f"{self.path}: the arrays do not belong together; prepare the log again")


def is_prepared(data: Any) -> bool:
    """Whether data needs no preparing: sequences, or a folder that holds them, of whatever version."""
    if isinstance(data, Sequences) or not isinstance(data, str | os.PathLike):
        return isinstance(data, Sequences)
    try:
        return bool(loads((Path(data) / MANIFEST).read_text(encoding="utf-8")).get("kind") == KIND)
    except (OSError, ValueError, AttributeError):
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a prepared folder, once its kind and version are what this release reads."""
    if not path.is_dir():
        raise SequencesError(f"{path} is not a folder; make it with `abaca prepare LOG {path}`")
    file = path / MANIFEST
    if not file.is_file():
        raise SequencesError(f"{path} has no {MANIFEST}: it is not a prepared folder; `abaca prepare` makes one")
    try:
        manifest = loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SequencesError(f"{file} is not JSON ({error}); prepare the log again") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise SequencesError(f"{file} does not describe sequences; `abaca prepare` makes a prepared folder")
    version = manifest.get("format")
    if version not in (PLAIN, TYPED):
        cure = "update abaca" if isinstance(version, int) and version > TYPED else "prepare the log again"
        raise SequencesError(f"{path} is in format {version}, this release reads {PLAIN} and {TYPED}; {cure}")
    wanted = {"files": dict, "counts": dict, "catalogue": int, "split": dict, "fingerprint": str}
    if isinstance(manifest.get("files"), dict) and EVENTS in manifest["files"]:
        wanted["event_types"] = dict
    wrong = [key for key, type in wanted.items() if not isinstance(manifest.get(key), type)]
    if wrong:
        raise SequencesError(f"{file} lacks {', '.join(wrong)}; prepare the log again")
    return manifest

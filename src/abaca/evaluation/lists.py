"""The recommendations of another system as a row of an evaluation: a file with a list of items for each user."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from abaca.data.sequences import Sequences
from abaca.errors import QueryError
from abaca.evaluation.evaluate import Evaluation, checked_cutoffs, targets_of
from abaca.evaluation.membership import Membership
from abaca.evaluation.metrics import Ints
from abaca.types import PAD, Id

NAMES = {
    "user": ("user_id", "user"),
    "item": ("item_id", "item", "id"),
    "rank": ("rank", "place"),
    "score": ("score", "probability"),
}
"""Columns by what they hold; the first that the file has counts. A rank comes before a score."""


@dataclass(frozen=True)
class Lists:
    """Items for each user, best first."""

    name: str
    items: Ints  # (P,) users one after another; PAD for an item that the catalogue does not have
    starts: Ints  # (users + 1,) where the list of each user begins

    @classmethod
    def read(cls, path: Path, sequences: Sequences) -> "Lists":
        """A Parquet or CSV file with the columns user_id, item_id, and score or rank; unknown users are left out."""
        table = _read(path)
        key = "rank" if "rank" in table else "score"
        users = _indices(table["user"], {str(id): user for user, id in enumerate(sequences.user_ids)})
        items = _indices(table["item"], sequences.catalogue)
        try:
            order = np.asarray(table[key].to_numpy(), dtype=np.float64) * (1 if key == "rank" else -1)
        except (ValueError, TypeError):
            raise QueryError(f"{path}: the column of the {key} does not hold numbers") from None
        kept = np.lexsort((order, users))
        kept = kept[users[kept] != PAD]
        starts = np.searchsorted(users[kept], np.arange(len(sequences.user_ids) + 1))
        return cls(path.name, items[kept], starts)

    def without(self, sequences: Sequences, targets: str) -> list[Id]:
        """The users of the targets that have no list."""
        users = np.unique(targets_of(sequences, targets)[1])
        ids: Any = sequences.user_ids
        return [ids[user] for user in users[self.starts[users] == self.starts[users + 1]].tolist()]

    def evaluate(self, sequences: Sequences, targets: str, cutoffs: tuple[int, ...]) -> Evaluation:
        """Every target's rank in its user's list; V + 1 beyond the list, as for a target that cannot be named."""
        ks = checked_cutoffs(cutoffs)
        split, users, positions = targets_of(sequences, targets)
        items = np.asarray(sequences.items[positions], dtype=np.int64)
        catalogue = sequences.catalogue.size
        n = min(ks[-1], catalogue)
        at = self.starts[users][:, None] + np.arange(n)  # (T, n)
        padded = np.concatenate([self.items, [PAD]])
        top = np.where(at < self.starts[users + 1][:, None], padded[np.minimum(at, len(self.items))], PAD)
        held = Membership(sequences.histories(users, positions), len(sequences.catalogue))
        seen = held.holds(np.column_stack([items, top]))
        rank = np.minimum(self._places(users, items), catalogue + 1)
        unknown = np.full(len(users), np.nan)
        return Evaluation(
            self.name, split, ks, catalogue, users, positions, items,
            np.where(items < catalogue, rank, catalogue + 1), seen[:, 0], top.astype(np.int32), seen[:, 1:], unknown,
        )  # fmt: skip

    def _places(self, users: Ints, items: Ints) -> Ints:
        """The first place of each item in its user's list, from 1; far beyond for an absent item."""
        owner = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        width = int(max(items.max(initial=0), self.items.max(initial=0))) + 2
        keys, first = np.unique(owner * width + self.items + 1, return_index=True)
        wanted = users * width + items + 1
        found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        if not len(keys):
            return np.full(len(users), np.iinfo(np.int64).max)
        places = first[found] - self.starts[users] + 1
        return np.where(keys[found] == wanted, places, np.iinfo(np.int64).max)


def _read(path: Path) -> dict[str, Any]:
    """The columns of the file by what they hold."""
    try:
        table = pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise QueryError(f"{path} cannot be read as Parquet or CSV ({error})") from error
    lower = {name.lower(): name for name in table.column_names}
    found = {
        what: table[lower[next(name for name in names if name in lower)]]
        for what, names in NAMES.items()
        if any(name in lower for name in names)
    }
    if not {"user", "item"} <= found.keys() or not {"rank", "score"} & found.keys():
        raise QueryError(
            f"{path} has the columns {', '.join(table.column_names)}; it needs user_id, item_id, and score or rank"
        )
    return found


def _indices(column: Any, known: Any) -> Ints:
    """The index of each id of a column, PAD for one that is not known; integers and text are spelled alike."""
    coded = column.combine_chunks().dictionary_encode()
    ids = coded.dictionary.to_pylist()
    index = known.index if hasattr(known, "index") else lambda id: known.get(str(id))
    table = np.array([PAD if (found := index(id)) is None else found for id in ids] + [PAD], dtype=np.int64)
    return np.asarray(table[coded.indices.fill_null(len(ids)).to_numpy()])

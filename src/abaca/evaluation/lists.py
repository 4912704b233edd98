"""The recommendations of another system as a row of an evaluation: a file with a list of items for each user."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from abaca.data.sequences import Sequences
from abaca.errors import QueryError
from abaca.evaluation.evaluate import Evaluation, repeats_of
from abaca.evaluation.membership import Membership
from abaca.evaluation.metrics import Ints
from abaca.evaluation.ranking import shelf_ranks
from abaca.evaluation.targets import checked_cutoffs, targets_of
from abaca.types import PAD, Id

NAMES = {
    "user": ("user_id", "user"),
    "item": ("item_id", "item", "id"),
    "rank": ("rank", "place"),
    "score": ("score", "probability"),
}
"""Columns by what they hold; the first that the file has counts. A rank comes before a score."""


ID_TYPES = r"(dictionary<values=)?(large_)?(string|u?int\d+)(, .*)?"
"""Arrow types of ids, by their text."""


@dataclass(frozen=True)
class Lists:
    """Items for each user, best first."""

    name: str
    items: Ints  # (P,) users one after another; PAD for an item that the catalogue does not have
    starts: Ints  # (users + 1,) where the list of each user begins
    places: Ints  # (P,) from 1; items of equal score or rank share the last of their places

    @classmethod
    def read(cls, path: Path, sequences: Sequences) -> "Lists":
        """A Parquet or CSV file with the columns user_id, item_id, and score or rank; unknown users are left out."""
        table = _read(path)
        key = "rank" if "rank" in table else "score"
        users = _indices(table["user"], {str(id): user for user, id in enumerate(sequences.user_ids)})
        items = _indices(table["item"], sequences.catalogue)
        if np.all(users == PAD):
            raise QueryError(f"{path} has no user of the data, whose users are such as {sequences.user_ids[0]!r}")
        order = _numbers(path, table[key], key) * (1 if key == "rank" else -1)
        kept = np.lexsort((order, users))
        kept = kept[users[kept] != PAD]
        users, order = users[kept], order[kept]
        starts = np.searchsorted(users, np.arange(len(sequences.user_ids) + 1))
        ties = np.cumsum((np.diff(users, prepend=PAD) != 0) | (np.diff(order, prepend=np.nan) != 0))
        return cls(path.name, items[kept], starts, np.searchsorted(ties, ties, side="right") - starts[users])

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
        histories, types = sequences.histories(users, positions), sequences.types
        held = Membership(histories if types is None else types.owned(histories), len(sequences.catalogue))
        seen = held.holds(np.column_stack([items, top]))
        rank = np.where(items < catalogue, np.minimum(self._places(users, items), catalogue + 1), catalogue + 1)
        ahead = self._ahead(users, np.where(rank > catalogue, 0, rank), held) - seen[:, 0]  # the target aside
        unknown = np.full(len(users), np.nan)
        return Evaluation(
            self.name, split, ks, catalogue, users, positions, items, rank,
            shelf_ranks(rank, ahead, seen[:, 0], catalogue), seen[:, 0], top.astype(np.int32), seen[:, 1:], unknown,
            repeats_of=repeats_of(sequences),
        )  # fmt: skip

    def _ahead(self, users: Ints, places: Ints, held: Membership) -> Ints:
        """How many of the first places of each list (T,) hold items of the history."""
        rows = np.repeat(np.arange(len(users)), places)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(places) - places, places)
        repeated = held.contains(rows, self.items[np.repeat(self.starts[users], places) + within])
        return np.bincount(rows[repeated], minlength=len(users))

    def _places(self, users: Ints, items: Ints) -> Ints:
        """The first place of each item in its user's list, from 1; far beyond for an absent item."""
        owner = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        width = int(max(items.max(initial=0), self.items.max(initial=0))) + 2
        keys, first = np.unique(owner * width + self.items + 1, return_index=True)
        wanted = users * width + items + 1
        found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        if not len(keys):
            return np.full(len(users), np.iinfo(np.int64).max)
        return np.where(keys[found] == wanted, self.places[first[found]], np.iinfo(np.int64).max)


def _read(path: Path) -> dict[str, Any]:
    """The columns of the file by what they hold."""
    try:
        table = pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else _read_csv(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise QueryError(f"{path} cannot be read as Parquet or CSV ({error})") from error
    lower = [name.lower() for name in table.column_names]
    taken = {what: next((name for name in names if name in lower), None) for what, names in NAMES.items()}
    found = {what: table.column(lower.index(name)) for what, name in taken.items() if name is not None}
    if not {"user", "item"} <= found.keys() or not {"rank", "score"} & found.keys():
        raise QueryError(
            f"{path} has the columns {', '.join(table.column_names)}; it needs user_id, item_id, and score or rank"
        )
    for what, column in found.items():
        if lower.count(taken[what]) > 1:
            raise QueryError(f"{path} has the column {taken[what]} twice; leave one out")
        if what in ("user", "item") and re.fullmatch(ID_TYPES, str(column.type)) is None:
            raise QueryError(f"{path}: the column of the {what} holds {column.type}; ids are text or whole numbers")
    return found


def _read_csv(path: Path) -> pyarrow.Table:
    """A CSV file with its ids as text, so that 007 stays 007."""
    with pyarrow.csv.open_csv(path) as file:
        ids = [name for name in file.schema.names if name.lower() in NAMES["user"] + NAMES["item"]]
    as_text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(ids, pyarrow.string()))
    return pyarrow.csv.read_csv(path, convert_options=as_text)


def _numbers(path: Path, column: Any, what: str) -> npt.NDArray[np.float64]:
    """The ranks or scores, one in every row."""
    try:
        numbers = np.asarray(column.cast(pyarrow.float64()).to_numpy(), dtype=np.float64)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        numbers = np.array([np.nan])
    if np.isnan(numbers).any():
        raise QueryError(f"{path}: the column of the {what} does not hold numbers in all rows")
    return numbers


def _indices(column: Any, known: Any) -> Ints:
    """The index of each id of a column, PAD for one that is not known; integers and text are spelled alike."""
    coded = column.combine_chunks().dictionary_encode()
    ids = coded.dictionary.to_pylist()
    index = known.index if hasattr(known, "index") else lambda id: known.get(str(id))
    table = np.array([PAD if (found := index(id)) is None else found for id in ids] + [PAD], dtype=np.int64)
    return np.asarray(table[coded.indices.fill_null(len(ids)).to_numpy()])

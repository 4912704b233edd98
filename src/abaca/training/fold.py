"""New items of a trained model: their vectors are folded in from items that stand near them.

With N[x, a] as in `start`, the sum of 1/d over pairs of x and a that stand d ≤ 5 positions apart in rows of one user:

    u_x = Σ_a N[x, a] p_a / Σ_a N[x, a]        over the items a that the model knows
    f_x = p̄ + u_x − ū                          p̄: the mean of their vectors; ū: their mean, each by its interactions

The items near x are popular ones, and their vectors hold their popularity. ū takes it out: an item that stands near all
others as often as these occur gets p̄, and so does one that never stood near a known item. Without features p_x is f_x.
Where the model has features, p_x is both:

    p_x = g(x) + e_x,  e_x = s (f_x − g(x)),  s = n / (n + 5)   n = Σ_a N[x, a], 0 for an item without rows
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abaca.data.catalogue import Catalogue
from abaca.errors import ModelError
from abaca.histories import Floats, Histories, Ints
from abaca.nn.build import make_model
from abaca.nn.features import Described, FeatureVectors
from abaca.nn.model import Model
from abaca.plugins import output_layer
from abaca.training.checkpoint import Saved
from abaca.training.start import cooccurrences

Pairs = tuple[Ints, Floats]
"""Pairs of items as keys a · V + b, a ≤ b, and N."""


Columns = Mapping[str, Sequence[Any]]
FEW = 5.0
"""Features weigh as much as this sum of 1/d over an item's pairs."""


@torch.no_grad()
def carried(saved: Saved, known: Ints, rows: Histories | Pairs, columns: Columns | None = None) -> Model:
    """A model with other items and the same weights.

    `known` (V,) has the number that each item has in the saved model, negative for a new item. New items are folded in
    from rows, or from pairs that were counted before; and from their `columns`, where the model has features.
    """
    pairs = cooccurrences(rows, len(known)) if isinstance(rows, Histories) else rows
    counts = _counts(saved, rows, known)
    output = output_layer(saved.output, saved.output_options)
    warm = int(rows.items.max(initial=0)) + 1 if isinstance(rows, Histories) else len(known)
    described = _described(saved.model, columns or {}, known, warm)
    with torch.random.fork_rng(devices=[]):
        model = make_model(saved.encoder, output, len(known), described, types=saved.types, **saved.encoder_options)
    old, weights = saved.model, dict(model.named_parameters())
    pairs_of_tables = zip(_tables(model), _tables(old), strict=True)
    tables = [(table.weight, before.weight) for table, before in pairs_of_tables]
    if old.features is None:
        for table, before in tables:
            table.copy_(folded(before.detach().cpu(), known, pairs, counts))
    own = {id(table) for table, _ in tables}
    buffers = dict(model.named_buffers())
    for name, tensor in old.state_dict().items():
        to = weights.get(name, buffers.get(name))
        assert to is not None, name
        if id(to) in own:
            continue
        if to.shape != tensor.shape:
            raise ModelError(f"{saved.output}: {name} depends on the items, so new ones cannot enter; train again")
        to.copy_(tensor)
    if model.features is not None:
        model.items.weight.copy_(_own_vectors(old, model.features, known, pairs, counts))
    return model.eval()


def _described(old: Model, columns: Columns, known: Ints, warm: int) -> Described | None:
    """The features of the items that a grown model will have; those of items that come first as before are at hand."""
    if old.features is None:
        return None
    features, first = old.features.features, 0
    before = old.features.described
    if np.array_equal(known[: old.catalogue], np.arange(old.catalogue)):
        first = old.catalogue
    new = features.entries({name: values[first:] for name, values in columns.items()}, len(known) - first)
    return Described(features, before.entries.followed_by(new) if first else new, warm, before.dropout)


def _counts(saved: Saved, rows: Histories | Pairs, known: Ints) -> Ints:
    """The interactions of each item (V,): those of the rows, or those that the saved model counted, else 1 each."""
    if isinstance(rows, Histories):
        return np.bincount(rows.items, minlength=len(known))
    if saved.evidence is None:
        return np.ones(len(known), dtype=np.int64)
    counts = np.append(saved.evidence.transitions.counts, 0)
    return np.asarray(counts[np.where(known >= 0, known, -1)], dtype=np.int64)


def _own_vectors(old: Model, features: FeatureVectors, known: Ints, pairs: Pairs, counts: Ints) -> Tensor:
    """e_x of all items (V, D); an item that had none before may get one now."""
    before, described = old.items.weight.detach().cpu(), features.of(torch.arange(len(known)))
    has_own = (before != 0).any(dim=1).numpy()
    known = np.where((known >= 0) & has_own[known], known, -1)
    items, _, near = _near(known >= 0, pairs)
    seen = torch.from_numpy(np.bincount(items, near, minlength=len(known))).to(before.dtype).unsqueeze(1)
    found = folded(old.table.detach().cpu(), known, pairs, counts) - described
    vectors: Tensor = seen / (seen + FEW) * found
    is_known = torch.from_numpy(known >= 0)
    vectors[is_known] = before[torch.from_numpy(known)[is_known]]
    return vectors


def known_items(before: Catalogue, catalogue: Catalogue) -> Ints:
    """The number that each item of a catalogue has in an earlier one, negative for none (V,)."""
    found = (before.index(id) for id in catalogue.ids[: catalogue.size])
    return np.array([-1 if item is None or item >= before.size else item for item in found], dtype=np.int64)


def folded(table: Tensor, known: Ints, pairs: Pairs, counts: Ints) -> Tensor:
    """The item table (V, D) for other items, from a table of known items; `counts` (V,) has interactions."""
    is_known = known >= 0
    vectors = torch.empty(len(known), table.shape[1], dtype=table.dtype)
    vectors[torch.from_numpy(is_known)] = table[torch.from_numpy(known[is_known])]
    new = np.flatnonzero(~is_known)
    if not len(new):
        return vectors
    items, near, amounts = _near(is_known, pairs)
    place = torch.from_numpy(np.searchsorted(new, items))
    weights = torch.from_numpy(amounts).to(table.dtype)
    sums = torch.zeros(len(new), table.shape[1], dtype=table.dtype)
    sums.index_add_(0, place, weights[:, None] * vectors[torch.from_numpy(near)])
    totals = torch.zeros(len(new), 1, dtype=table.dtype).index_add_(0, place, weights[:, None])
    taken = torch.from_numpy(counts[is_known]).to(table.dtype)
    usual = taken @ vectors[torch.from_numpy(is_known)] / taken.sum().clamp_min(1)
    found = table.mean(dim=0) + sums / totals.clamp_min(1e-12) - usual
    vectors[torch.from_numpy(new)] = torch.where(totals == 0, table.mean(dim=0), found)
    return vectors


def _near(is_known: np.ndarray, pairs: Pairs) -> tuple[Ints, Ints, Floats]:
    """Each pair of a new item and a known one, with N."""
    keys, counts = pairs
    first, second = np.divmod(keys, len(is_known))
    ahead, behind = ~is_known[first] & is_known[second], is_known[first] & ~is_known[second]
    return (
        np.concatenate([first[ahead], second[behind]]),
        np.concatenate([second[ahead], first[behind]]),
        np.concatenate([counts[ahead], counts[behind]]),
    )


def _tables(model: Model) -> list[torch.nn.Embedding]:
    return [model.items, *model.output.item_tables]

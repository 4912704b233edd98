"""Ranks of a chunk of targets: in the single list of all items, and on each shelf alone.

The shelf *buy again* holds the items of the history and ranks repeat targets, the shelf *discover* holds all others and
ranks new targets. One question answers both: of the items ranked before a target, those of the history are counted.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from abaca.evaluation.membership import Membership
from abaca.evaluation.metrics import Bools, Floats, Ints
from abaca.evaluation.ranker import Ranker
from abaca.histories import EventTypes, Histories
from abaca.nn.answers import Question
from abaca.types import PAD


class Ranked(NamedTuple):
    """A chunk's columns, in the order of the fields of an evaluation."""

    rank: Ints
    shelf_rank: Ints
    repeat: Bools
    top: NDArray[np.int32]
    top_repeat: Bools
    repeat_probability: Floats


def rank_chunk(
    ranker: Ranker, histories: Histories, items: Ints, catalogue: int, n: int, types: EventTypes | None = None
) -> Ranked:
    """Rank a chunk of targets, and look targets and lists up in the whole histories.

    With types, only events of those that are predicted make an item a repeat.
    """
    owned = histories if types is None else types.owned(histories)
    cold = items >= catalogue
    known = histories.known(catalogue)
    question = Question(
        targets=torch.from_numpy(np.where(cold, PAD, items)),  # no ranker can score a cold item
        n=n,
        mass_of=torch.from_numpy(Membership(owned.known(catalogue), catalogue).rectangle()),
        banned=torch.empty(len(items), 0, dtype=torch.int64),
    )
    found = ranker.ask(known, question)
    if found.items.shape != (len(items), n):
        raise ValueError(f"{ranker.name}: got a list of shape {tuple(found.items.shape)}, expected {(len(items), n)}")
    rank = np.where(cold, catalogue + 1, found.rank.numpy()).astype(np.int64)
    if rank.min() < 1 or rank.max() > catalogue + 1:
        raise ValueError(f"{ranker.name}: got ranks {rank.min()} to {rank.max()}, expected 1 to {catalogue + 1}")
    top = found.items.masked_fill(found.logits == -torch.inf, PAD).numpy().astype(np.int32)
    whole = Membership(owned, 1 + max(catalogue - 1, int(items.max()), int(owned.items.max(initial=0))))
    repeat = whole.holds(np.column_stack([items, top]))  # (T, 1 + n)
    shelf_rank = shelf_ranks(rank, found.ahead.numpy(), repeat[:, 0], catalogue)
    if shelf_rank.min() < 1:
        raise ValueError(f"{ranker.name}: got more items of the history ahead of a target than its rank allows")
    return Ranked(rank, shelf_rank, repeat[:, 0], top, repeat[:, 1:], found.mass.clamp(0, 1).double().numpy())


def shelf_ranks(rank: Ints, ahead: Ints, repeat: Bools, catalogue: int) -> Ints:
    """The rank of each target (T,) on its shelf; V + 1 for a target that cannot be named.

    `ahead` counts the items of the history, the target aside, that score at least as high.
    """
    return np.where(rank > catalogue, rank, np.where(repeat, 1 + ahead, rank - ahead))

"""Options that suit a log, from its size and the length of its histories.

The rules come from a few runs, validated on five logs (docs/choose.md). An option that is given is never changed.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from abaca.data.batches import rows_between
from abaca.data.sequences import Sequences
from abaca.nn.encoders import encoder_class
from abaca.options import AUTO

MODES = (AUTO, "fixed")
SHORT, LONG = 20.0, 80.0
"""Histories with fewer items than SHORT on average are short, with more than LONG they are long."""

ENOUGH, ENOUGH_SHORT = 10_000_000, 2_500_000
"""Training targets that a run reads at most, but for the fewest epochs; those of short histories over-fit sooner."""
FEWEST_EPOCHS, MOST_EPOCHS = 5, 20
WHOLE, SAMPLED, LEAST_SHARE = 5_000, 2_000, 0.05
"""Up to WHOLE items the loss reads all; else about SAMPLED beside those of the batch, and LEAST_SHARE at least."""
RARE, AHEAD = 0.01, 0.3
"""Where histories are short and a smaller share than RARE of the rows are repeats, AHEAD of the targets come soon."""
FEW, DECAY = 0.1, 0.4
"""Where histories are short and a smaller share than FEW of the rows are repeats, item vectors decay by DECAY."""
ENOUGH_USERS = 20_000
"""Users whose rows tell the share of repeats."""


@dataclass(frozen=True)
class Shape:
    """The size of a log's training part."""

    users: int
    items: int
    interactions: int
    repeats: float
    """Share of the interactions that are with an item that the user had before."""

    @classmethod
    def of(cls, sequences: Sequences) -> "Shape":
        """Read it off prepared sequences."""
        items, interactions = sequences.catalogue.size, sequences.training_interactions
        return cls(sequences.users, items, interactions, _share_of_repeats(sequences))

    @property
    def length(self) -> float:
        """Training interactions of a user, on average."""
        return self.interactions / max(1, self.users)


def _share_of_repeats(sequences: Sequences) -> float:
    """Of the training rows of some users, evenly spaced."""
    count = min(sequences.users, ENOUGH_USERS)
    users = np.arange(count) * sequences.users // max(1, count)
    begin, end = sequences.offsets[users], sequences.train_end[users]
    items = np.asarray(sequences.items[rows_between(begin, end)], dtype=np.int64)
    pairs = np.repeat(np.arange(count), end - begin) * (1 << 32) + items
    return 1 - len(np.unique(pairs)) / max(1, len(pairs))


def suited_encoder(shape: Shape) -> str:
    """The encoder that suits a log."""
    return "hstu" if shape.length > LONG else "sasrec"


def suited(encoder: str, shape: Shape, *, sampled: bool) -> dict[str, Any]:
    """The options of training and of the encoder that suit a log; each has a reason in docs/choose.md.

    `sampled` says whether the output layer's loss can be estimated from a part of the catalogue.
    """
    short, long = shape.length < SHORT, shape.length > LONG
    epochs = round((ENOUGH_SHORT if short else ENOUGH) / max(1, shape.interactions))
    chosen: dict[str, Any] = {
        "start": "counts",
        "lr": 1.5e-3 if short else 2e-3,
        "epochs": min(MOST_EPOCHS, max(FEWEST_EPOCHS, epochs)),
        "patience": 3,
        "ahead": AHEAD if short and shape.repeats < RARE else 0.0,
        "share": round(max(LEAST_SHARE, SAMPLED / shape.items), 3) if sampled and shape.items > WHOLE else 1.0,
        "weight_decay": DECAY if short and shape.repeats < FEW else 0.0,
        "dim": 128 if short else 64,
        "dropout": 0.6 if short else 0.2 if long else 0.3,
    }
    known = {field.name for field in fields(encoder_class(encoder).Options)}
    return {name: value for name, value in chosen.items() if name in known or name not in ("dim", "dropout")}


MOVES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("lr", lambda lr: lr * 2),
    ("dropout", lambda dropout: round(max(0.0, dropout - 0.15), 2)),
    ("dim", lambda dim: dim * 2),
    ("lr", lambda lr: lr / 2),
    ("dropout", lambda dropout: round(min(0.7, dropout + 0.15), 2)),
    ("dim", lambda dim: max(2, dim // 2)),
)
"""Values beside those that suit a log, in the order in which they are tried."""


def around(options: Mapping[str, Any], fixed: Container[str]) -> list[dict[str, Any]]:
    """Changes that a search within a budget tries, one option each; the first is none. Fixed options stay."""
    changes: list[dict[str, Any]] = [{}]
    for name, move in MOVES:
        if name in options and name not in fixed:
            changes.append({name: move(options[name])})
    return changes

"""What the likelihood of held-out targets reads, in one pass over a frozen network.

A network's logits are needed once: those of the items that evidence speaks of, and of all others the log-sum-exp at a
few scales. In between it is a polynomial in the scale.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from abaca.evidence.evidence import Claims, Evidence
from abaca.histories import Bools, Floats, Histories, Ints
from abaca.nn.logits import Scores

LOWEST, HIGHEST, NODES = 0.2, 1.6, 7
"""Range of T, and the number of scales at which the rest of the catalogue is read."""
EXCLUDED = -1e4
"""Stands for a logit of −∞: no probability, and no NaN."""
CUTOFF = 10
"""Of the NDCG that orders items outside the history."""

Scored = Callable[[Histories], Iterator[tuple[Ints, Scores]]]
"""The network's scores of some histories: their numbers, and a row of scores each."""


class Problem(NamedTuple):
    """What the likelihood of N held-out targets reads; an entry is an item that evidence speaks of."""

    habits: tuple[str, ...]
    rows: Ints  # (P,) the target's row of each entry, ascending; each row has entries
    own: Ints  # (O,) the entries that are of the history
    codes: Ints  # (O, F)
    strength: Floats  # (P,)
    logits: Floats  # (P,) the network's
    rest: Floats  # (N, NODES) coefficients of the log-sum-exp of all other items, by the scale
    entry: Ints  # (N,) the entry that is the target; negative where it is none
    hit: Floats  # (N,) the network's logit of the target
    best: Floats  # (N, CUTOFF + 1) the highest logits of all other items

    def take(self, chosen: Bools) -> "Problem":
        """Only the targets of a mask (N,)."""
        kept = chosen[self.rows]
        row, entry = np.cumsum(chosen) - 1, np.cumsum(kept) - 1
        at, mine = self.entry[chosen], kept[self.own]
        return Problem(
            self.habits, row[self.rows[kept]], entry[self.own[mine]], self.codes[mine], self.strength[kept],
            self.logits[kept], self.rest[chosen], np.where(at >= 0, entry[at], -1), self.hit[chosen],
            self.best[chosen],
        )  # fmt: skip


def problems(
    evidence: Evidence, scored: Scored, histories: Histories, targets: Ints, kinds: list[str]
) -> dict[str, Problem]:
    """What each kind of fit reads, in one pass over the network."""
    parts: dict[str, list[Problem]] = {kind: [] for kind in kinds}
    for numbers, scores in scored(histories):
        batch = histories.take(numbers)
        followers = evidence.followers(batch)
        claims = {kind: evidence.claims(batch, kind, followers) for kind in kinds}
        read = _read(scores, claims[kinds[0]], targets[numbers])
        for kind, found in claims.items():
            own = np.flatnonzero(found.own)
            habits = evidence.habits(kind)
            parts[kind].append(Problem(habits, found.rows, own, found.codes[own], found.strength, *read))
    return {kind: _joined(part) for kind, part in parts.items()}


def nodes() -> Floats:
    """The scales at which the rest of the catalogue is read (NODES,): Chebyshev's, in [−1, 1]."""
    return np.asarray(np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES))


def _read(scores: Scores, claims: Claims, targets: Ints) -> tuple[Floats, Floats, Ints, Floats, Floats]:
    """Logits of the entries (P,), the rest's coefficients (N, NODES), the target's entry and logit, the rest's best."""
    logits, hit = np.empty(len(claims.rows)), np.empty(scores.rows)
    sums, best = np.empty((scores.rows, NODES)), np.full((scores.rows, CUTOFF + 1), -np.inf)
    scales = (LOWEST + HIGHEST) / 2 + (HIGHEST - LOWEST) / 2 * nodes()
    for tile in scores.tiles():
        final = tile.logits[:, :-1].cpu()
        first = tile.rows.start or 0
        inside = slice(*np.searchsorted(claims.rows, [first, first + len(final)]))
        at = torch.from_numpy(claims.rows[inside] - first), torch.from_numpy(claims.items[inside])
        logits[inside] = final[at].numpy()
        hit[tile.rows] = final.numpy()[np.arange(len(final)), targets[tile.rows]]
        others = final.index_put(at, torch.tensor(-torch.inf))
        most = min(CUTOFF + 1, others.shape[1])
        best[tile.rows, :most] = others.topk(most, dim=1).values.numpy()
        for node, scale in enumerate(scales.tolist()):
            sums[tile.rows, node] = (others * scale).logsumexp(dim=1).numpy()
    powers = np.linalg.inv(np.vander(nodes(), increasing=True))  # values → coefficients
    is_target = np.flatnonzero(claims.items == targets[claims.rows])
    entry = np.full(scores.rows, -1)
    entry[claims.rows[is_target]] = is_target
    return np.maximum(logits, EXCLUDED), np.maximum(sums, EXCLUDED) @ powers.T, entry, hit, best


def _joined(parts: list[Problem]) -> Problem:
    """Several batches as one problem."""
    row, place, moved = 0, 0, []
    for part in parts:
        entry = np.where(part.entry >= 0, part.entry + place, -1)
        moved.append(part._replace(rows=part.rows + row, own=part.own + place, entry=entry))
        row, place = row + len(part.hit), place + len(part.rows)
    columns = zip(*(part[1:] for part in moved), strict=True)
    return Problem(parts[0].habits, *(np.concatenate(column) for column in columns))

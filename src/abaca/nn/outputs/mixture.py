"""`mos-mix:K`, the original mixture of softmaxes: Σ_k π_k softmax_k. It mixes probabilities, not logits."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from abaca.nn.logits import Logits, Overrides, Tile, row_slices
from abaca.nn.ops.loss import cross_entropy
from abaca.nn.outputs.encoded import Encoded
from abaca.nn.outputs.output import SpelledOutput
from abaca.nn.outputs.query import make_query


class Mixture(NamedTuple):
    """Log-probabilities of a mixture, read tile by tile like logits."""

    queries: Tensor  # (N, H, D)
    log_share: Tensor  # (N, H) log π
    table: Tensor  # (V, D)
    overrides: Overrides

    @property
    def rows(self) -> int:
        return self.queries.shape[0]

    @property
    def catalogue(self) -> int:
        return self.table.shape[0]

    def tiles(self) -> Iterator[Tile]:
        """Log-probabilities without gradients, a few rows at a time."""
        for rows in row_slices(self.rows, self.catalogue * self.queries.shape[1]):
            with torch.no_grad():
                parts = (self.queries[rows] @ self.table.T).log_softmax(dim=2)  # (n, H, V)
                mixed = (parts + self.log_share[rows].unsqueeze(2)).logsumexp(dim=1)
            logits = torch.nn.functional.pad(mixed, (0, 1), value=-torch.inf)
            ids, values = self.overrides.of(rows, self.catalogue)
            logits.scatter_(1, ids, values)
            logits[:, -1] = -torch.inf
            yield Tile(rows, logits, [], ids)


class MixtureOfSoftmaxes(SpelledOutput):
    """K queries, each with a softmax of its own, and their shares π = softmax(W q)."""

    def build(self, layers: int, dim: int, catalogue: int) -> None:
        self.mix = make_query(self.options.mix, layers, dim)
        self.f = nn.ModuleList(nn.Linear(self.mix.query_dim, dim) for _ in range(self.options.queries))
        self.share = nn.Linear(self.mix.query_dim, self.options.queries, bias=False)

    @property
    def item_projections(self) -> list[nn.Linear]:
        return list(self.f)  # type: ignore[arg-type]

    def loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        """Sum over the rows of −log Σ_k π_k P_k(target).

        The gradient of each softmax is that of its cross entropy, weighted by its responsibility for the target; so
        a first pass finds the responsibilities and a second one makes the gradients.
        """
        mixture = self._mixture(encoded, encoded.no_overrides())
        count = mixture.queries.shape[1]
        flat = Logits(mixture.queries.reshape(-1, 1, mixture.queries.shape[2]), mixture.table, (), _no_rows(mixture))
        repeated = targets.repeat_interleave(count)
        with torch.no_grad():
            hit = _log_probability(flat, repeated).view(-1, count)  # (N, H) log P_k(target)
            responsible = (hit + mixture.log_share).softmax(dim=1)
            weights = 1.0 if encoded.weights is None else encoded.weights.unsqueeze(1)
        surrogate = cross_entropy(flat, repeated, (responsible * weights).flatten())
        mixed = (hit + mixture.log_share).logsumexp(dim=1)
        value = -(mixed if encoded.weights is None else mixed * encoded.weights).sum()
        return value + (surrogate - surrogate.detach())

    def scores(self, encoded: Encoded) -> Mixture:
        """The log-probabilities, without the history's items under nodup."""
        return self._mixture(encoded, encoded.excluded() if self.excludes_history else encoded.no_overrides())

    def _mixture(self, encoded: Encoded, overrides: Overrides) -> Mixture:
        rows = encoded.rows(self.mix.at(encoded.states, encoded.positions))  # (N, Q)
        queries = torch.stack([f(rows) for f in self.f], dim=1)  # (N, H, D)
        return Mixture(queries, self.share(rows).log_softmax(dim=1), encoded.table, overrides)


def _no_rows(mixture: Mixture) -> Overrides:
    """No overrides for the N · H rows of the single softmaxes."""
    count = mixture.queries.shape[0] * mixture.queries.shape[1]
    zeros = mixture.overrides.history_of_row.new_zeros(count)
    return Overrides(zeros.new_empty(1, 0), zeros, zeros, mixture.queries.new_empty(count, 0))


def _log_probability(logits: Logits, targets: Tensor) -> Tensor:
    """log P(target) of each row (N,)."""
    parts = []
    for tile in logits.tiles():
        hit = tile.logits.gather(1, targets[tile.rows, None]).squeeze(1)
        parts.append(hit - tile.logits.logsumexp(dim=1))
    return torch.cat(parts)

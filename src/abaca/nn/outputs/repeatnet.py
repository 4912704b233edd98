"""RepeatNet (Ren et al., 2019): a learned choice between repeating from the history and exploring outside it."""

import torch
from torch import Tensor, nn

from abaca.nn.logits import Logits
from abaca.nn.ops.loss import cross_entropy
from abaca.nn.outputs.encoded import Encoded
from abaca.nn.outputs.history import Slots
from abaca.nn.outputs.output import SpelledOutput
from abaca.nn.outputs.query import make_query


class Attention(nn.Module):
    """α_j = softmax_j(v · tanh(W h_n + U h_j)) over the positions visible to a prediction."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.W = nn.Linear(dim, dim, bias=False)
        self.U = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, 1, bias=False)

    def forward(self, at: Tensor, q: Tensor, visible: Tensor) -> Tensor:
        """Queries (B, T, Q), states (B, L, Q), visible (B, T, L) → log α (B, T, L)."""
        energy = self.v(torch.tanh(self.W(at).unsqueeze(2) + self.U(q).unsqueeze(1))).squeeze(3)
        return energy.masked_fill(~visible, -torch.inf).log_softmax(dim=2)  # type: ignore[no-any-return]


class RepeatNet(SpelledOutput):
    """P(x) = p_r · a_x for items of the history, p_e · explore(x) for all others; explore has its own item table."""

    def build(self, layers: int, dim: int, catalogue: int) -> None:
        self.mix = make_query(self.options.mix, layers, dim)
        size = self.mix.query_dim
        self.mode = Attention(size)
        self.repeat = Attention(size)
        self.explore = Attention(size)
        self.choose = nn.Linear(size, 2, bias=False)
        self.table = nn.Embedding(catalogue, 2 * size)

    @property
    def item_tables(self) -> list[nn.Embedding]:
        return [self.table]

    def loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        """Sum of −log p_r − log a_x for repeated targets and −log p_e − log explore(x) for new ones."""
        explore, log_mode, log_repeat, slots = self._parts(encoded)
        ids, _ = encoded.overrides(slots.ids, log_repeat).of(slice(None), explore.catalogue)
        at_target = ids == targets.unsqueeze(1)  # (N, L), at most one slot a row
        repeated = at_target.any(dim=1)
        copied = log_mode[repeated, 0] + log_repeat[at_target]
        new = (~repeated).nonzero().squeeze(1)
        if encoded.weights is None:
            return cross_entropy(explore.take(new), targets[new]) - log_mode[new, 1].sum() - copied.sum()
        explored = cross_entropy(explore.take(new), targets[new], encoded.weights[new])
        modes = (log_mode[new, 1] * encoded.weights[new]).sum()
        return explored - modes - (copied * encoded.weights[repeated]).sum()

    def scores(self, encoded: Encoded) -> Logits:
        """The mixture as base + overrides: an item of the history gets log p_r + log a_x − log p_e + S."""
        explore, log_mode, log_repeat, slots = self._parts(encoded)
        if self.excludes_history:
            return explore
        sums = [tile.logits.logsumexp(dim=1) for tile in explore.tiles()]
        explored = torch.cat(sums)  # S; −∞ where the history holds the whole catalogue
        explored = explored.where(explored.isfinite(), 0)
        values = log_repeat + (log_mode[:, 0] - log_mode[:, 1] + explored).unsqueeze(1)
        return explore._replace(overrides=encoded.overrides(slots.ids, values))

    def _parts(self, encoded: Encoded) -> tuple[Logits, Tensor, Tensor, Slots]:
        """Explore's logits outside the history, log (p_r, p_e) (N, 2), log a (N, L), and the history's slots."""
        q = self.mix(encoded.states)  # (B, L, Q)
        at = encoded.at_positions(q)  # (B, T, Q)
        slots = Slots.of(encoded.items, self.table.num_embeddings)
        visible = slots.visible(encoded.positions.clamp_min(0))  # (B, T, L)
        log_mode = self.choose(self.mode(at, q, visible).exp() @ q).log_softmax(dim=2)  # (B, T, 2)
        log_repeat = slots.log_gather(self.repeat(at, q, visible))  # (B, T, L)
        query = torch.cat([at, self.explore(at, q, visible).exp() @ q], dim=2)  # (B, T, 2·Q)
        explore = Logits(encoded.rows(query).unsqueeze(1), self.table.weight, (), encoded.excluded())
        return explore, encoded.rows(log_mode), encoded.rows(log_repeat), slots

"""A trial of the loss over an item table that is cut into shards: is it exact, and what do shards exchange?

    python benchmarks/sharded.py

Shard r of n has the items x with x mod n = r, since items are numbered by popularity. One process plays all shards. A
shard reads its own rows of the table only. What it needs from others goes through the four lines that are marked; in a
real run these are collectives. Loss and gradients are compared with those of the whole table, in float64.
"""

import argparse

import torch
from torch import Tensor

from abaca.nn.logits import Level, Logits, Overrides
from abaca.nn.ops.loss import plain


class Shard:
    """The logits of one shard's items (N, V/n + 1); the last column is spare."""

    def __init__(self, whole: Logits, rank: int, size: int) -> None:
        self.rank, self.size, self.table = rank, size, whole.table[rank::size]
        base = (whole.queries @ self.table.T).amax(dim=1)
        self.logits = torch.nn.functional.pad(base, (0, 1))

    def best(self, k: int) -> Tensor:
        """The k best logits of each row, as far as this shard knows."""
        items = self.logits[:, :-1].detach()
        return items.topk(min(k, items.shape[1]), dim=1).values

    def rescore(self, level: Level, floor: Tensor) -> None:
        """Score those items again that are among the k best of all shards."""
        rows, places = (self.logits[:, :-1].detach() >= floor).nonzero(as_tuple=True)
        again = (self.table[places] * level.query[rows]).sum(1)
        self.logits = self.logits.index_put((rows, places), again)

    def override(self, ids: Tensor, values: Tensor, catalogue: int) -> None:
        """Replace the logits of own items of the history."""
        own = (ids % self.size == self.rank) & (ids < catalogue)
        self.logits = self.logits.scatter(1, torch.where(own, ids // self.size, self.table.shape[0]), values)
        self.logits = self.logits.index_fill(1, torch.tensor([self.table.shape[0]]), -torch.inf)

    def hit(self, targets: Tensor) -> Tensor:
        """The target's logit where the target is an own item, else 0."""
        own = targets % self.size == self.rank
        found = self.logits.gather(1, torch.where(own, targets // self.size, 0).unsqueeze(1)).squeeze(1)
        return torch.where(own, found, 0.0)


def sharded(whole: Logits, targets: Tensor, size: int) -> Tensor:
    """Σ −log P(target) from shards."""
    shards = [Shard(whole, rank, size) for rank in range(size)]
    for level in whole.levels:
        best = torch.cat([shard.best(level.k) for shard in shards], dim=1)  # all-gather (N, n · k)
        floor = best.topk(min(level.k, whole.catalogue), dim=1).values[:, -1:]
        for shard in shards:
            shard.rescore(level, floor)
    ids, values = whole.overrides.of(slice(None), whole.catalogue)
    for shard in shards:
        shard.override(ids, values, whole.catalogue)
    top = torch.stack([shard.logits.detach().amax(1) for shard in shards]).amax(0)  # all-reduce of maxima (N,)
    total = torch.stack([(shard.logits - top[:, None]).exp().sum(1) for shard in shards]).sum(0)  # all-reduce (N,)
    hits = torch.stack([shard.hit(targets) for shard in shards]).sum(0)  # all-reduce (N,)
    return (top + total.log() - hits).sum()


def example(rows: int, catalogue: int, dim: int, levels: tuple[int, ...], queries: int) -> tuple[Logits, Tensor]:
    """Random logits with histories that override some items."""
    torch.manual_seed(0)
    made = {"dtype": torch.float64, "requires_grad": True}
    slots = torch.stack([torch.randperm(catalogue + 3)[:6].clamp_max(catalogue) for _ in range(rows)])
    overrides = Overrides(slots, torch.arange(rows), torch.randint(0, 7, (rows,)), torch.randn(rows, 6, **made))
    reranked = tuple(Level(k, torch.randn(rows, dim, **made)) for k in levels)
    base, table = torch.randn(rows, queries, dim, **made), torch.randn(catalogue, dim, **made)
    return Logits(base, table, reranked, overrides), torch.randint(catalogue, (rows,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--items", type=int, default=700)
    given = parser.parse_args()
    for levels, queries in (((), 1), ((500, 100, 20), 1), ((100,), 2)):
        for size in (2, 3, 8):
            logits, targets = example(given.rows, given.items, 16, levels, queries)
            one = plain(logits, targets, torch.ones(given.rows, dtype=torch.float64))
            many = sharded(logits, targets, size)
            pairs = zip(*(torch.autograd.grad(loss, logits.inputs) for loss in (one, many)), strict=True)
            worst = max(float((a - b).abs().max()) for a, b in pairs if a.numel())
            print(f"levels {levels}, queries {queries}, shards {size}: {abs(one.item() - many.item()):.1e} {worst:.1e}")


if __name__ == "__main__":
    main()

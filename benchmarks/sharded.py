"""A trial of an item table in shards, in processes of their own: is the loss exact, and what goes over the wire?

    python benchmarks/sharded.py --json sharded.json

Process r of n has the items x with x mod n = r, since items are numbered by popularity. It also has its share of a
step's windows. Loss and gradients are first compared with those of the whole table, in float64. Then a step of usual
size is measured: its rows of the table as inputs, the loss, and the backward pass. Bytes are those that one process
sends: (n − 1) / n of what is gathered, twice that of what is added up. The loopback device counts those of all
processes, also of other programs.
"""

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any

import torch
from together import loopback_bytes, start  # beside this file
from torch import Tensor
from torch import distributed as dist

from abaca.nn.logits import Level, Logits, Overrides
from abaca.nn.ops.loss import plain
from abaca.training import group as groups

CHECKED = tuple(
    (size, levels, queries) for size in (2, 3) for levels, queries in (((), 1), ((500, 100, 20), 1), ((100,), 2))
)
"""Processes, levels of the reranking, base queries."""
MEASURED = ((50_000, ()), (100_000, ()), (100_000, (100,)))
"""Items and levels."""
WINDOW, TARGETS, DIM = 50, 25, 64


class Sent:
    """What this process has sent so far."""

    bytes = 0.0


def everyone(rows: Tensor, dim: int = 0) -> Tensor:
    """The rows of all processes, without a gradient."""
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows.contiguous())
    Sent.bytes += (len(parts) - 1) * rows.nbytes
    return torch.cat(parts, dim)


def added_up(terms: Tensor, how: Any = dist.ReduceOp.SUM) -> Tensor:
    """The sums of all processes, or their maxima, without a gradient."""
    total, size = terms.contiguous().clone(), dist.get_world_size()
    dist.all_reduce(total, how)
    Sent.bytes += 2 * (size - 1) / size * total.nbytes
    return total


def own(rows: Tensor) -> Tensor:
    """The part of this process."""
    return rows.chunk(dist.get_world_size())[dist.get_rank()]


class Gathered(torch.autograd.Function):
    """The rows of all processes. Each uses them with its own items, so gradients are added up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        return everyone(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return own(added_up(gradient))


class Added(torch.autograd.Function):
    """A sum over processes. All continue with the same loss, so each has the gradient of its own term."""

    @staticmethod
    def forward(ctx: Any, terms: Tensor) -> Tensor:
        return added_up(terms)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Dealt(torch.autograd.Function):
    """Of a sum over processes the own part. Every process needs the gradients of all parts."""

    @staticmethod
    def forward(ctx: Any, terms: Tensor) -> Tensor:
        return own(added_up(terms))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return everyone(gradient)


@dataclass
class Shard:
    """The items of one process (V/n, D), and the logits of all rows for them (N, V/n + 1); the last column is spare."""

    table: Tensor
    logits: Tensor
    rank: int
    size: int

    @classmethod
    def scored(cls, table: Tensor, queries: Tensor) -> "Shard":
        base = (queries @ table.T).amax(dim=1)
        return cls(table, torch.nn.functional.pad(base, (0, 1)), dist.get_rank(), dist.get_world_size())

    def best(self, k: int, most: int) -> Tensor:
        """The k best logits of each row among own items; `most` is the size of the largest shard."""
        items = self.logits[:, :-1].detach()
        found = items.topk(min(k, items.shape[1]), dim=1).values
        return torch.nn.functional.pad(found, (0, min(k, most) - found.shape[1]), value=-torch.inf)

    def rescore(self, query: Tensor, floor: Tensor) -> None:
        """Score those items again that are among the k best of all shards."""
        rows, places = (self.logits[:, :-1].detach() >= floor).nonzero(as_tuple=True)
        again = (self.table[places] * query[rows]).sum(1)
        self.logits = self.logits.index_put((rows, places), again)

    def override(self, ids: Tensor, values: Tensor, catalogue: int) -> None:
        """Replace the logits of own items of the history."""
        mine = (ids % self.size == self.rank) & (ids < catalogue)
        self.logits = self.logits.scatter(1, torch.where(mine, ids // self.size, self.table.shape[0]), values)
        self.logits = self.logits.index_fill(1, torch.tensor([self.table.shape[0]]), -torch.inf)

    def hit(self, targets: Tensor) -> Tensor:
        """The target's logit where the target is an own item, else 0."""
        mine = targets % self.size == self.rank
        found = self.logits.gather(1, torch.where(mine, targets // self.size, 0).unsqueeze(1)).squeeze(1)
        return torch.where(mine, found, 0.0)


def looked_up(table: Tensor, ids: Tensor) -> Tensor:
    """The rows of the whole table for own ids (M,); the table is this process's part."""
    ids, size = everyone(ids), dist.get_world_size()
    mine = ids % size == dist.get_rank()
    return Dealt.apply(torch.where(mine[:, None], table[torch.where(mine, ids // size, 0)], 0.0))  # type: ignore[no-any-return, no-untyped-call]


def sharded(part: Logits, targets: Tensor, catalogue: int) -> Tensor:
    """Σ −log P(target) over the rows of all processes; the table of `part` is a shard, its rows are own ones."""
    gathered: Any = Gathered.apply
    added: Any = Added.apply
    shard = Shard.scored(part.table, gathered(part.queries))
    for level in part.levels:
        best = everyone(shard.best(level.k, -(-catalogue // shard.size)), dim=1)
        shard.rescore(gathered(level.query), best.topk(min(level.k, catalogue), dim=1).values[:, -1:])
    ids, values = part.overrides.of(slice(None), catalogue)
    shard.override(everyone(ids), gathered(values), catalogue)
    top = added_up(shard.logits.detach().amax(1), dist.ReduceOp.MAX)
    total = added((shard.logits - top[:, None]).exp().sum(1))
    return (top + total.log() - added(shard.hit(everyone(targets)))).sum()


def example(rows: int, catalogue: int, dim: int, levels: tuple[int, ...], queries: int) -> tuple[Logits, Tensor]:
    """Random logits with histories that override some items."""
    made = {"dtype": torch.float64, "requires_grad": True}
    slots = torch.stack([torch.randperm(catalogue + 3)[:6].clamp_max(catalogue) for _ in range(rows)])
    overrides = Overrides(slots, torch.arange(rows), torch.randint(0, 7, (rows,)), torch.randn(rows, 6, **made))
    reranked = tuple(Level(k, torch.randn(rows, dim, **made)) for k in levels)
    base, table = torch.randn(rows, queries, dim, **made), torch.randn(catalogue, dim, **made)
    return Logits(base, table, reranked, overrides), torch.randint(catalogue, (rows,))


def check(levels: tuple[int, ...], queries: int, rows: int = 42, catalogue: int = 700) -> dict[str, float]:
    """How far loss and gradients are from those of the whole table."""
    whole, targets = example(rows, catalogue, 16, levels, queries)
    ids, effect = torch.randint(catalogue, (rows,)), torch.randn(rows, 16, dtype=torch.float64)
    one = plain(whole, targets, torch.ones(rows, dtype=torch.float64)) + (whole.table[ids] * effect).sum()
    wanted = torch.autograd.grad(one, whole.inputs)
    shard = whole.table[dist.get_rank() :: dist.get_world_size()]
    part = whole.take(own(torch.arange(rows)))._replace(table=shard)
    inputs = (looked_up(shard, own(ids)) * own(effect)).sum()
    loss = sharded(part, own(targets), catalogue)
    found = torch.autograd.grad(loss + inputs, whole.inputs)  # 0 for rows and items of other processes
    worst = max(float((added_up(a) - b).abs().max()) for a, b in zip(found, wanted, strict=True))
    return {"loss": abs((one - loss - added_up(inputs.detach())).item()), "gradients": worst}


def measure(catalogue: int, levels: tuple[int, ...], targets: int) -> dict[str, float]:
    """Bytes and time of a step with `targets` targets, over all processes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    rows, windows = targets // size, targets // size // TARGETS
    table = torch.randn(len(range(rank, catalogue, size)), DIM) / DIM
    table.requires_grad_()
    histories = torch.stack([torch.randperm(catalogue)[:WINDOW] for _ in range(windows)])
    visible = torch.full((rows,), WINDOW)
    began, before = 0.0, 0
    for step in range(3):
        if step == 1:  # the first connects the processes
            dist.barrier()
            began, before, Sent.bytes = time.perf_counter(), loopback_bytes(), 0.0
        inputs = looked_up(table, histories.reshape(-1)).view(windows, WINDOW, DIM)
        queries = inputs[:, -TARGETS:].reshape(rows, 1, DIM)
        values = (inputs.repeat_interleave(TARGETS, 0) * queries).sum(2)
        overrides = Overrides(histories.repeat_interleave(TARGETS, 0), torch.arange(rows), visible, values)
        part = Logits(queries, table, tuple(Level(k, queries[:, 0]) for k in levels), overrides)
        sharded(part, torch.randint(catalogue, (rows,)), catalogue).backward()  # type: ignore[no-untyped-call]
    dist.barrier()
    spent, on_loopback = time.perf_counter() - began, loopback_bytes() - before
    return {"wall_ms": 5e2 * spent, "sent_bytes": Sent.bytes / 2, "loopback_bytes": on_loopback / 2}


def work(asked: dict[str, Any]) -> None:
    """One process: print its result as JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with groups.joined():
        what = asked.pop("what")
        print(json.dumps({"check": check, "measure": measure}[what](**asked)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--targets", type=int, default=800)
    parser.add_argument("--json")
    given = parser.parse_args()
    if given.work is not None:
        work(given.work)
        return
    found: dict[str, Any] = {"targets": given.targets, "dim": DIM, "checked": [], "measured": []}
    for size, levels, queries in CHECKED:
        asked = {"what": "check", "levels": levels, "queries": queries}
        all_of = start(size, [__file__, "--work", json.dumps(asked)])
        worst = {key: max(each[key] for each in all_of) for key in all_of[0]}
        found["checked"].append({"processes": size, "levels": levels, "queries": queries, "differences": worst})
        print(found["checked"][-1], flush=True)
    for catalogue, levels in MEASURED:
        asked = {"what": "measure", "catalogue": catalogue, "levels": levels, "targets": given.targets}
        each = start(2, [__file__, "--work", json.dumps(asked)])[0]
        found["measured"].append({"processes": 2, "items": catalogue, "levels": levels, **each})
        print(found["measured"][-1], flush=True)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()

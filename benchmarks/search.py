"""What a search index gains over exact search in a large catalogue, and what it finds: search alone, one thread.

    python benchmarks/search.py --table clusters --json search-clusters.json
    python benchmarks/search.py --table trained --json search-trained.json            # half an hour

`clusters` is a random table of clustered items; `trained` one that a model learns from a log of shopping over as many
items (`abaca.data.synthetic`, rule mixed): first many steps of a softmax over a sample of the items, which cost little,
then some of the full softmax, as `abaca train` does it. `distinct_best` says how many items are among anyone's ten
best: a model that answers everyone alike is no test of a search. The index is tuned to the recall on one half of the
queries and measured on the other. Exact search is the library's own; `product` is only the matrix product in it, which
no exact search avoids. Contenders run in turn, each time for other queries; CPU time is what counts.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import faiss
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from abaca.data.batches import Epochs, history_batches
from abaca.data.synthetic import synthetic_log
from abaca.histories import Windows
from abaca.nn import ops
from abaca.nn.answers import answer
from abaca.nn.build import make_model
from abaca.nn.encoders import Inputs
from abaca.nn.logits import Level, Logits, Overrides
from abaca.nn.model import Model
from abaca.nn.outputs import Encoded
from abaca.search.answer import BEST, IndexSearch
from abaca.search.measure import base_of, cpu_seconds, exact_answer, question, recall
from abaca.search.tune import tuned
from abaca.study.environment import commit, processor

RERANKED = 100
SAMPLED_RATE, FULL_RATE = 4e-3, 1e-3
"""Highest learning rates of the two parts of training."""


@dataclass(frozen=True)
class Size:
    """What is measured."""

    items: int = 1_000_000
    dim: int = 64
    queries: int = 2_048
    repetitions: int = 40
    sampled_steps: int = 8_000
    sampled_items: int = 8_192
    full_steps: int = 60
    batch_targets: int = 400
    users: int = 100_000
    length: int = 20


def clustered(size: Size) -> Logits:
    """Items around a hundredth as many centres; queries around centres too."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    centres = normal(size.items // 100, size.dim)
    table = centres[torch.randint(len(centres), (size.items,), generator=generator)] + 0.5 * normal(
        size.items, size.dim
    )
    queries = centres[torch.randint(len(centres), (size.queries,), generator=generator)]
    queries = (queries + 0.5 * normal(size.queries, size.dim)) * size.dim**-0.5
    owner = torch.arange(size.queries)
    none = Overrides(owner[:, None][:, :0], owner, owner, queries[:, :0])
    return Logits(queries[:, None], table * size.dim**-0.25, (Level(RERANKED, queries),), none)


def learned(size: Size, model_of: tuple[str, str], weights: Path | None, records: list[dict[str, float]]) -> Logits:
    """Queries of a model after histories of a synthetic log that it was trained on for so many steps."""
    log = synthetic_log("mixed", size.users, size.items, size.length, seed=0)
    items = log["item"].to_numpy().astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(log["user"].to_numpy()))]).astype(np.int64)
    torch.manual_seed(0)
    model = make_model(*model_of, size.items, dim=size.dim)
    if weights is not None and weights.exists():
        model.load_state_dict(load_file(weights))
    else:
        train(model, Epochs(items, offsets[:-1], offsets[1:], 25, 25, size.batch_targets, 0), size, records)
        if weights is not None:
            save_file(model.state_dict(), weights)
    model.eval()
    last = [items[offsets[u] : offsets[u + 1]].astype(np.int64) for u in range(size.users - size.queries, size.users)]
    (batch,) = history_batches(last, 50, size.queries)
    with torch.no_grad():
        scores = model.scores(torch.from_numpy(batch[1]), torch.from_numpy(batch[2]))
    assert isinstance(scores, Logits)
    return scores.take(torch.randperm(scores.rows, generator=torch.Generator().manual_seed(0)))


def train(model: Model, epochs: Epochs, size: Size, records: list[dict[str, float]]) -> None:
    """Adam, the learning rate falling to 0, over a sample of the items in each step, then over all of them."""
    batches = (batch for epoch in itertools.count() for batch in epochs.batches(epoch))
    table = model.table
    rest = [weight for weight in model.parameters() if weight is not table]
    generator = torch.Generator().manual_seed(0)
    model.train()
    for steps, rate, rows in (
        (size.sampled_steps, SAMPLED_RATE, torch.optim.SparseAdam([table])),
        (size.full_steps, FULL_RATE, torch.optim.Adam([table])),
    ):
        adam, began = torch.optim.Adam(rest), time.process_time()
        for step in range(steps):
            for group in adam.param_groups + rows.param_groups:
                group["lr"] = rate * (1 - step / steps)
            items, positions, targets = (torch.from_numpy(array) for array in next(batches))
            adam.zero_grad()
            rows.zero_grad()
            wanted = int((targets >= 0).sum())
            if isinstance(rows, torch.optim.SparseAdam):
                loss = sampled_loss(model, items, positions, targets, size.sampled_items, generator) / wanted
            else:
                loss = model.loss(items, positions, targets) / wanted
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            rows.step()
            if step % 100 == 0 or step == steps - 1:
                spent = time.process_time() - began
                records.append({"step": step, "steps": steps, "targets": wanted, "loss": loss.item(), "cpu_s": spent})
                print(f"step {step} of {steps}: loss {loss.item():.4f}, {spent:.0f} CPU s", file=sys.stderr, flush=True)


def sampled_loss(
    model: Model, items: Tensor, positions: Tensor, targets: Tensor, others: int, generator: torch.Generator
) -> Tensor:
    """The model's loss as if there were only the batch's items and some random others; leaves a sparse gradient."""
    table = model.table
    known = torch.cat([items.flatten(), targets.flatten(), torch.randint(len(table), (others,), generator=generator)])
    chosen = known[known >= 0].unique()
    rows = table.detach()[chosen].requires_grad_()

    def pass_on(gradient: Tensor) -> None:
        table.grad = torch.sparse_coo_tensor(chosen[None], gradient, table.shape, check_invariants=False)

    rows.register_hook(pass_on)

    def among(ids: Tensor) -> Tensor:
        return torch.where(ids >= 0, torch.searchsorted(chosen, ids), ids)

    items, targets = among(items), among(targets)
    embedded = rows[items.clamp_min(0)]
    windows = Windows(items, positions)
    encoded = Encoded(model.encoder(Inputs(windows, embedded, rows)), embedded, windows, rows)
    return model.output.loss(encoded, encoded.rows(targets))


def timed(search: IndexSearch, logits: Logits, rows: int, repetitions: int) -> dict[str, Any]:
    """CPU milliseconds a query of the product, of exact search and of the index, in turn, for varied queries."""
    base, count = base_of(logits), search.fetched(logits, BEST)
    times: dict[str, list[float]] = {"product": [], "exact": [], "index": []}
    for repetition in range(repetitions + 1):
        part = base.take((torch.arange(rows) + repetition * rows) % logits.rows)
        queries = part.queries[:, 0]
        work = {
            "product": lambda: queries @ part.table.T,  # noqa: B023
            "exact": lambda: answer(part, question(part, count)),  # noqa: B023
            "index": lambda: search.index.find(queries.numpy(), count),  # noqa: B023
        }
        for name in times:
            milliseconds = 1000 * cpu_seconds(work[name]) / rows
            if repetition:  # the first warms up
                times[name].append(milliseconds)
    medians = {name: statistics.median(spent) for name, spent in times.items()}
    gains = {f"gain_over_{name}": medians[name] / medians["index"] for name in ("product", "exact")}
    return {"rows": rows, "fetched": count, "median_cpu_ms": medians, **gains, "cpu_ms": times}


def run(
    size: Size, table: str, model_of: tuple[str, str], kind: str, wanted: float, weights: Path | None
) -> dict[str, Any]:
    records: list[dict[str, float]] = []
    logits = clustered(size) if table == "clusters" else learned(size, model_of, weights, records)
    tuning, checking = (logits.take(torch.arange(start, logits.rows, 2)) for start in (0, 1))
    rows = logits.table.detach().numpy()
    began, tries = time.process_time(), []
    index = tuned(rows, kind, [exact_answer(tuning)], wanted, tries.append)
    making = time.process_time() - began
    search = IndexSearch(index, logits.table)
    exact = exact_answer(checking)
    found = recall(search, [exact])
    return {
        "size": asdict(size), "table": table, "model": model_of if table == "trained" else f"softmax+R:{RERANKED}",
        "distinct_best": len(exact.base.unique()),
        "kind": kind, "wanted": wanted, "effort": index.effort, "cells": getattr(index.native, "nlist", None),
        "tries": tries, "making_cpu_seconds": making,
        "recall@10": found.base, "answers_recall@10": found.answers, "normaliser_error": found.normaliser,
        "single": timed(search, checking, 1, size.repetitions),
        "batches": timed(search, checking, 64, max(2, size.repetitions // 20)),
        "training": records,
        "native": ops.instructions(), "torch": torch.__version__, "faiss": faiss.__version__, "processor": processor(),
        "commit": commit(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    for key, value in asdict(Size()).items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--table", choices=["clusters", "trained"], default="clusters")
    parser.add_argument("--encoder", default="gru4rec")
    parser.add_argument("--output", default="softmax")
    parser.add_argument("--kind", choices=["ivf", "hnsw"], default="ivf")
    parser.add_argument("--recall", type=float, default=0.99)
    parser.add_argument("--weights", type=Path, help="where the trained weights are kept between runs")
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    size = Size(**{key: getattr(arguments, key) for key in asdict(Size())})
    results = run(
        size,
        arguments.table,
        (arguments.encoder, arguments.output),
        arguments.kind,
        arguments.recall,
        arguments.weights,
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps({key: value for key, value in results.items() if key not in ("training", "tries")}, indent=1))


if __name__ == "__main__":
    main()

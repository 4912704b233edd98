"""What a search index gains over exact search in a large catalogue, and what it finds: search alone, one thread.

    python benchmarks/search.py --table clusters --json search-clusters.json
    python benchmarks/search.py --table trained --json search-trained.json            # most of an hour

`clusters` is a random table of clustered items; `trained` one that a model learns with the full softmax from a log of
shopping over as many items (`abaca.data.synthetic`, rule mixed). GRU4Rec with plain softmax learns tastes soonest:
other models still answer everyone alike after as many steps, which is no test of a search. `distinct_best` says how
many items are among anyone's ten best. The index is tuned to the recall on one half of the queries and measured on
the other. Exact search is the library's own; `product` is only the matrix product in it, which no exact search
avoids. Contenders run in turn, each time for other queries; CPU time is what counts.
"""

import argparse
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
from abaca.nn import native
from abaca.nn.logits import Level, Logits, Overrides, answer
from abaca.nn.model import Model, make_model
from abaca.search.answer import IndexSearch
from abaca.search.measure import BEST, base_of, cpu_seconds, exact_answer, question, recall
from abaca.search.tune import tuned
from abaca.study.environment import commit, processor

RERANKED = 100
RATE, WARMUP = 1e-2, 20
"""Of training: the highest learning rate, and the steps until it is reached."""


@dataclass(frozen=True)
class Size:
    """What is measured."""

    items: int = 1_000_000
    dim: int = 64
    queries: int = 768
    repetitions: int = 40
    steps: int = 800
    batch_targets: int = 100
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
        train(model, Epochs(items, offsets[:-1], offsets[1:], 25, 25, size.batch_targets, 0), size.steps, records)
        if weights is not None:
            save_file(model.state_dict(), weights)
    model.eval()
    last = [items[offsets[u] : offsets[u + 1]].astype(np.int64) for u in range(size.users - size.queries, size.users)]
    (batch,) = history_batches(last, 50, size.queries)
    with torch.no_grad():
        scores = model.scores(torch.from_numpy(batch[1]), torch.from_numpy(batch[2]))
    assert isinstance(scores, Logits)
    return scores.take(torch.randperm(scores.rows, generator=torch.Generator().manual_seed(0)))


def train(model: Model, epochs: Epochs, steps: int, records: list[dict[str, float]]) -> None:
    """Adam on the full softmax, the learning rate rising, then falling to 0."""
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    for step, batch in zip(range(steps), epochs.batches(0), strict=False):
        for group in adam.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARMUP) * (1 - step / steps)
        targets = int((batch.targets >= 0).sum())
        loss = model.loss(*(torch.from_numpy(array) for array in batch)) / targets
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        records.append({"step": step, "targets": targets, "loss": loss.item()})
        print(f"step {step}: loss {loss.item():.4f}", file=sys.stderr, flush=True)


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
        "native": native.mode(), "torch": torch.__version__, "faiss": faiss.__version__, "processor": processor(),
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

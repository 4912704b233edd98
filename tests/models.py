"""Model directories without training: random weights, far from uniform. What a ranker is asked can be recorded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from abaca.data.catalogue import Catalogue
from abaca.data.prepare import PrepareOptions
from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.evidence import Evidence, Weights
from abaca.evidence.habits import EDGES, KINDS, Clock
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories
from abaca.nn.answers import Answer, Question
from abaca.nn.build import make_model
from abaca.recommender import Recommender
from abaca.training.checkpoint import Saved, save_model
from abaca.training.trainer import TrainingOptions

WINDOW = 8


def untrained(
    folder: Path,
    output: str = "softmax+CPR:4",
    ids: list[str] | list[int] | None = None,
    encoder: str = "gru4rec",
    dim: int = 8,
    time_unit: str | None = "seconds",
    columns: dict[str, list[Any]] | None = None,
    events: list[str] | None = None,
) -> Recommender:
    """A model in a folder, for 30 items `i0` … `i29` unless ids are given; evidence has random numbers."""
    ids = [f"i{i}" for i in range(30)] if ids is None else ids
    options = {"dim": dim, "window": WINDOW} if encoder == "sasrec" else {"dim": dim, "hidden": 8}
    torch.manual_seed(3)
    model = make_model(encoder, output, len(ids), **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    table = {"title": [f"Item {id}" for id in ids], **(columns or {})}
    training = {
        "options": asdict(TrainingOptions(window=WINDOW)),
        "prepared": asdict(PrepareOptions(events=None if events is None else tuple(events))),
        "fingerprint": "none",
        "everything": False,
        "time_unit": time_unit,
        "split": {},
        "records": [],
        "best": None,
        "encoder_options": options,
    }
    catalogue, found = Catalogue(ids, columns=table), random_evidence(model.output.evidence, len(ids))
    save_model(folder, Saved(model, encoder, output, options, catalogue, training, evidence=found))
    return Recommender.load(folder)


def random_evidence(parts: tuple[str, ...], items: int) -> Evidence | None:
    """Evidence with random numbers, counted in random rows; times are in hours."""
    if not parts:
        return None
    rng = np.random.default_rng(5)
    sizes = {kind: sum(len(EDGES[name]) + 1 for name in names) for kind, names in KINDS.items()}
    weights = {
        kind: Weights(0.6, 0.5, 0.3, tuple(rng.normal(size=size).tolist()), 0.8, 0.3, 5.0)
        for kind, size in sizes.items()
    }
    rows = Histories.of([rng.integers(0, items, 12) for _ in range(40)])
    return Evidence(parts, WINDOW, Clock(3600.0, True), Transitions.count(rows, items), weights)


class Asked(NamedTuple):
    """One history as a ranker was asked about it."""

    items: list[int]
    times: list[float] | None
    now: float | None


@contextmanager
def asked_of_rankers() -> Iterator[list[Asked]]:
    """What models are asked to rank meanwhile, a history after the other."""
    asked: list[Asked] = []
    ask = ModelRanker.ask

    def record(self: ModelRanker, histories: Histories, question: Question) -> Answer:
        for row, (begin, end) in enumerate(zip(histories.offsets[:-1], histories.offsets[1:], strict=True)):
            times = None if histories.times is None else histories.times[begin:end].tolist()
            now = None if histories.now is None else float(histories.now[row])
            asked.append(Asked(histories.items[begin:end].tolist(), times, now))
        return ask(self, histories, question)

    with patch.object(ModelRanker, "ask", record):
        yield asked

"""Small evidence with random numbers, rankers that have it, and their final logits by the formula."""

import numpy as np
import torch

from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.evidence import Evidence, Weights
from abaca.evidence.habits import EDGES, KINDS, Clock
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.nn.build import make_model
from abaca.nn.outputs.spec import EVIDENCE

from . import formula

V, WINDOW, FADE = 60, 6, 0.5
SIZES = [len(EDGES[name]) + 1 for name in KINDS["order"]]


def drawn(seed: int, count: int, longest: int = 14, items: int = V) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, items, length).tolist() for length in rng.integers(1, longest, count)]


ROWS, ASKED = drawn(0, 40), drawn(1, 25, items=20)


def weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    return Weights(0.7, 0.4, 1.5, tuple(rng.normal(size=sum(SIZES)).tolist()), 0.8, 0.3, 5.0)


def evidence(parts: tuple[str, ...] = EVIDENCE) -> Evidence:
    counts = Transitions.count(Histories.of(ROWS), V)
    return Evidence(parts, WINDOW, Clock(0.0, False), counts, {"order": weights()}, fade=FADE)


def ranker(spec: str, given: Evidence | None) -> ModelRanker:
    torch.manual_seed(3)
    return ModelRanker(make_model("gru4rec", spec, V, dim=8, hidden=8).eval(), WINDOW, evidence=given)


def every_logit(of: ModelRanker) -> torch.Tensor:
    """All final logits (B, V) of the histories that are asked for."""
    count = len(ASKED)
    question = Question(torch.full((count,), -1), V, torch.empty(count, 0).long(), torch.empty(count, 0).long())
    found = of.ask(Histories.of(ASKED), question)
    return torch.empty(count, V).scatter(1, found.items, found.logits)


def expected_logits(network: torch.Tensor, given: Weights) -> np.ndarray:
    """The formula, item by item."""
    final = np.empty(network.shape)
    table = given.by_habit(KINDS["order"])
    for row, history in enumerate(ASKED):
        strength = formula.followers(ROWS, history, V, FADE)
        for item in range(V):
            gain = np.log1p(given.sharpness * strength[item])
            z = float(network[row, item])
            if item not in history:
                final[row, item] = given.scale * z + given.followers * gain
                continue
            values = formula.habits(history, item, WINDOW)
            bonus = sum(table[name][np.searchsorted(EDGES[name], value, "right")] for name, value in values.items())
            final[row, item] = given.own_scale * z + given.own + bonus + given.own_followers * gain
    return final

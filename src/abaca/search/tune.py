"""Making an index: its kind chosen, and its effort the least that finds enough on the model's own queries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abaca.errors import SpecError
from abaca.evaluation.ranker import ModelRanker
from abaca.search.answer import IndexSearch
from abaca.search.index import KINDS, Index, build
from abaca.search.measure import Exact, exact_answers, own_histories, recall, speed
from abaca.training.checkpoint import Saved, set_index

QUERIES = 1024
"""Histories that an index is tuned on."""

MARGIN = 2
"""Standard errors by which the recall must be exceeded, so that it is reached on other queries too."""

WORTHWHILE = 2.0
"""An index that gains less than this factor is not worth its estimates; `ivf` that gains less than `PLENTY` is compared
with `hnsw`, which takes far longer to make."""

PLENTY = 10.0

Tell = Callable[[str], None]


def check_output(saved: Saved) -> None:
    """Refuse what an index cannot serve."""
    if not saved.model.output.searchable:
        raise SpecError(
            f"{saved.output} is served by exact search only: its scores are not the best of a product with the item "
            "table; an index serves softmax and mos:K with any of their partitions"
        )


def make_index(
    saved: Saved, ranker: ModelRanker, kind: str, wanted: float, histories: list[np.ndarray], tell: Tell
) -> Index | None:
    """The index of a model, tuned; None where `auto` finds none that is worthwhile."""
    check_output(saved)
    if kind != "auto" and kind not in KINDS:
        raise SpecError(f"kind '{kind}' is not one of auto, {', '.join(KINDS)}")
    if not 0 < wanted <= 1:
        raise SpecError(f"the recall must be above 0 and at most 1, got {wanted}")
    tell("exact answers to tune against")
    exact = exact_answers(ranker, histories)
    table = saved.model.table.detach().numpy()
    if kind != "auto":
        return tuned(table, kind, exact, wanted, tell)
    best: tuple[float, Index] | None = None
    for candidate in ("ivf", "hnsw"):
        index = tuned(table, candidate, exact, wanted, tell)
        gain = speed(_search(index, table), exact[-1].logits, 1, 20).gain
        tell(f"{candidate}: {gain:.1f} times as fast as exact search")
        if best is None or gain > best[0]:
            best = gain, index
        if best[0] >= PLENTY:
            break
    return best[1] if best is not None and best[0] >= WORTHWHILE else None


def _search(index: Index, table: Any) -> IndexSearch:
    return IndexSearch(index, torch.from_numpy(table))


def tuned(table: Any, kind: str, exact: list[Exact], wanted: float, tell: Tell) -> Index:
    """An index of one kind with the least effort that finds enough."""
    tell(f"{kind}: making the index of {len(table):,} items")
    index = build(table, kind)
    search = _search(index, table)

    def enough(effort: int) -> bool:
        index.effort = effort
        found = recall(search, exact)
        tell(f"{kind}: recall {found.lower:.4f} at effort {effort}")
        return found.lower - MARGIN * found.error >= wanted or effort >= index.most

    index.effort = least(enough, index.most)
    return index


def least(enough: Callable[[int], bool], most: int) -> int:
    """The least effort that is enough, within a tenth: doubled until it is, then halved in between."""
    high = 1
    while high < most and not enough(high):
        high = min(2 * high, most)
    low = high // 2
    while high - low > max(1, high // 10):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def write_index(folder: Path, weights: str, index: Index, facts: dict[str, Any]) -> None:
    """Make an index of these weights part of the model directory, in place of an older one."""
    draft = folder / "index.new.faiss"
    index.write(draft)
    try:
        set_index(folder, weights, draft, index.kind, index.effort, facts)
    finally:
        draft.unlink(missing_ok=True)


def tuning_histories(ranker: ModelRanker, seed: int = 0) -> list[np.ndarray]:
    """What an index is tuned on where no histories are given."""
    return own_histories(ranker, QUERIES, seed)

"""`MODEL/card.md` with figures: the model evaluated on its test targets, beside the baselines."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from abaca.display import plain
from abaca.durable import write_text
from abaca.errors import ModelError
from abaca.evaluation.against import evaluate_baselines, popularity_bias
from abaca.evaluation.evaluate import compare
from abaca.recommender import Recommender, load
from abaca.training.card import EVALUATION, weights_name, write_card
from abaca.training.checkpoint import read_document

CUTOFF = 10


def make_card(folder: str | Path, data: Any = None) -> str:
    """Write the card of a model directory and return its text, as Markdown.

    With `data`, the log or prepared folder that it was trained on, the model and the baselines are ranked on the test
    targets first. The figures are kept beside the model, so that later cards have them too.
    """
    folder = Path(folder)
    document = read_document(folder)
    if data is not None:
        figures = {"weights": weights_name(document), **measured(load(folder, exact=True), data)}
        write_text(folder / EVALUATION, json.dumps(figures, indent=1, ensure_ascii=False) + "\n", ModelError)
    return write_card(folder, document)


def measured(recommender: Recommender, data: Any) -> dict[str, Any]:
    """The figures of a card as plain data."""
    sequences = recommender.open(data, options=recommender.learned)
    result = recommender.evaluate(sequences, cutoffs=(CUTOFF,))
    rules = evaluate_baselines(sequences, "test", (CUTOFF,))
    metric = f"ndcg@{CUTOFF}"
    best = max(rules, key=lambda rule: rule.mean(metric))
    return {
        "cutoff": CUTOFF,
        "model": result.to_json(),
        "baselines": [rule.to_json() for rule in rules],
        "against": compare(result, best, metric).to_json(),
        "popularity": plain(asdict(popularity_bias(result, sequences, CUTOFF))),
    }

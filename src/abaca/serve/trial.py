"""The trial of a model before it serves: every kind of history and every rule, down to the JSON of the answer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from abaca.data.catalogue import Catalogue
from abaca.errors import ModelError
from abaca.evaluation.baselines import Baseline
from abaca.nn.model import Model
from abaca.policy import Policy
from abaca.policy.columns import Columns
from abaca.recommendation import Recommendations
from abaca.recommender import Recommender
from abaca.serve import schemas
from abaca.serve.rules import MOST_IDS
from abaca.types import Id

N = 10
"""Items of each answer."""


def try_out(folder: Path, recommender: Recommender, facts: dict[str, Any]) -> None:
    """Refuse a model that cannot answer an empty, a short or a full history under every rule, or not in JSON."""
    saved = recommender.saved
    assert saved is not None
    ids = saved.catalogue.ids
    full = [ids[place % len(ids)] for place in range(min(recommender.training.window, MOST_IDS) + 1)]
    rule = isinstance(saved.ranks, Baseline)
    try:
        json.dumps(facts, allow_nan=False)
        policies = _policies(saved.catalogue, saved.ranks)
        for history in ([], [ids[0]], full):
            for times in (None, list(range(len(history)))):
                _answers(recommender, history, times, policies, predicts=not rule)
    except ModelError:
        raise
    except Exception as error:
        why = str(error) or type(error).__name__
        raise ModelError(f"{folder} cannot answer ({why}); train it again, or go back to an earlier one") from error


def _answers(
    recommender: Recommender, history: Sequence[Id], times: Any, policies: list[Policy], *, predicts: bool
) -> None:
    """Answer one history under each policy."""
    now = None if times is None else len(history)
    many = len(policies)
    found = recommender.recommend_many([history] * many, policy=policies, times=[times] * many, now=[now] * many)
    for answer in found:
        json.dumps(schemas.answer(answer), allow_nan=False)
    if history and predicts and not all(map(_is_predicted, found)):
        raise ValueError("probabilities are no numbers")


def _is_predicted(answer: Recommendations) -> bool:
    """Whether an answer has probabilities; one that is not finite is None in JSON."""
    known = schemas.answer(answer)
    values = [known["repeat_probability"], *(item["probability"] for item in known["items"])]
    return all(value is not None and 0 <= value <= 1.001 for value in values)


def _policies(catalogue: Catalogue, ranks: Model | Baseline) -> list[Policy]:
    """One policy for each rule that a model can answer."""
    first, last = catalogue.ids[0], catalogue.ids[catalogue.size - 1]
    rules: list[dict[str, Any]] = [
        {},
        {"repeats": "exclude"},
        {"repeats": "only"},
        {"max_repeat_share": 0.5},
        {"max_repeats": 1},
        {"min_new": 1},
        {"exclude": (first,)},
        {"candidates": (first, last)},
        {"cooldown": "1 items"},
        {"boost": {last: 1.0}},
        {"exclude": (first,), "explain_rules": True},
    ]
    if isinstance(ranks, Model):
        rules.append({"diversity": 0.5})
        rules += [{"min_cold": 1}] if ranks.features is not None else []
    for name, column in ((name, Columns(catalogue)[name]) for name in list(catalogue.columns)[:1]):
        rules.append({"at_most": {name: 1}})
        for value in column.names[:1]:
            rules += [{"at_least": {name: {value: 1}}}, {"boost_category": {name: {value: 1.0}}}]
    return [Policy(n=N, **rule) for rule in rules]

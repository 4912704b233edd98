"""Abaca: next-item recommendation that learns when to repeat and when to explore.

log = abaca.read_log("purchases.parquet", user="customer", item="sku", time="ts")
rec = abaca.Recommender().fit(log)
rec.recommend(["milk", "bread", "milk"], n=10)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from abaca.data.log import Log, read_log
    from abaca.data.prepare import PrepareOptions, prepare
    from abaca.data.sequences import Sequences
    from abaca.display import RecommendationBatch
    from abaca.errors import AbacaError, UserError
    from abaca.evaluation.evaluate import Evaluation, compare, evaluate
    from abaca.options import TrainingOptions
    from abaca.plugins import register
    from abaca.policy import Policy
    from abaca.recommendation import Recommendation, Recommendations
    from abaca.recommender import Recommender, load
    from abaca.training.callbacks import Callback

__version__ = "0.2.0"

# Loaded at first use: reading a log should not wait for torch.
_HOMES = {
    "AbacaError": "abaca.errors",
    "Callback": "abaca.training.callbacks",
    "Evaluation": "abaca.evaluation.evaluate",
    "Log": "abaca.data.log",
    "Policy": "abaca.policy",
    "PrepareOptions": "abaca.data.prepare",
    "Recommendation": "abaca.recommendation",
    "RecommendationBatch": "abaca.display",
    "Recommendations": "abaca.recommendation",
    "Recommender": "abaca.recommender",
    "Sequences": "abaca.data.sequences",
    "TrainingOptions": "abaca.options",
    "UserError": "abaca.errors",
    "compare": "abaca.evaluation.evaluate",
    "evaluate": "abaca.evaluation.evaluate",
    "load": "abaca.recommender",
    "prepare": "abaca.data.prepare",
    "read_log": "abaca.data.log",
    "register": "abaca.plugins",
}

__all__ = [
    "AbacaError",
    "Callback",
    "Evaluation",
    "Log",
    "Policy",
    "PrepareOptions",
    "Recommendation",
    "RecommendationBatch",
    "Recommendations",
    "Recommender",
    "Sequences",
    "TrainingOptions",
    "UserError",
    "__version__",
    "compare",
    "evaluate",
    "load",
    "prepare",
    "read_log",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'abaca' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

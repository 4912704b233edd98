"""Simple rankers that a model has to beat; they count, and learn from the training rows alone."""

from collections.abc import Callable

from abaca.evaluation.baselines.baseline import Baseline, Popularity
from abaca.evaluation.baselines.blend import Blend
from abaca.evaluation.baselines.counts import CountsAlone
from abaca.evaluation.baselines.personal import MostRecent, PersonalFollow, PersonalFrequency
from abaca.evaluation.baselines.rules import RulesWithoutHistory, SequentialRules

__all__ = [
    "BASELINES",
    "Baseline",
    "Blend",
    "CountsAlone",
    "MostRecent",
    "PersonalFollow",
    "PersonalFrequency",
    "Popularity",
    "RulesWithoutHistory",
    "SequentialRules",
]

BASELINES: dict[str, Callable[[], Baseline]] = {
    "popularity": Popularity,
    "most recent": MostRecent,
    "personal frequency": PersonalFrequency,
    "personal follow": PersonalFollow,
    "sequential rules": SequentialRules,
    "decayed sequential rules": lambda: SequentialRules(decay="quotient"),
    "rules without history": RulesWithoutHistory,
    "blend": Blend,
    "counts alone": CountsAlone,
}

"""Example users: their history, each ranker's recommendations, and the true next item."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abaca.data.sequences import Sequences
from abaca.evaluation.evaluate import Evaluation
from abaca.study.statistics import Chosen, Kind

MEANING: dict[Kind, str] = {
    "copy": "repeats more than most, and did so again",
    "explore": "repeats less than most, and took something new",
}


@dataclass(frozen=True)
class Pick:
    """An item by name; whether it is in the history, is the true next item, or came after that."""

    name: str
    repeat: bool
    true: bool = False
    later: bool = False


@dataclass(frozen=True)
class Case:
    """One history and the recommendations of several rankers."""

    kind: Kind
    user: str
    length: int  # items in the whole history
    share: float  # of repeats in it
    latest: tuple[Pick, ...]  # the last items, oldest first; repeat: there before
    target: Pick
    lists: dict[str, tuple[Pick, ...]]  # by ranker, best first
    ranks: dict[str, int]  # the target's, by ranker

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Case":
        """The inverse of `dataclasses.asdict`."""
        lists = {name: tuple(Pick(**pick) for pick in picks) for name, picks in values["lists"].items()}
        latest = tuple(Pick(**pick) for pick in values["latest"])
        return cls(**{**values, "latest": latest, "target": Pick(**values["target"]), "lists": lists})


def make_cases(
    sequences: Sequences, chosen: Sequence[Chosen], results: Sequence[Evaluation], shown: int = 5, latest: int = 8
) -> list[Case]:
    """The cases of the chosen targets, from the evaluations."""
    return [_case(sequences, one, results, shown, latest) for one in chosen]


def _case(sequences: Sequences, one: Chosen, results: Sequence[Evaluation], shown: int, latest: int) -> Case:
    history = sequences.history(one.user, one.position)
    row = int(np.flatnonzero((results[0].users == one.user) & (results[0].positions == one.position))[0])
    target = int(results[0].items[row])
    name = sequences.catalogue.name
    later = set(sequences.items[one.position + 1 : sequences.offsets[one.user + 1]].tolist())
    first = max(0, len(history) - latest)
    before = (Pick(name(int(history[i])), bool((history[:i] == history[i]).any())) for i in range(first, len(history)))
    lists = {
        result.name: tuple(
            Pick(name(int(item)), bool(repeat), int(item) == target, int(item) in later)
            for item, repeat in zip(result.top[row, :shown], result.top_repeat[row, :shown], strict=True)
            if item >= 0
        )
        for result in results
    }
    return Case(
        kind=one.kind,
        user=str(sequences.user_ids[one.user]),
        length=len(history),
        share=one.share,
        latest=tuple(before),
        target=Pick(name(target), bool(results[0].repeat[row]), True),
        lists=lists,
        ranks={result.name: int(result.rank[row]) for result in results},
    )

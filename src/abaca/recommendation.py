"""From raw histories to recommendations, with a reason for each item."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from abaca.data.catalogue import Catalogue, check_id
from abaca.data.moments import Now, Times, now_of, times_of
from abaca.display import AnswerTable, plain
from abaca.errors import QueryError
from abaca.evaluation.ranker import BATCH, Ranker
from abaca.histories import Floats, Histories, Ints
from abaca.nn.answers import COPY, RULE, Answer
from abaca.policy import Chosen, Lists, Policy, Rules, listed
from abaca.types import PAD, Id

LIST_UNKNOWN = 20
"""Unknown ids of the exclude and the candidate list that each answer names at most."""


@dataclass(frozen=True)
class Recommendation:
    """One item, its probability, and its reason."""

    id: Id
    name: str
    """Its title where the item table has one, else its id."""
    probability: float | None
    """Of being the next item, over the whole catalogue; None for a popular item without a known history."""
    repeat: bool
    """Whether it is in the history."""
    partition: str
    """The part that scored it: copy, rerank, explore; or popular where no item of the history is known."""
    times: int = 0
    """How often it is in the history."""
    ago: int | None = None
    """How many items ago it was last there: 1 for the latest."""

    @property
    def reason(self) -> str:
        """The reason in words."""
        if self.partition == "popular":
            return "new · popular: no item of the history is known"
        if not self.repeat:
            return f"new · {self.partition}"
        scored_by = "" if self.partition == "explore" else f" · {self.partition}"
        seen, last = ("once", "") if self.times == 1 else (f"{self.times} times", "last seen ")
        when = "the latest item" if self.ago == 1 else f"{last}{self.ago} items ago"
        return f"repeat{scored_by}: seen {seen}, {when}"


@dataclass(frozen=True, repr=False)
class Recommendations(AnswerTable):
    """The answer to one history."""

    items: tuple[Recommendation, ...]
    unknown: tuple[Id, ...]
    """Ids that the model does not know, each once: of the history, and the first few of the query's lists."""
    repeat_probability: float | None
    """Predicted probability that the next item is one of the history; None where nothing can be predicted."""
    estimated: bool = False
    """Whether probabilities are estimates, since a search index does not score every item."""

    def __iter__(self) -> Any:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def ids(self) -> list[Id]:
        """The recommended ids, best first."""
        return [item.id for item in self.items]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a program."""
        items = [{**vars(item), "reason": item.reason} for item in self.items]
        document: dict[str, Any] = plain({**vars(self), "items": items})
        return document


class Advisor:
    """Answers raw histories with a ranker and its catalogue."""

    def __init__(self, ranker: Ranker, catalogue: Catalogue, time_unit: str | None = None) -> None:
        self.ranker = ranker
        self.catalogue = catalogue
        self.time_unit = time_unit
        """The unit of the log's times, where they count from 1970."""

    def recommend(
        self, histories: Sequence[Sequence[Id]], policy: Policy | Sequence[Policy], times: Times = None, now: Now = None
    ) -> list[Recommendations]:
        """One answer per history, under one policy or one each."""
        histories = listed(histories, "histories")
        policies = [policy] * len(histories) if isinstance(policy, Policy) else listed(policy, "policies")
        if not all(isinstance(each, Policy) for each in policies):
            raise QueryError("`policy` is a Policy or a list of them, one for each history; a mapping is not taken")
        if len(policies) != len(histories):
            raise QueryError(f"there are {len(policies)} policies for {len(histories)} histories; give one each")
        unknown: list[dict[Id, None]] = [{} for _ in histories]
        items = [self._items(history, unknown[i]) for i, history in enumerate(histories)]
        moments = times_of(times, [len(history) for history in items], self.time_unit)
        queried = now_of(now, len(items), self.time_unit)
        lists = self._lists(policies, unknown)
        alike: dict[Any, list[int]] = {}
        for place, given in enumerate(policies):
            alike.setdefault((given.shape, moments[place] is None, queried[place] is None), []).append(place)
        answers: dict[int, Recommendations] = {}
        for places in alike.values():
            for start in range(0, len(places), BATCH):
                part = places[start : start + BATCH]
                rules = Rules.of(policies[part[0]], [lists[place] for place in part])
                asked = _histories([(items[place], moments[place], queried[place]) for place in part])
                for place, (chosen, repeat) in zip(part, self._choose(asked, rules), strict=True):
                    named = tuple(self._recommendation(item, items[place]) for item in chosen)
                    estimated = repeat is not None and self.ranker.estimated
                    answers[place] = Recommendations(named, tuple(unknown[place]), repeat, estimated)
        return [answers[place] for place in range(len(histories))]

    def _items(self, ids: Sequence[Id], unknown: dict[Id, None]) -> np.ndarray:
        """Items of raw ids in their order; ids that the model does not know are PAD, and put into `unknown`."""
        items = []
        for raw in listed(ids, "ids"):
            id = check_id(raw)
            item = self.catalogue.index(id)
            if item is None or item >= self.catalogue.size:
                unknown[id] = None
                item = PAD
            items.append(item)
        return np.array(items, dtype=np.int64)

    def _lists(self, policies: list[Policy], unknown: list[dict[Id, None]]) -> list[Lists]:
        """Each policy's lists as items; the first of their unknown ids are named in the answer."""
        found: dict[int, tuple[Lists, dict[Id, None]]] = {}
        for policy, names in zip(policies, unknown, strict=True):
            if id(policy) not in found:
                missing: dict[Id, None] = {}
                excluded = np.setdiff1d(self._items(policy.exclude, missing), PAD)
                only = policy.candidates
                candidates = None if only is None else np.setdiff1d(self._items(only, missing), PAD)
                found[id(policy)] = (excluded, candidates), dict.fromkeys(islice(missing, LIST_UNKNOWN))
            names.update(found[id(policy)][1])
        return [found[id(policy)][0] for policy in policies]

    def _choose(self, histories: Histories, rules: Rules) -> list[tuple[list[Chosen], float | None]]:
        """The chosen items of each history and its probability of a repeat; popular items where none is known."""
        known = histories.known(self.catalogue.size)
        asked = np.flatnonzero(known.lengths)
        found: dict[int, tuple[list[Chosen], float | None]] = {}
        if len(asked):
            owned = [np.unique(known[i]) for i in asked.tolist()]
            questions = rules.take(asked).questions(owned, self.catalogue.size)
            answers = [self.ranker.ask(known.take(asked), question) for question in questions]
            mass = answers[0].mass.clamp(0, 1).tolist()
            for row, i in enumerate(asked.tolist()):
                found[i] = rules.merge([_best(answer, row) for answer in answers]), _number(mass[row])
        popular = self.catalogue.size
        return [found[i] if i in found else (rules.popular(i, popular), None) for i in range(len(known))]

    def _recommendation(self, chosen: Chosen, history: np.ndarray) -> Recommendation:
        at = np.flatnonzero(history == chosen.item)
        ago = int(len(history) - at[-1]) if len(at) else None
        id, name = self.catalogue.ids[chosen.item], self.catalogue.name(chosen.item)
        return Recommendation(id, name, chosen.probability, bool(len(at)), chosen.partition, len(at), ago)


PARTITIONS = {COPY: "copy", RULE: "rule", 0: "explore"}


def _best(found: Answer, row: int) -> list[Chosen]:
    """The best items of one row that a policy left."""
    chosen = []
    normaliser = found.normaliser[row].item()
    columns = (found.items[row].tolist(), found.logits[row].tolist(), found.partitions[row].tolist())
    for item, logit, partition in zip(*columns, strict=True):
        if logit == -math.inf:
            break
        probability = None if partition == RULE else math.exp(logit - normaliser)
        chosen.append(Chosen(item, probability, PARTITIONS.get(partition, "rerank"), logit))
    return chosen


def _number(value: float) -> float | None:
    """None for NaN, the value of a ranker without probabilities."""
    return None if math.isnan(value) else value


def _histories(asked: list[tuple[Ints, Floats | None, float | None]]) -> Histories:
    """Histories of items, times and moments, which are given for all of them or for none."""
    times = [given for _, given, _ in asked if given is not None]
    now = [moment for _, _, moment in asked if moment is not None]
    return Histories.of([items for items, _, _ in asked], times or None, now or None)

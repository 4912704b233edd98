"""From raw histories to recommendations, with a reason for each item."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from abaca.data.catalogue import Catalogue, check_id
from abaca.data.moments import Now, Times, now_of, times_of
from abaca.data.reading.values import UNITS
from abaca.display import AnswerTable, plain
from abaca.errors import QueryError
from abaca.evaluation.ranker import BATCH, ExplainedRanker
from abaca.histories import Floats, Histories, Ints
from abaca.nn.answers import COPY, RULE, Answer
from abaca.policy import Chosen, Lists, Policy, Rules, listed
from abaca.reasons import Past, Reason, pasts_of, reasons
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

    logit: float | None = None
    """Its score; None for what has no probability."""
    terms: Mapping[str, float] = field(default_factory=dict, hash=False)
    """The parts of the logit, which add up to it: network and, with evidence, own, each habit, followers."""
    argued_by: str | None = None
    """What argues most for it: habits, followers or network; None for a model without evidence."""
    reason: str = ""
    """The reason in words; by default of the fields above."""

    def __post_init__(self) -> None:
        if not self.reason:
            object.__setattr__(self, "reason", self._usual_reason())

    def _usual_reason(self) -> str:
        """The reason of a model without evidence: the part that scored the item."""
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
        document: dict[str, Any] = plain({**vars(self), "items": [vars(item) for item in self.items]})
        return document


class Advisor:
    """Answers raw histories with a ranker and its catalogue."""

    def __init__(
        self,
        ranker: ExplainedRanker,
        catalogue: Catalogue,
        time_unit: str | None = None,
        popularity: Ints | None = None,
        retired: Sequence[Id] = (),
    ) -> None:
        self.ranker = ranker
        self.catalogue = catalogue
        self.time_unit = time_unit
        """The unit of the log's times, where they count from 1970."""
        counts = -np.arange(catalogue.size) if popularity is None else popularity
        self.by_popularity = np.argsort(-counts, kind="stable")
        """The items by their interactions; without counts, they are numbered so."""
        self.retired = np.setdiff1d(self._items(retired, {}), PAD)
        """Items that are never recommended."""

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
                pasts = pasts_of(asked, self._per_second)
                for place, past, found in zip(part, pasts, self._choose(asked, pasts, rules), strict=True):
                    each = zip(found.chosen, found.reasons, strict=True)
                    named = tuple(self._recommendation(item, past, why) for item, why in each)
                    estimated = found.repeat is not None and self.ranker.estimated
                    answers[place] = Recommendations(named, tuple(unknown[place]), found.repeat, estimated)
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
                excluded = np.union1d(np.setdiff1d(self._items(policy.exclude, missing), PAD), self.retired)
                only = policy.candidates
                candidates = None if only is None else np.setdiff1d(self._items(only, missing), PAD)
                found[id(policy)] = (excluded, candidates), dict.fromkeys(islice(missing, LIST_UNKNOWN))
            names.update(found[id(policy)][1])
        return [found[id(policy)][0] for policy in policies]

    @property
    def _per_second(self) -> float | None:
        """How many units of time a second has, where that is known."""
        return None if self.time_unit is None else UNITS[self.time_unit]

    def _choose(self, histories: Histories, pasts: list[Past], rules: Rules) -> list["_Found"]:
        """What each history is answered with; popular items where none of it is known."""
        known = histories.known(self.catalogue.size)
        asked = np.flatnonzero(known.lengths)
        found: dict[int, _Found] = {}
        if len(asked):
            owned = [np.unique(known[i]) for i in asked.tolist()]
            questions = rules.take(asked).questions(owned, self.catalogue.size)
            taken = known.take(asked)
            answers = [self.ranker.ask(taken, question) for question in questions]
            mass = answers[0].mass.clamp(0, 1).tolist()
            chosen = [rules.merge([_best(answer, row) for answer in answers]) for row in range(len(asked))]
            why = self._reasons(taken, [pasts[i] for i in asked], chosen)
            for row, i in enumerate(asked.tolist()):
                found[i] = _Found(chosen[row], _number(mass[row]), why[row])
        for i in np.flatnonzero(known.lengths == 0).tolist():
            popular = rules.popular(i, self.by_popularity)
            found[i] = _Found(popular, None, [NO_REASON] * len(popular))
        return [found[i] for i in range(len(known))]

    def _reasons(self, known: Histories, pasts: list[Past], chosen: list[list[Chosen]]) -> list[list[Reason]]:
        """Why each item was chosen."""
        listed = [[each.item for each in row] for row in chosen]
        shape = len(chosen), max(map(len, chosen))
        items, logits = np.full(shape, self.catalogue.size), np.zeros(shape)
        for row, each in enumerate(chosen):
            items[row, : len(each)], logits[row, : len(each)] = listed[row], [one.logit for one in each]
        why = self.ranker.explain(known, items, logits)
        if why is None:
            return [[NO_REASON] * len(row) for row in chosen]
        return reasons(why, listed, pasts, self.catalogue.name)

    def _recommendation(self, chosen: Chosen, past: Past, why: Reason) -> Recommendation:
        at = past.places.get(chosen.item, [])
        repeat = bool(at)
        return Recommendation(
            self.catalogue.ids[chosen.item],
            self.catalogue.name(chosen.item),
            chosen.probability,
            repeat,
            chosen.partition,
            len(at),
            past.length - at[-1] if repeat else None,
            chosen.logit if why.terms else None,
            why.terms,
            why.argued_by,
            f"{'repeat' if repeat else 'new'} · {why.argued_by}: {why.words}" if why.argued_by else "",
        )


class _Found(NamedTuple):
    """The answer to one history, in items."""

    chosen: list[Chosen]
    repeat: float | None
    reasons: list[Reason]


NO_REASON = Reason({}, None, "")
"""Of popular items and of baselines."""

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

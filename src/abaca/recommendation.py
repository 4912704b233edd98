"""From raw histories to recommendations, with a reason for each item."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

import numpy as np

from abaca.data.catalogue import Catalogue
from abaca.data.moments import Now, Times, now_of, times_of
from abaca.data.reading.values import UNITS
from abaca.display import AnswerTable, plain
from abaca.errors import QueryError
from abaca.evaluation.ranker import BATCH, ExplainedRanker
from abaca.histories import EventTypes, Floats, Histories, Ints, TypeNames
from abaca.policy import Policy, listed
from abaca.policy.choose import Chosen, ItemEffect, Lists, Picked, Popular, Vectors, choose
from abaca.policy.columns import Columns
from abaca.policy.ids import Ids
from abaca.policy.rules import ItemRules, cooled_items
from abaca.reasons import Past, Reason, pasts_of, reasons
from abaca.types import Id

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
    """Whether it is in the history; where only some types of events are predicted, with an event of such a type."""
    partition: str
    """The part that scored it: copy, rerank, explore; popular where no item of the history is known; rule of a saved
    baseline."""
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


@dataclass(frozen=True)
class RuleEffect:
    """What one rule of a policy did to a list."""

    rule: str
    """Its name; of a rule about a column also the column and the value, as in `at_most brand=Acme`."""
    removed: tuple[Id, ...] = ()
    """Ids that are not in the list because of it, best first; the first few."""
    moved: tuple[Id, ...] = ()
    """Ids that are in the list, or higher in it, because of it."""
    short: int = 0
    """How many items are missing of what it wants at least."""
    note: str = ""
    """What else there is to say."""

    def __str__(self) -> str:
        parts = [f"{name} {', '.join(map(str, ids))}" for name, ids in self._lists.items() if ids]
        parts += [f"{self.short} short"] * bool(self.short) + [self.note] * bool(self.note)
        return f"{self.rule}: {'; '.join(parts)}"

    @property
    def _lists(self) -> dict[str, tuple[Id, ...]]:
        return {"removed": self.removed, "moved up": self.moved}


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
    rules: tuple[RuleEffect, ...] = ()
    """What each rule removed or moved; of filters only with `explain_rules`."""

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
        lists = {"items": [vars(item) for item in self.items], "rules": [vars(rule) for rule in self.rules]}
        document: dict[str, Any] = plain({**vars(self), **lists})
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
        types: EventTypes | None = None,
    ) -> None:
        self.types = types
        """The types of events that the model tells apart."""
        self.ranker = ranker
        self.catalogue = catalogue
        self.time_unit = time_unit
        """The unit of the log's times, where they count from 1970."""
        self.columns = Columns(catalogue, ranker.cold)
        self.ids = Ids(catalogue)
        counts = -np.arange(catalogue.size) if popularity is None else popularity
        self.popular = Popular(np.argsort(-counts, kind="stable"))
        """The items by their interactions; without counts, they are numbered so."""
        self.retired = self.ids.known(tuple(retired), {})
        """Items that are never recommended."""

    def recommend(
        self,
        histories: Sequence[Sequence[Id]],
        policy: Policy | Sequence[Policy],
        times: Times = None,
        now: Now = None,
        types: TypeNames = None,
    ) -> list[Recommendations]:
        """One answer per history, under one policy or one each."""
        histories = listed(histories, "histories")
        policies = [policy] * len(histories) if isinstance(policy, Policy) else listed(policy, "policies")
        if not all(isinstance(each, Policy) for each in policies):
            raise QueryError("`policy` is a Policy or a list of them, one for each history; a mapping is not taken")
        if len(policies) != len(histories):
            raise QueryError(f"there are {len(policies)} policies for {len(histories)} histories; give one each")
        unknown: list[dict[Id, None]] = [{} for _ in histories]
        items = [self.ids.items(history, unknown[i]) for i, history in enumerate(histories)]
        moments = times_of(times, [len(history) for history in items], self.time_unit)
        queried, kinds = now_of(now, len(items), self.time_unit), self._kinds(types, items)
        rules = self._rules(policies, unknown)
        alike: dict[Any, list[int]] = {}
        for place, given in enumerate(policies):
            alike.setdefault((given.shape, moments[place] is None, queried[place] is None), []).append(place)
        answers: dict[int, Recommendations] = {}
        for places in alike.values():
            for start in range(0, len(places), BATCH):
                part = places[start : start + BATCH]
                asked = _histories([(items[place], moments[place], queried[place]) for place in part])
                if kinds is not None:
                    asked = replace(asked, types=np.concatenate([kinds[place] for place in part]))
                answered = self._answered(asked, [rules[place] for place in part])
                for place, made in zip(part, answered, strict=True):
                    answers[place] = replace(made, unknown=tuple(unknown[place]))
        return [answers[place] for place in range(len(histories))]

    def _kinds(self, given: TypeNames, histories: list[Ints]) -> list[Ints] | None:
        """The number of each event's type, where the model tells them apart."""
        each = [None] * len(histories) if given is None else listed(given, "types")
        if len(each) != len(histories):
            raise QueryError(f"`types` has {len(each)} entries for {len(histories)} histories; give one each")
        if self.types is None:
            if any(names is not None for names in each):
                raise QueryError("the model was trained without types of events; leave `types` out")
            return None
        found = []
        for names, history in zip(each, histories, strict=True):
            numbers = self.types.numbers([None] * len(history) if names is None else listed(names, "types"))
            if len(numbers) != len(history):
                raise QueryError(f"`types`: {len(numbers)} types for {len(history)} items; give one each")
            found.append(numbers)
        return found

    def _rules(self, policies: list[Policy], unknown: list[dict[Id, None]]) -> list[ItemRules]:
        """Each policy in items; the first of the unknown ids in its lists are named in the answer."""
        found: dict[int, tuple[ItemRules, dict[Id, None]]] = {}
        for policy, names in zip(policies, unknown, strict=True):
            if id(policy) not in found:
                missing: dict[Id, None] = {}
                rules = ItemRules.of(policy, self.ids, missing, self.columns)
                found[id(policy)] = rules, dict.fromkeys(islice(missing, LIST_UNKNOWN))
            names.update(found[id(policy)][1])
        return [found[id(policy)][0] for policy in policies]

    @property
    def _per_second(self) -> float | None:
        """How many units of time a second has, where that is known."""
        return None if self.time_unit is None else UNITS[self.time_unit]

    def _answered(self, histories: Histories, rules: list[ItemRules]) -> list[Recommendations]:
        """The answer to each history, without its unknown ids."""
        pasts = pasts_of(histories, self._per_second)
        known = histories.known(self.catalogue.size)
        mine = histories if self.types is None else self.types.owned(histories)  # such as what was bought
        cooled = cooled_items([each.policy for each in rules], histories, self.types, self._per_second)
        taken = mine.known(self.catalogue.size)
        owned = [np.unique(taken[row]) for row in range(len(taken))]
        lists = Lists(known, rules, cooled, owned, self.retired)
        found: dict[int, Recommendations] = {}
        for some, ranker in ((known.lengths > 0, self.ranker), (known.lengths == 0, self.popular)):
            rows = np.flatnonzero(some)
            if not len(rows):
                continue
            part = lists.take(rows)
            picked = choose(ranker, part, self._vectors(part))
            why = self._reasons(part.histories, [pasts[row] for row in rows], picked)
            for row, each, said in zip(rows.tolist(), picked, why, strict=True):
                found[row] = self._recommendations(each, pasts[row], said, set(owned[row].tolist()))
        return [found[row] for row in range(len(known))]

    def _vectors(self, lists: Lists) -> Vectors | None:
        """The item vectors, where a policy needs them."""
        if not any(each.policy.diversity for each in lists.rules):
            return None
        if self.ranker.vectors(np.zeros(0, np.int64)) is None:
            raise QueryError("diversity needs item vectors, and a baseline has none; leave it out")
        return cast(Vectors, self.ranker.vectors)

    def _reasons(self, known: Histories, pasts: list[Past], picked: list[Picked]) -> list[list[Reason]]:
        """Why each item was chosen; popular items have no reason."""
        chosen = [each.chosen for each in picked]
        if not known.items.size:
            return [[NO_REASON] * len(row) for row in chosen]
        listed = [[each.item for each in row] for row in chosen]
        shape = len(chosen), max(map(len, chosen))
        items, logits = np.full(shape, self.catalogue.size), np.zeros(shape)
        for row, each in enumerate(chosen):
            items[row, : len(each)], logits[row, : len(each)] = listed[row], [one.logit for one in each]
        why = self.ranker.explain(known, items, logits)
        if why is None:
            return [[NO_REASON] * len(row) for row in chosen]
        return reasons(why, listed, pasts, self.catalogue.name)

    def _recommendations(self, picked: Picked, past: Past, said: list[Reason], owned: set[int]) -> Recommendations:
        each = zip(picked.chosen, said, strict=True)
        named = tuple(self._recommendation(item, past, why, repeat=item.item in owned) for item, why in each)
        estimated = picked.repeat is not None and self.ranker.estimated
        return Recommendations(named, (), picked.repeat, estimated, tuple(map(self._effect, picked.effects)))

    def _effect(self, effect: ItemEffect) -> RuleEffect:
        removed, moved = (tuple(self.catalogue.ids[item] for item in items) for items in effect[1:3])
        return RuleEffect(effect.rule, removed, moved, effect.short, effect.note)

    def _recommendation(self, chosen: Chosen, past: Past, why: Reason, *, repeat: bool) -> Recommendation:
        at = past.places.get(chosen.item, [])
        return Recommendation(
            self.catalogue.ids[chosen.item],
            self.catalogue.name(chosen.item),
            chosen.probability,
            repeat,
            chosen.partition,
            len(at),
            past.length - at[-1] if at else None,
            None if chosen.probability is None else chosen.logit,
            why.terms,
            why.argued_by,
            f"{'repeat' if repeat else 'new'} · {why.argued_by}: {why.words}" if why.argued_by else "",
        )


NO_REASON = Reason({}, None, "")
"""Of popular items and of baselines."""


def _histories(asked: list[tuple[Ints, Floats | None, float | None]]) -> Histories:
    """Histories of items, times and moments, which are given for all of them or for none."""
    times = [given for _, given, _ in asked if given is not None]
    now = [moment for _, _, moment in asked if moment is not None]
    return Histories.of([items for items, _, _ in asked], times or None, now or None)

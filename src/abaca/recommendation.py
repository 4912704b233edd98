"""From a raw history to recommendations: policies about repeats, and a reason for each item."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np
import torch

from abaca.data.batches import history_batches
from abaca.data.catalogue import Catalogue, check_id
from abaca.display import AnswerTable, plain
from abaca.errors import QueryError
from abaca.evaluation.ranker import BATCH, ModelRanker, padded
from abaca.nn.logits import COPY, Answer, Question
from abaca.types import PAD, Id, whole_number

REPEATS = ("auto", "exclude", "only")

LIST_UNKNOWN = 20
"""Unknown ids of the exclude and the candidate list that each answer names at most."""


@dataclass(frozen=True)
class Policy:
    """What may be recommended; nothing here changes a probability."""

    n: int = 10
    """How many items."""
    repeats: str = "auto"
    """auto: as learned; exclude: no item of the history; only: nothing else."""
    max_repeat_share: float = 1.0
    """At most this share of the n may be items of the history."""
    exclude: Sequence[Id] | None = ()
    """Ids that may not be recommended; None for none."""
    candidates: Sequence[Id] | None = None
    """The only ids that may be recommended; None for the whole catalogue."""

    def __post_init__(self) -> None:
        n = whole_number(self.n)
        if n is None or n < 1:
            raise QueryError(f"n must be at least 1, a whole number, got {self.n!r}")
        object.__setattr__(self, "n", n)
        if self.exclude is None:
            object.__setattr__(self, "exclude", ())
        if self.repeats not in REPEATS:
            raise QueryError(f"repeats must be one of {', '.join(REPEATS)}, got {self.repeats!r}")
        if not isinstance(self.max_repeat_share, Real) or not 0 <= self.max_repeat_share <= 1:
            raise QueryError(f"the largest share of repeats must be between 0 and 1, got {self.max_repeat_share!r}")


@dataclass(frozen=True)
class Recommendation:
    """One item, how likely it is next, and why it is here."""

    id: Id
    name: str
    """Its title where the item table has one, else its id."""
    probability: float | None
    """Of being the next item, over the whole catalogue; None for a popular item shown for want of a history."""
    repeat: bool
    """Whether it is in the history."""
    partition: str
    """Who scored it: copy, rerank, explore; or popular where no item of the history is known."""
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
        seen = "once" if self.times == 1 else f"{self.times} times"
        last = "the latest item" if self.ago == 1 else f"last {self.ago} items ago"
        return f"repeat · {self.partition}: {seen} in the history, {last}"


@dataclass(frozen=True, repr=False)
class Recommendations(AnswerTable):
    """The answer to one history."""

    items: tuple[Recommendation, ...]
    unknown: tuple[Id, ...]
    """Ids that the model does not know, each once: of the history, and the first few of the query's lists."""
    repeat_probability: float | None
    """Predicted probability that the next item is one of the history; None where nothing can be predicted."""
    estimated: bool = False
    """Whether probabilities are estimates, since a search index does not look at every item."""

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

    def __init__(self, ranker: ModelRanker, catalogue: Catalogue) -> None:
        self.ranker = ranker
        self.catalogue = catalogue

    def recommend(self, histories: Sequence[Sequence[Id]], policy: Policy) -> list[Recommendations]:
        """One answer per history; the histories go through the model in batches of similar length."""
        histories = _listed(histories, "histories")
        unknown: list[dict[Id, None]] = [{} for _ in histories]
        whole = [self._items(history, unknown[i]) for i, history in enumerate(histories)]
        known = [history[history != PAD] for history in whole]
        rules = _Rules(policy, *self._lists(policy, unknown))
        answers: list[Recommendations | None] = [None] * len(histories)
        for i, history in enumerate(known):
            if not len(history):
                answers[i] = self._popular(rules, tuple(unknown[i]))
        asked = [i for i, history in enumerate(known) if len(history)]
        for numbers, items, positions in history_batches([known[i] for i in asked], self.ranker.window, BATCH):
            places = [asked[number] for number in numbers]
            for place, part in zip(places, self._ask([known[i] for i in places], items, positions, rules), strict=True):
                chosen, repeat_probability = part
                named = tuple(self._recommendation(item, whole[place]) for item in chosen)
                answers[place] = Recommendations(
                    named, tuple(unknown[place]), repeat_probability, self.ranker.estimated
                )
        return [found for found in answers if found is not None]

    def _items(self, ids: Sequence[Id], unknown: dict[Id, None]) -> np.ndarray:
        """Items of raw ids in their order; ids that the model does not know are PAD, and put into `unknown`."""
        items = []
        for raw in _listed(ids, "ids"):
            id = check_id(raw)
            item = self.catalogue.index(id)
            if item is None or item >= self.catalogue.size:
                unknown[id] = None
                item = PAD
            items.append(item)
        return np.array(items, dtype=np.int64)

    def _lists(self, policy: Policy, unknown: list[dict[Id, None]]) -> tuple[np.ndarray, np.ndarray | None]:
        """The exclude and the candidate list as items; the first of their unknown ids are named in every answer."""
        missing: dict[Id, None] = {}
        excluded = self._items(() if policy.exclude is None else policy.exclude, missing)
        excluded = excluded[excluded != PAD]
        candidates = None
        if policy.candidates is not None:
            candidates = np.setdiff1d(self._items(policy.candidates, missing), PAD)
        for names in unknown:
            names.update(dict.fromkeys(islice(missing, LIST_UNKNOWN)))
        return excluded, candidates

    def _ask(
        self, histories: list[np.ndarray], items: np.ndarray, positions: np.ndarray, rules: "_Rules"
    ) -> list[tuple[list["_Chosen"], float | None]]:
        """The chosen items of each history and its probability of a repeat."""
        owned = [np.unique(history) for history in histories]
        questions = rules.questions(owned, self.catalogue.size)
        answers = [self.ranker.ask(items, positions, question) for question in questions]
        mass = [None if math.isnan(share) else share for share in answers[0].mass.clamp(0, 1).tolist()]
        return [(rules.merge([_best(found, row) for found in answers]), mass[row]) for row in range(len(histories))]

    def _recommendation(self, chosen: "_Chosen", history: np.ndarray) -> Recommendation:
        at = np.flatnonzero(history == chosen.item)
        ago = int(len(history) - at[-1]) if len(at) else None
        id, name = self.catalogue.ids[chosen.item], self.catalogue.name(chosen.item)
        return Recommendation(id, name, chosen.probability, bool(len(at)), chosen.partition, len(at), ago)

    def _popular(self, rules: "_Rules", unknown: tuple[Id, ...]) -> Recommendations:
        """Items are numbered by how often they occur: the first that are allowed."""
        n = 0 if rules.policy.repeats == "only" else rules.policy.n
        enough = n + len(rules.excluded)
        first = np.arange(min(enough, self.catalogue.size)) if rules.candidates is None else rules.candidates[:enough]
        wanted = first[~np.isin(first, rules.excluded)][:n]
        empty = np.empty(0, dtype=np.int64)
        chosen = tuple(self._recommendation(_Chosen(int(item), None, "popular", -math.inf), empty) for item in wanted)
        return Recommendations(chosen, unknown, None)


@dataclass(frozen=True)
class _Chosen:
    item: int
    probability: float | None
    partition: str
    logit: float


@dataclass(frozen=True)
class _Rules:
    """A policy in items."""

    policy: Policy
    excluded: np.ndarray
    candidates: np.ndarray | None

    @property
    def most_repeats(self) -> int:
        """How many of the n may be repeats."""
        return math.floor(self.policy.max_repeat_share * self.policy.n + 1e-9)

    def questions(self, owned: list[np.ndarray], catalogue: int) -> list[Question]:
        """What to ask of the model: one question, or two where repeats are capped: the new items, the repeats."""
        if self.policy.repeats == "only":
            return [self._question(owned, catalogue, new=False)]
        if self.policy.repeats == "exclude" or self.most_repeats == 0:
            return [self._question(owned, catalogue, new=True)]
        if self.most_repeats < self.policy.n:
            return [self._question(owned, catalogue, new=True), self._question(owned, catalogue, new=False)]
        return [self._question(owned, catalogue, new=None)]

    def _question(self, owned: list[np.ndarray], catalogue: int, new: bool | None) -> Question:
        banned = [np.union1d(self.excluded, items) if new else self.excluded for items in owned]
        only = None
        if new is False:
            everything = self.candidates
            only = [items if everything is None else np.intersect1d(items, everything) for items in owned]
        elif self.candidates is not None:
            only = [self.candidates for _ in owned]
        return Question(
            targets=torch.full((len(owned),), -1),
            n=self.policy.n,
            mass_of=padded(owned, catalogue),
            banned=padded(banned, catalogue),
            only=None if only is None else padded(only, catalogue),
        )

    def merge(self, lists: list[list[_Chosen]]) -> list[_Chosen]:
        """The best n; where repeats are capped, of the new items and the allowed number of repeats."""
        if self.policy.repeats == "only":
            return lists[0][: min(self.policy.n, self.most_repeats)]
        if len(lists) == 1:
            return lists[0][: self.policy.n]
        new, repeats = lists
        both = sorted(new + repeats[: self.most_repeats], key=lambda chosen: -chosen.logit)
        return both[: self.policy.n]


def _best(found: Answer, row: int) -> list[_Chosen]:
    """The best items of one row that a policy left."""
    chosen = []
    normaliser = found.normaliser[row].item()
    columns = (found.items[row].tolist(), found.logits[row].tolist(), found.partitions[row].tolist())
    for item, logit, partition in zip(*columns, strict=True):
        if logit == -math.inf:
            break
        name = "copy" if partition == COPY else "rerank" if partition > 0 else "explore"
        chosen.append(_Chosen(item, math.exp(logit - normaliser), name, logit))
    return chosen


def _listed(entries: Any, what: str) -> list[Any]:
    """A list, tuple, array or series as a list; one entry alone is refused."""
    if isinstance(entries, str | bytes):
        raise QueryError(f"expected a list of {what}, got the text {entries!r}; pass [{entries!r}]")
    try:
        return list(entries)
    except TypeError:
        raise QueryError(f"expected a list of {what}, got {entries!r}; pass [{entries!r}]") from None

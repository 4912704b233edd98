"""Lists under policies: the questions to a ranker, how many candidates they ask for, and what becomes of them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from abaca.evaluation.ranker import ExplainedRanker, no_answer, padded
from abaca.histories import Floats, Histories, Ints
from abaca.nn.answers import COPY, RULE, Answer, Question
from abaca.policy.candidates import Candidates
from abaca.policy.draft import Effect
from abaca.policy.rerank import POOL, Choice, Pools, rerank
from abaca.policy.rules import Bools, ItemRules, within

FIRST, OWNED, MORE = 100, 400, 16
"""Candidates beyond the pool of diversity that a reranked list asks for; how many more at most where repeats are
capped, since those of the history may all be among the best; and the factor by which more are fetched."""
NAMED = 20
"""Items that the effect of a rule names at most."""

POPULAR = -3
"""Partition of a popular item after a history that holds no known item."""
PARTITIONS = {COPY: "copy", RULE: "rule", POPULAR: "popular", 0: "explore"}

Vectors = Callable[[Ints], Floats]
"""The vectors of unit length (P, D) of some items."""


class Chosen(NamedTuple):
    """An item that was chosen for a list."""

    item: int
    probability: float | None
    partition: str
    logit: float


class ItemEffect(NamedTuple):
    """What one rule did to a list, in items."""

    rule: str
    removed: list[int]
    moved: list[int]
    short: int = 0
    note: str = ""


class Picked(NamedTuple):
    """The list of one history."""

    chosen: list[Chosen]
    repeat: float | None
    """The probability of a repeat, where there is one."""
    effects: list[ItemEffect]


@dataclass(frozen=True, eq=False)
class Lists:
    """Histories to answer together, and the rules of each."""

    histories: Histories
    """Known items only."""
    rules: list[ItemRules]
    """Of policies of one shape."""
    cooled: list[Ints]
    """The items that a cool-down bars."""
    owned: list[Ints]
    """The items of each history, ascending."""
    retired: Ints
    """Items that are recommended to nobody."""

    def take(self, rows: Ints) -> "Lists":
        """Some of the histories."""
        if len(rows) == len(self.rules):
            return self
        rules = [self.rules[row] for row in rows]
        cooled, owned = ([part[row] for row in rows] for part in (self.cooled, self.owned))
        return Lists(self.histories.take(rows), rules, cooled, owned, self.retired)

    @property
    def fetched(self) -> int:
        """The number of candidates to ask for at first."""
        policy = self.rules[0].policy
        if not policy.reranks:
            return policy.n
        capped = [len(owned) for rules, owned in zip(self.rules, self.owned, strict=True) if rules.policy.caps_repeats]
        return POOL * policy.n + FIRST + min(max(capped, default=0), OWNED)

    def questions(self, n: int, catalogue: int) -> list[Question]:
        """The best n items that no filter removes; then the best n raised items among them, and those of floors."""
        banned = padded([self._banned(row) for row in range(len(self.rules))], catalogue)
        only = [self._only(row) for row in range(len(self.rules))]
        kept = [items for items in only if items is not None]
        none = torch.full((len(only),), -1)
        best = Question(none, n, padded(self.owned, catalogue), banned, padded(kept, catalogue) if kept else None)
        found = [best]
        for place in range(len(self.rules[0].special)):
            special = [self._special(row, place) for row in range(len(only))]
            found.append(best._replace(mass_of=best.mass_of[:, :0], only=padded(special, catalogue)))
        return found

    def _banned(self, row: int) -> Ints:
        """The items that filters remove; some may be there twice."""
        removed = [items for _, items, keeps in self._filters(row) if not keeps and len(items)]
        return np.concatenate([self.retired, *removed]) if removed else self.retired

    def _only(self, row: int) -> Ints | None:
        """The only items that filters keep."""
        kept = [items for _, items, keeps in self._filters(row) if keeps]
        return kept[0][within(kept[0], kept[1])] if len(kept) > 1 else kept[0] if kept else None

    def _special(self, row: int, place: int) -> Ints:
        """The items of a kind that is asked for however low they score."""
        items = self.rules[row].special[place]
        return items[within(items, self.owned[row])] if self.rules[row].policy.repeats == "only" else items

    def _filters(self, row: int) -> list[tuple[str, Ints, bool]]:
        return self.rules[row].filters(self.owned[row], self.cooled[row])


class Popular:
    """Ranks items by popularity, after histories that hold no known item.

    The logarithm of the place stands in for the logit, so that boosts have a scale.
    """

    name, estimated = "popular", False

    def __init__(self, order: Ints) -> None:
        self.order, self.catalogue = order, len(order)
        """The items, most popular first."""
        self.place = np.argsort(order)

    def ask(self, histories: Histories, question: Question) -> Answer:
        """The first items that the question allows."""
        found = no_answer(len(histories), question.n, self.catalogue)
        n, banned = found.items.shape[1], question.banned.numpy()
        enough = min(n + banned.shape[1], self.catalogue)
        for row in range(len(histories)):
            only = None if question.only is None else question.only[row].numpy()
            first = np.arange(enough) if only is None else np.sort(self.place[only[only < self.catalogue]])
            items = self.order[first]
            places = first[~np.isin(items, banned[row])][:n]
            found.items[row, : len(places)] = torch.from_numpy(self.order[places])
            found.logits[row, : len(places)] = -torch.from_numpy(places + 1).float().log()
        return found._replace(partitions=torch.full_like(found.partitions, POPULAR))

    def ask_each(self, histories: Histories, questions: list[Question]) -> list[Answer]:
        """Answer several questions about the same histories."""
        return [self.ask(histories, question) for question in questions]

    def explain(self, histories: Histories, items: Ints, logits: Floats) -> None:
        """Nothing: popular items have no logits."""
        return

    def vectors(self, items: Ints) -> None:
        """None: it has no item vectors."""
        return

    def cold(self) -> None:
        """None: it reads no features."""
        return


def choose(ranker: ExplainedRanker, lists: Lists, vectors: Vectors | None) -> list[Picked]:
    """The list of each history; more candidates are fetched while they could change one."""
    found: dict[int, Picked] = {}
    rows, count = np.arange(len(lists.rules)), min(lists.fetched, ranker.catalogue)
    while len(rows):
        part = lists.take(rows)
        answers = _asked(ranker, part.histories, part.questions(count, ranker.catalogue))
        candidates = Candidates.of(
            answers, ranker.catalogue, complete=count == ranker.catalogue, surely=not ranker.estimated
        )
        picked = _picked(candidates, part, vectors)
        found |= {int(rows[at]): each for at, each in picked.items()}
        again = [at for at in range(len(rows)) if at not in picked]
        rows, count = rows[again], min(MORE * count, ranker.catalogue)
    lists_of = [found[row] for row in range(len(lists.rules))]
    return _with_filters(ranker, lists, lists_of) if lists.rules[0].policy.explain_rules else lists_of


def _asked(ranker: ExplainedRanker, histories: Histories, questions: list[Question]) -> list[Answer]:
    return [ranker.ask(histories, questions[0])] if len(questions) == 1 else ranker.ask_each(histories, questions)


def _picked(found: Candidates, lists: Lists, vectors: Vectors | None) -> dict[int, Picked]:
    """The list of each history, without those that items which were not fetched could change."""
    picked: dict[int, Picked] = {}
    alike: dict[int, list[int]] = {}
    for row, rules in enumerate(lists.rules):
        alike.setdefault(id(rules), []).append(row)
    for rows in alike.values():
        rules, part = lists.rules[rows[0]], found.take(rows)
        unheard = [ItemEffect(rule, [], [], short, _no_item(rule)) for rule, short in rules.unheard]
        chosen = _reranked(part, rules, [lists.owned[row] for row in rows], vectors) if rules.policy.reranks else None
        for at, row in enumerate(rows):
            choice = Choice(part.first(at, rules.policy.n), [], math.inf, math.inf) if chosen is None else next(chosen)
            if _settled(choice, rules, part, at):
                effects = unheard + [_in_items(effect, rules, part.items[at]) for effect in choice.effects]
                picked[row] = Picked(_chosen(part, at, choice.places), part.repeat(at), effects)
    return picked


def _no_item(rule: str) -> str:
    return "no item is cold" if rule == "min_cold" else "no item has this value"


def _reranked(found: Candidates, rules: ItemRules, owned: list[Ints], vectors: Vectors | None) -> Iterator[Choice]:
    """The lists of histories under the same rules."""
    items = found.known
    pools = Pools(
        found.logits,
        None if rules.boosts is None else rules.boosts.of(items),
        rules.groups.of(items, _among(items, owned)),
        None if vectors is None else lambda rows, places: _shaped(vectors, items[rows, places]),
    )
    return rerank(pools, rules.groups.limits)


def _settled(choice: Choice, rules: ItemRules, found: Candidates, at: int) -> bool:
    """Whether items that were not fetched could not change a list."""
    if not rules.policy.reranks:
        return True
    special = found.special_below[:, at].tolist()
    raised = -math.inf if rules.boosts is None else special[0] + rules.highest_boost
    floors = max(raised, special[-1]) if rules.policy.has_floors else -math.inf
    return choice.lowest >= max(float(found.below[at]), raised) and choice.lowest_special >= floors


def _in_items(effect: Effect, rules: ItemRules, items: Ints) -> ItemEffect:
    removed, moved = (items[places[:NAMED]].tolist() for places in (effect.removed, effect.moved))
    return ItemEffect(rules.rule_name(effect.rule, floor=effect.floor), removed, moved, effect.short)


def _shaped(vectors: Vectors, items: Ints) -> Floats:
    """The vectors (…, D) of items (…)."""
    return vectors(items.ravel()).reshape(*items.shape, -1)


def _among(items: Ints, owned: list[Ints]) -> Bools:
    """Which of the items (B, K) are in the history of their row."""
    width = int(items.max(initial=0)) + 1
    first = width * np.arange(len(items))
    mine = [each[: each.searchsorted(width)] + start for each, start in zip(owned, first.tolist(), strict=True)]
    return within(items + first[:, None], np.concatenate([np.zeros(0, np.int64), *mine]))


def _chosen(found: Candidates, at: int, places: list[int]) -> list[Chosen]:
    """Some of the candidates of a history."""
    chosen = []
    normaliser = float(found.normaliser[at])
    columns = (part[at, places].tolist() for part in (found.items, found.logits, found.partitions))
    for item, logit, partition in zip(*columns, strict=True):
        probability = None if math.isnan(normaliser) else math.exp(logit - normaliser)
        name = PARTITIONS.get(partition, "rerank")
        chosen.append(Chosen(item, probability, name, -math.inf if partition == POPULAR else logit))
    return chosen


def _with_filters(ranker: ExplainedRanker, lists: Lists, picked: list[Picked]) -> list[Picked]:
    """The lists with what filters removed of the n best items."""
    count = len(picked)
    nothing, retired = torch.empty(count, 0, dtype=torch.long), torch.from_numpy(lists.retired).expand(count, -1)
    n = lists.rules[0].policy.n
    answer = ranker.ask(lists.histories, Question(torch.full((count,), -1), n, nothing, retired))
    found = []
    for row, each in enumerate(picked):
        best = answer.items[row][answer.logits[row] > -math.inf].numpy()
        effects = []
        for rule, items, keeps in lists._filters(row):
            removed = best[np.isin(best, items, invert=keeps)]
            if len(removed):
                effects.append(ItemEffect(rule, removed[:NAMED].tolist(), []))
        found.append(each._replace(effects=effects + each.effects))
    return found

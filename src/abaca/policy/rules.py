"""Policies in items: which items they filter, what they add to logits, and the groups that they count."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from abaca.errors import QueryError
from abaca.histories import EventTypes, Floats, Histories, Ints
from abaca.policy.columns import Column, Columns
from abaca.policy.draft import Limits
from abaca.policy.ids import Ids, Unknown
from abaca.policy.policy import Policy
from abaca.policy.spelling import ITEM, SECONDS, UNIT, Boost, Cooldown, Quota
from abaca.types import PAD, Id

REPEAT, NEW = 0, 1
"""Groups that every policy has; those of columns follow."""
COLD_COLUMN = "\0cold"
"""The column of cold items; no item table has such a name."""
UNLIMITED = 1 << 40
NOTHING: Ints = np.zeros(0, np.int64)

Bools = npt.NDArray[np.bool_]


class Boosts(NamedTuple):
    """What is added to the logits of items."""

    items: Ints  # (X,) ascending
    amounts: Floats  # (X,)
    columns: list[tuple[Column, Floats]]
    """For each column the amount of each value, with 0 for none at the end."""

    def of(self, items: Ints) -> Floats:
        """What is added for some items (…)."""
        found = np.zeros(items.shape)
        if len(self.items):
            at = self.items.searchsorted(items).clip(max=len(self.items) - 1)
            found += np.where(self.items[at] == items, self.amounts[at], 0.0)
        for column, amounts in self.columns:
            found += amounts[column.codes[items]].sum(axis=-1)
        return found

    @property
    def highest(self) -> float:
        """No item gets more."""
        found = float(self.amounts.max(initial=0.0))
        for column, amounts in self.columns:
            found += float(np.sort(amounts)[::-1][: column.codes.shape[1]].clip(min=0.0).sum())
        return found

    @property
    def raised(self) -> Ints:
        """The items that may get more than 0."""
        found = [self.items[self.amounts > 0]]
        found += [column.having(np.flatnonzero(amounts > 0)) for column, amounts in self.columns]
        return np.unique(np.concatenate(found))


class Groups(NamedTuple):
    """The groups of items that caps and floors count."""

    columns: list[tuple[str, Column, int]]
    """Columns with their names, and the number of each one's first group."""
    limits: Limits

    def of(self, items: Ints, repeat: Bools) -> Ints:
        """The groups (…, W) of some items (…), G after the last."""
        none = len(self.limits.most) - 1
        found = [np.where(repeat, REPEAT, NEW)[..., None]]
        for _, column, first in self.columns:
            codes = column.codes[items]
            found.append(np.where(codes < column.size, codes + first, none))
        return np.concatenate(found, axis=-1)

    def name(self, group: int) -> str:
        """The column and the value of a group."""
        name, column, first = self._column(group)
        return f"{name}={column.names[group - first]}"

    def floor_name(self, group: int) -> str:
        """The rule of a floor."""
        return "min_cold" if self._column(group)[0] == COLD_COLUMN else f"at_least {self.name(group)}"

    def items(self, group: int) -> Ints:
        """The items of a value, ascending."""
        _, column, first = self._column(group)
        return column.having(np.array([group - first]))

    def _column(self, group: int) -> tuple[str, Column, int]:
        return next(each for each in reversed(self.columns) if each[2] <= group)


@dataclass(frozen=True, eq=False)
class ItemRules:
    """One policy in items of one catalogue."""

    policy: Policy
    excluded: Ints  # ascending
    candidates: Ints | None  # ascending
    boosts: Boosts | None
    groups: Groups
    unheard: tuple[tuple[str, int], ...]
    """The rules about a value that no item has, and how many items each wants."""

    @cached_property
    def special(self) -> list[Ints]:
        """Candidates that may be in a list although many items score higher: raised ones, and those of floors."""
        found = [] if self.boosts is None else [self.boosts.raised]
        if self.policy.has_floors:
            floors = [self.groups.items(group) for group in self.groups.limits.special]
            found.append(np.unique(np.concatenate([NOTHING, *floors])))
        only = self.candidates
        return found if only is None else [items[within(items, only)] for items in found]

    @cached_property
    def highest_boost(self) -> float:
        """No item gets more."""
        return 0.0 if self.boosts is None else self.boosts.highest

    @classmethod
    def of(cls, policy: Policy, ids: Ids, unknown: Unknown, columns: Columns) -> "ItemRules":
        """The policy in items of a catalogue; its unknown ids are put into `unknown`."""
        listed = cast(tuple[tuple[Id, ...], tuple[Id, ...] | None], (policy.exclude, policy.candidates))
        excluded = ids.known(listed[0], unknown)
        candidates = None if listed[1] is None else ids.known(listed[1], unknown)
        boosted = ids.items([boost.value for boost in cast(tuple[Boost, ...], policy.boost)], unknown)
        boosts, groups = _boosts(policy, boosted, columns), _groups(policy, columns)
        return cls(policy, excluded, candidates, boosts, groups, _unheard(policy, columns))

    def rule_name(self, group: int | str, *, floor: bool) -> str:
        """The rule that an effect of reranking is due to."""
        if isinstance(group, str):
            return group
        if floor:
            return "min_new" if group == NEW else self.groups.floor_name(group)
        if group == REPEAT:
            return "max_repeats" if self.policy.most_repeats == self.policy.max_repeats else "max_repeat_share"
        return f"at_most {self.groups.name(group)}"

    def filters(self, owned: Ints, cooled: Ints) -> list[tuple[str, Ints, bool]]:
        """Each filter of a history: its rule, and the items that it removes or, where True, that it keeps."""
        found: list[tuple[str, Ints, bool]] = [("exclude", self.excluded, False), ("cooldown", cooled, False)]
        if self.candidates is not None:
            found.append(("candidates", self.candidates, True))
        if self.policy.repeats != "auto":
            found.append(("repeats", owned, self.policy.repeats == "only"))
        if self.policy.most_repeats == 0:
            found.append((self.rule_name(REPEAT, floor=False), owned, False))
        return found


def within(items: Ints, ascending: Ints) -> Bools:
    """Which items are among some that ascend."""
    if not len(ascending):
        return np.zeros(items.shape, dtype=bool)
    return np.asarray(ascending[ascending.searchsorted(items).clip(max=len(ascending) - 1)] == items)


def cooled_items(
    policies: Sequence[Policy], histories: Histories, types: EventTypes | None, per_second: float | None
) -> list[Ints]:
    """The items of each history that a cool-down bars, ascending; `per_second` is how many units a second has."""
    used = {each.type for policy in policies for each in cast(tuple[Cooldown, ...], policy.cooldown)}
    events = {name: _events(histories, types, name) for name in used}
    found = []
    for row, policy in enumerate(policies):
        barred = [
            _barred(each, events[each.type], row, _moment(histories, row), per_second)
            for each in cast(tuple[Cooldown, ...], policy.cooldown)
        ]
        found.append(np.unique(np.concatenate([NOTHING, *barred])))
    return found


def _events(histories: Histories, types: EventTypes | None, name: str | None) -> Histories:
    """The events that a cool-down counts from: those of its type, else those that make their item a repeat."""
    if name is None:
        return histories if types is None else types.owned(histories)
    if types is None:
        raise QueryError(f"cooldown 'of {name}': the model knows no types of events; leave 'of {name}' out")
    return types.fill(histories).of_types(tuple(types.numbers([name]).tolist()))


def _moment(histories: Histories, row: int) -> float | None:
    """The moment of the query, or that of the latest event; None without times."""
    if histories.now is not None:
        return float(histories.now[row])
    begin, end = histories.offsets[row : row + 2]
    return None if histories.times is None or begin == end else float(histories.times[begin:end].max())


def _barred(cooldown: Cooldown, events: Histories, row: int, now: float | None, per_second: float | None) -> Ints:
    """The items among some events of a history that a cool-down bars."""
    begin, end = events.offsets[row : row + 2]
    items = events.items[begin:end]
    if cooldown.unit == ITEM:
        near = np.arange(len(items), 0, -1) <= cooldown.amount
    elif not len(items):
        return NOTHING
    elif events.times is None or now is None:
        raise QueryError("a cool-down in time needs the times of the history; give `times`, or one in items")
    else:
        near = now - events.times[begin:end] < _span(cooldown, per_second)
    return np.asarray(items[near & (items != PAD)])


def _span(cooldown: Cooldown, per_second: float | None) -> float:
    """A cool-down in the unit of the log's times."""
    if cooldown.unit == UNIT:
        return cooldown.amount
    if per_second is None:
        raise QueryError(
            f"cooldown '{cooldown}': the log of this model has no times since 1970; write '{cooldown.amount:g} units', "
            "in the unit of its times"
        )
    return cooldown.amount * SECONDS[cooldown.unit] * per_second


def _boosts(policy: Policy, found: Ints, columns: Columns) -> Boosts | None:
    own, of_values = cast(tuple[tuple[Boost, ...], tuple[Boost, ...]], (policy.boost, policy.boost_category))
    if not own and not of_values:
        return None
    amounts = np.array([boost.amount for boost in own])[found != PAD]
    known, at = np.unique(found[found != PAD], return_inverse=True)
    by_column: dict[str, Floats] = {}
    for boost in of_values:
        column = columns[str(boost.column)]
        amount = by_column.setdefault(str(boost.column), np.zeros(column.size + 1))
        if (code := column.numbers.get(str(boost.value))) is not None:
            amount[code] += boost.amount
    each = [(columns[name], amount) for name, amount in by_column.items()]
    return Boosts(known, np.bincount(at, amounts, len(known)).astype(np.float64), each)


def _groups(policy: Policy, columns: Columns) -> Groups:
    """Repeats and new items, then the values of the columns that have quotas."""
    caps, floors = cast(tuple[tuple[Quota, ...], tuple[Quota, ...]], (policy.at_most, policy.at_least))
    placed: dict[str, tuple[str, Column, int]] = {}
    size = NEW + 1
    for quota in (*caps, *floors):
        if quota.column not in placed:
            placed[quota.column] = quota.column, columns[quota.column], size
            size += columns[quota.column].size
    if policy.min_cold:
        placed[COLD_COLUMN] = COLD_COLUMN, columns.cold, size
        size += columns.cold.size
    most = np.full(size + 1, UNLIMITED)
    most[REPEAT] = policy.most_repeats
    least = {NEW: policy.min_new} if policy.min_new else {}
    for quota in caps:
        groups = _groups_of(quota, placed)
        most[groups] = np.minimum(most[groups], quota.number)
    for quota in floors:
        least |= dict.fromkeys(_groups_of(quota, placed), quota.number)
    if policy.min_cold:
        least |= dict.fromkeys(range(placed[COLD_COLUMN][2], size), policy.min_cold)
    special = frozenset(least) - {NEW}
    return Groups(list(placed.values()), Limits(policy.n, most, least, float(policy.diversity), special))


def _groups_of(quota: Quota, placed: dict[str, tuple[str, Column, int]]) -> list[int]:
    """The groups that a quota concerns; none where no item has its value."""
    _, column, first = placed[quota.column]
    if quota.value is None:
        return list(range(first, first + column.size))
    code = column.numbers.get(quota.value)
    return [] if code is None else [first + code]


def _unheard(policy: Policy, columns: Columns) -> tuple[tuple[str, int], ...]:
    """The rules whose value no item has, and how many items each wants."""
    given = {"at_most": policy.at_most, "at_least": policy.at_least, "boost_category": policy.boost_category}
    found = [("min_cold", policy.min_cold)] if policy.min_cold and not columns.cold.size else []
    for rule, entries in given.items():
        for column, value, number in cast(tuple[Quota | Boost, ...], entries):
            if value is not None and str(value) not in columns[str(column)].numbers:
                found.append((f"{rule} {column}={value}", int(number) if rule == "at_least" else 0))
    return tuple(found)

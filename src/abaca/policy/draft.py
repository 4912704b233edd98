"""A list in the making: it is filled by score within caps, and changed until its floors hold."""

from collections import defaultdict
from itertools import combinations
from typing import NamedTuple

from abaca.histories import Ints

CHUNK = 32
"""The groups of this number of candidates are read at a time."""


class Limits(NamedTuple):
    """What a list of n items may hold."""

    n: int
    most: Ints  # (G + 1,) items of a group at most
    least: dict[int, int]
    """Items of a group at least."""
    diversity: float = 0.0
    special: frozenset[int] = frozenset()
    """Groups with a floor whose best items are candidates however low they score."""


class Effect(NamedTuple):
    """What one rule did, in places of candidates."""

    rule: int | str
    """A group whose cap or floor it is; or boost, diversity."""
    floor: bool
    removed: list[int]
    """Not in the list because of it, best first."""
    moved: list[int]
    """In the list, or higher in it, because of it."""
    short: int = 0
    """How many items are missing of a floor."""


class Members:
    """The groups of the candidates of one list, which are in the order of scores; few of them are ever read."""

    def __init__(self, groups: Ints, limits: Limits) -> None:
        self._groups, self._most = groups, limits.most  # (K, W), (G + 1,)
        self.size = len(groups)
        self._read: list[list[tuple[int, int]]] = []
        self._places: dict[int, list[int]] = {}

    def of(self, place: int) -> list[tuple[int, int]]:
        """The groups of a candidate, and how many items each may have."""
        while place >= len(self._read):
            rows = self._groups[len(self._read) :][:CHUNK]
            pairs = zip(rows.tolist(), self._most[rows].tolist(), strict=True)
            self._read += [list(zip(groups, caps, strict=True)) for groups, caps in pairs]
        return self._read[place]

    def places(self, group: int) -> list[int]:
        """The candidates of a group, best first."""
        found = self._places.get(group)
        if found is None:
            found = self._places[group] = (self._groups == group).any(axis=1).nonzero()[0].tolist()
        return found


class Draft:
    """A list in the making, with the number of items that each group has in it; 0 is the best candidate."""

    def __init__(self, members: Members, limits: Limits) -> None:
        self.members, self.limits = members, limits
        self.places: list[int] = []
        self.count: dict[int, int] = defaultdict(int)
        self.blocked: dict[int, list[int]] = defaultdict(list)
        self.swapped: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.reach = self.special_reach = 0
        """How many of the candidates, by score, the list depends on, and how many its special floors do."""

    def compose(self) -> None:
        """Fill the list by score, then see to its length and to its floors; it is in the order of scores."""
        self._fill()
        while len(self.places) < self.limits.n and self._exchange():
            pass
        for group in self.limits.least:
            while self._missing(group) and self._replace(group):
                pass
        self.places.sort()

    def full(self, place: int) -> int | None:
        """A group of the candidate that is full."""
        count = self.count
        for group, cap in self.members.of(place):
            if count[group] >= cap:
                return group
        return None

    def add(self, place: int) -> None:
        """Put a candidate into the list."""
        self.places.append(place)
        for group, _ in self.members.of(place):
            self.count[group] += 1

    def drop(self, place: int) -> None:
        """Take a candidate out of the list."""
        self.places.remove(place)
        for group, _ in self.members.of(place):
            self.count[group] -= 1

    def short(self) -> dict[int, int]:
        """The floors that are not met, and by how many items."""
        return {group: missing for group in self.limits.least if (missing := self._missing(group))}

    def reached(self) -> tuple[int, int]:
        """How many candidates the list depends on, and its special floors; more than there are if it may lack some."""
        special, more = self.limits.special, self.members.size + 1
        short = self.short()
        enough = len(self.places) == self.limits.n and not set(short) - special
        return self.reach if enough else more, more if set(short) & special else self.special_reach

    def effects(self) -> list[Effect]:
        """What caps and floors did."""
        listed = set(self.places)
        found = []
        for group, places in self.blocked.items():
            found.append(Effect(group, False, [place for place in dict.fromkeys(places) if place not in listed], []))
        short = self.short()
        for group in self.limits.least:
            out, into = ([pair[side] for pair in self.swapped[group]] for side in (0, 1))
            found.append(Effect(group, True, out, into, short.get(group, 0)))
        return found

    def _fill(self) -> None:
        taken = set(self.places)
        for place in range(self.members.size):
            if len(self.places) >= self.limits.n:
                break
            self.reach = max(self.reach, place + 1)
            if place in taken:
                continue
            group = self.full(place)
            if group is None:
                self.add(place)
            else:
                self.blocked[group].append(place)

    def _exchange(self) -> bool:
        """Let an item of the list, the worst first, give way to two others; nothing else fits into the list."""
        listed = set(self.places)
        others = [(place, self._full_groups(place)) for place in range(self.members.size) if place not in listed]
        for place in sorted(self.places, reverse=True):
            own, fitting = self._full_groups(place), dict[frozenset[int], list[int]]()
            for other, groups in others:
                if groups <= own:
                    fitting.setdefault(groups, []).append(other)
            self.drop(place)
            for one, two in combinations([one for alike in fitting.values() for one in alike[:2]], 2):
                if self.full(one) is None:
                    self.add(one)
                    if self.full(two) is None:
                        self.add(two)
                        self.blocked[min(own)].append(place)
                        return True
                    self.drop(one)
            self.add(place)
        return False

    def _full_groups(self, place: int) -> frozenset[int]:
        return frozenset(group for group, cap in self.members.of(place) if self.count[group] >= cap)

    def _missing(self, group: int) -> int:
        return max(0, min(self.limits.least[group], self.limits.n) - self.count[group])

    def _replace(self, group: int) -> bool:
        """Let the best candidate of a group that is not in the list replace the last item that is not needed."""
        listed, spare = set(self.places), self._spare()
        for place in self.members.places(group):
            if place in listed:
                continue
            if group in self.limits.special:
                self.special_reach = max(self.special_reach, place + 1)
            else:
                self.reach = max(self.reach, place + 1)
            if len(self.places) < self.limits.n and self.full(place) is None:
                self.add(place)
                return True
            barred = self._full_groups(place)
            for last in spare:
                if barred <= {group for group, _ in self.members.of(last)}:
                    self.drop(last)
                    self.add(place)
                    self.swapped[group].append((last, place))
                    return True
        return False

    def _spare(self) -> list[int]:
        """The items of the list without which every floor would still hold, the worst first."""
        least, count = self.limits.least, self.count
        bound = {group for group in least if count[group] <= least[group]}
        worst_first = sorted(self.places, reverse=True)
        return [place for place in worst_first if not any(group in bound for group, _ in self.members.of(place))]

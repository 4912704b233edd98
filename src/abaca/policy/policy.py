"""Policies: what may be recommended, and how lists are composed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any

from abaca.data.idlist import read_ids
from abaca.errors import QueryError
from abaca.policy.spelling import Boost, Cooldown, Quota, category_boosts, cooldowns, item_boosts, quotas
from abaca.types import Id, whole_number

REPEATS = ("auto", "exclude", "only")


@dataclass(frozen=True)
class Policy:
    """What may be recommended, and how a list is composed; nothing here changes a probability."""

    n: int = 10
    """How many items."""
    repeats: str = "auto"
    """auto: as learned; exclude: no item of the history; only: nothing else."""
    max_repeat_share: float = 1.0
    """At most this share of the n may be items of the history."""
    max_repeats: int | None = None
    """At most this number of items of the history; None for any number."""
    min_new: int = 0
    """At least this number of items that are not in the history, as far as there are some."""
    min_cold: int = 0
    """At least this number of items that nobody had taken when the model was trained, as far as there are some."""
    exclude: Sequence[Id] | Path = ()
    """Ids that may not be recommended, or a file of them; None for none."""
    candidates: Sequence[Id] | Path | None = None
    """The only ids that may be recommended, such as the stock, or a file of them; None for the whole catalogue."""
    cooldown: str | timedelta | Cooldown | Sequence[str | timedelta | Cooldown] = ()
    """How long an item is not recommended after its last occurrence: "7 days", "5 items", "7 days of buy" by the type
    of its events; each of several counts."""
    at_most: Mapping[str, Any] | Sequence[str | Quota] = ()
    """Caps by a column of the item table: {"brand": 2} for each value, {"brand": {"Acme": 1}} for one."""
    at_least: Mapping[str, Any] | Sequence[str | Quota] = ()
    """Floors by a column, as far as there are items: {"brand": {"Acme": 1}}."""
    boost: Mapping[Id, float] | Sequence[str | Boost] = ()
    """Numbers that are added to the logits of items for the order of the list: {"milk": 0.5}."""
    boost_category: Mapping[str, Any] | Sequence[str | Boost] = ()
    """The same for all items with a value in a column: {"brand": {"Acme": -1}}."""
    diversity: float = 0.0
    """Strength of maximal marginal relevance on item vectors, from 0 (off) to 1."""
    explain_rules: bool = False
    """Whether the answer also says what filters removed; this needs a second ranking."""

    def __post_init__(self) -> None:
        self._set("n", _count(self.n, "n", 1))
        self._set("exclude", () if self.exclude is None else tuple(listed(self.exclude, "ids")))
        if self.candidates is not None:
            self._set("candidates", tuple(listed(self.candidates, "ids")))
        if self.repeats not in REPEATS:
            raise QueryError(f"repeats must be one of {', '.join(REPEATS)}, got {self.repeats!r}")
        _check_share(self.max_repeat_share, "the largest share of repeats")
        _check_share(self.diversity, "diversity")
        if self.max_repeats is not None:
            self._set("max_repeats", _count(self.max_repeats, "max_repeats", 0))
        self._set("min_new", _count(self.min_new, "min_new", 0))
        self._set("min_cold", _count(self.min_cold, "min_cold", 0))
        self._set("cooldown", cooldowns(self.cooldown))
        self._set("at_most", quotas(self.at_most, "at_most", every=True))
        self._set("at_least", quotas(self.at_least, "at_least", every=False))
        self._set("boost", item_boosts(self.boost))
        self._set("boost_category", category_boosts(self.boost_category))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def most_repeats(self) -> int:
        """How many of the n may be repeats."""
        share = math.floor(self.max_repeat_share * self.n + 1e-9)
        return share if self.max_repeats is None else min(share, self.max_repeats)

    @property
    def has_floors(self) -> bool:
        """Whether items of some groups are candidates however low they score."""
        return bool(self.at_least) or self.min_cold > 0

    @property
    def caps_repeats(self) -> bool:
        """Whether some repeats may be recommended, but not any number of them."""
        return 0 < self.most_repeats < self.n

    @property
    def reranks(self) -> bool:
        """Whether an item's place depends on more than its logit."""
        composed = self.at_most or self.has_floors or self.boost or self.boost_category or self.diversity
        return bool(composed) or self.min_new > 0 or self.caps_repeats

    @property
    def shape(self) -> tuple[Any, ...]:
        """What policies must share so that their histories can be answered together."""
        only = self.repeats == "only" or self.candidates is not None
        special = bool(self.boost or self.boost_category), self.has_floors
        return self.n, only, self.reranks, special, self.explain_rules


def listed(entries: Any, what: str) -> list[Any]:
    """A list, tuple, array or series as a list, or the ids of a file; one entry alone is refused."""
    if isinstance(entries, Path):
        return list(read_ids(entries))
    if isinstance(entries, str | bytes):
        raise QueryError(f"expected a list of {what}, got the text {entries!r}; pass [{entries!r}]")
    try:
        return list(entries)
    except TypeError:
        raise QueryError(f"expected a list of {what}, got {entries!r}; pass [{entries!r}]") from None


def _count(value: Any, name: str, least: int) -> int:
    number = whole_number(value)
    if number is None or number < least:
        raise QueryError(f"{name} must be at least {least}, a whole number, got {value!r}")
    return number


def _check_share(value: Any, what: str) -> None:
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise QueryError(f"{what} must be between 0 and 1, got {value!r}")

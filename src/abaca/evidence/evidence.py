"""Evidence: a handful of fitted numbers that correct a network by what can be counted.

    item of the history:   z' = A z + β + Σ_f b_f[bucket_f(x)] + a' log(1 + s r_x)
    every other item:      z' = T z                            + a  log(1 + s r_x)

z is the network's logit, the buckets are of `habits`, r is of `transitions`. As base + overrides + additions: every
logit is scaled by T, and the items named here become factor · logit + bonus. The numbers are fitted after training on
held-out targets (`fit`). Counts come from training rows alone, so a target's own pair is never among them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from abaca.evidence.habits import EDGES, Clock, codes, describe, habits_of
from abaca.evidence.transitions import Followers, Transitions
from abaca.histories import Bools, EventTypes, Floats, Histories, Ints
from abaca.nn.logits import Additions, Scores, adjust

MOST_FOLLOWERS = 100
"""Followers of a history that get a bonus."""
LARGEST, LARGEST_TIME = 1e12, 1e20
"""A saved number, or a time in the unit of a log, that is as large is not one of evidence."""


@dataclass(frozen=True)
class Weights:
    """The fitted numbers of one kind of habits."""

    scale: float = 1.0
    """T: of the network's logit outside the history."""
    own_scale: float = 1.0
    """A: of the network's logit of the history's items."""
    own: float = 0.0
    """β: of every item of the history."""
    habits: tuple[float, ...] = ()
    """b: of each bucket of each habit, one habit after another."""
    followers: float = 0.0
    """a: of followers outside the history."""
    own_followers: float = 0.0
    """a': of the history's items that are followers."""
    sharpness: float = 1.0
    """s: how early log(1 + s r) turns from linear to logarithmic."""

    def by_habit(self, habits: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """The numbers of each habit's buckets."""
        found, first = {}, 0
        for name in habits if self.habits else ():
            size = len(EDGES[name]) + 1
            found[name] = self.habits[first : first + size]
            first += size
        return found


class Claims(NamedTuple):
    """The items of some histories that evidence speaks of, one history after another; an item once per history."""

    rows: Ints  # (P,) ascending
    items: Ints  # (P,)
    own: Bools  # (P,) it is an item of the history
    codes: Ints  # (P, F) the buckets of its habits; 0 for an item outside the history
    strength: Floats  # (P,) r; 0 for none


class Reading(NamedTuple):
    """What evidence says of some histories."""

    weights: Weights
    claims: Claims
    terms: dict[str, Floats]  # (P,) what each part adds to the logit of each claim


@dataclass(frozen=True, eq=False)
class Evidence:
    """The counts and the fitted numbers."""

    parts: tuple[str, ...]
    """What is read: habits, followers."""
    window: int
    """Items that the network reads."""
    clock: Clock
    transitions: Transitions
    weights: dict[str, Weights]
    """By kind of habits; the kind follows from what is known of a history."""
    types: EventTypes | None = None
    """The types of events that are told apart."""
    fade: float = 1.0
    """f: how soon a history fades, as followers see it."""

    def habits(self, kind: str) -> tuple[str, ...]:
        """The names of the habits of a kind."""
        return habits_of(kind, self.types)

    def kind(self, histories: Histories) -> str:
        """The best fitted kind for what is known of the histories."""
        kind = self.clock.kind(histories)
        return kind if kind in self.weights else "order"

    def followers(self, histories: Histories) -> Followers:
        """The strongest followers of the histories; none where they are not read."""
        if "followers" in self.parts:
            return self.transitions.after(histories, MOST_FOLLOWERS, self.fade)
        return Followers(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))

    def claims(self, histories: Histories, kind: str, followers: Followers | None = None) -> Claims:
        """The items of the histories, and their followers, which are the same for every kind."""
        catalogue = len(self.transitions.counts)
        owned = describe(histories, self.window, self.clock, kind, self.types)
        followers = self.followers(histories) if followers is None else followers
        own_keys, keys = owned.rows * catalogue + owned.items, followers.rows * catalogue + followers.items
        is_own = np.isin(keys, own_keys, assume_unique=True)
        strength = np.zeros(len(own_keys))
        strength[np.searchsorted(own_keys, keys[is_own])] = followers.strength[is_own]
        new = ~is_own
        buckets = codes(owned, self.habits(kind))
        rows = np.concatenate([owned.rows, followers.rows[new]])
        order = np.argsort(rows, kind="stable")
        return Claims(
            rows[order],
            np.concatenate([owned.items, followers.items[new]])[order],
            (np.arange(len(rows)) < len(owned.rows))[order],
            np.concatenate([buckets, np.zeros((int(new.sum()), buckets.shape[1]), np.int64)])[order],
            np.concatenate([strength, followers.strength[new]])[order],
        )

    def read(self, histories: Histories) -> Reading:
        """The claims of the histories and their terms."""
        kind = self.kind(histories)
        weights, claims = self.weights[kind], self.claims(histories, kind)
        return Reading(weights, claims, self.terms(claims, weights, kind))

    def apply(self, scores: Scores, histories: Histories) -> Scores:
        """Scores with the evidence of the histories, a row each."""
        return self.adjusted(scores, self.read(histories))

    def adjusted(self, scores: Scores, reading: Reading) -> Scores:
        """Scores with the evidence that was read, a row for each history."""
        weights, claims, terms = reading
        factor = np.where(claims.own, weights.own_scale / weights.scale, 1.0)
        bonus = sum(terms.values(), np.zeros(len(claims.rows)))
        return _adjusted(scores, weights.scale, claims, factor, bonus)

    def terms(self, claims: Claims, weights: Weights, kind: str) -> dict[str, Floats]:
        """What each part adds to the logits (P,)."""
        found = {}
        if "habits" in self.parts:
            found["own"] = np.where(claims.own, weights.own, 0.0)
            table = np.asarray(weights.habits)
            for column, name in enumerate(self.habits(kind)):
                found[name] = np.where(claims.own, table[claims.codes[:, column]], 0.0)
        if "followers" in self.parts:
            share = np.where(claims.own, weights.own_followers, weights.followers)
            found["followers"] = share * np.log1p(weights.sharpness * claims.strength)
        return found

    def check(self, items: int) -> None:
        """Refuse numbers that do not fit together, or not a catalogue of so many items."""
        if not self.parts:
            raise ValueError("the evidence has no parts")
        for kind, weights in self.weights.items():
            buckets = sum(len(EDGES[name]) + 1 for name in self.habits(kind))
            if "habits" in self.parts and len(weights.habits) != buckets:
                raise ValueError(f"the evidence of {kind} has {len(weights.habits)} numbers for {buckets} buckets")
            numbers = {**vars(weights), "habits": 0.0}.values()
            large = [number for number in (*numbers, *weights.habits, self.fade) if not abs(number) < LARGEST]
            if large or not all(abs(time) < LARGEST_TIME for time in self.clock):
                raise ValueError(f"the evidence of {kind} has numbers of {LARGEST:g} and more")
            if weights.scale <= 0 or weights.own_scale <= 0 or weights.sharpness < 0:
                raise ValueError(f"the evidence of {kind} has a scale of 0 or less, or a sharpness below 0")
        self.transitions.check(items)

    def to_json(self) -> dict[str, Any]:
        """The fitted numbers; the counts are tensors."""
        weights = {
            kind: {**asdict(found), "habits": {k: list(row) for k, row in found.by_habit(self.habits(kind)).items()}}
            for kind, found in self.weights.items()
        }
        types = {} if self.types is None else {"types": self.types.to_json()}
        return {
            "parts": list(self.parts),
            "window": self.window,
            "clock": list(self.clock),
            "weights": weights,
            "fade": self.fade,
            **types,
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """The counts."""
        return {name: torch.from_numpy(np.asarray(array)) for name, array in vars(self.transitions).items()}

    @classmethod
    def of(cls, document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> "Evidence":
        """Evidence from `to_json` and `tensors`."""
        weights = {
            kind: Weights(**{**found, "habits": tuple(value for row in found["habits"].values() for value in row)})
            for kind, found in document["weights"].items()
        }
        counts = Transitions(**{name: tensor.numpy() for name, tensor in tensors.items()})
        gap, second = document["clock"]
        parts, clock = tuple(document["parts"]), Clock(float(gap), float(second))
        types = EventTypes.of(document["types"]) if "types" in document else None
        return cls(parts, document["window"], clock, counts, weights, types, float(document.get("fade", 1.0)))


def _adjusted(scores: Scores, scale: float, claims: Claims, factor: Floats, bonus: Floats) -> Scores:
    """Scores with the additions of the claims as rectangles."""
    count = np.bincount(claims.rows, minlength=scores.rows)
    place = np.arange(len(claims.rows)) - np.repeat(np.cumsum(count) - count, count)
    shape = scores.rows, int(count.max(initial=0))
    ids = np.full(shape, scores.catalogue, dtype=np.int64)
    factors, bonuses = np.ones(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    ids[claims.rows, place], factors[claims.rows, place], bonuses[claims.rows, place] = claims.items, factor, bonus
    device = getattr(scores, "table", torch.empty(0)).device
    additions = Additions(*(torch.from_numpy(array).to(device) for array in (ids, factors, bonuses)))
    return adjust(scores, torch.full((scores.rows,), scale, device=device), additions)

"""Evidence for an exported graph: what `Evidence.apply` does, in torch operations that a tracer can follow.

Histories are a rectangle here, whole and oldest first, −1 after their end. No shape depends on a value. Numbers are
float64 as in `habits` and `transitions`, so that buckets and ties fall alike.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from abaca.evidence.evidence import MOST_FOLLOWERS, Evidence
from abaca.evidence.habits import EDGES, MOST_ITEMS, NEAR
from abaca.evidence.transitions import REACH, UNIT, Transitions
from abaca.histories import Histories, Windows
from abaca.nn.logits import Additions, Logits

KNOWN = (Histories.of([[0]]), Histories.of([[0]], [[0.0]]), Histories.of([[0]], [[0.0]], [0.0]))
"""What can be known of a history: its order, also its times, also the moment of the query."""

NUMBERS = ("scale", "own_scale", "followers", "own_followers", "sharpness")
"""The fitted numbers but for those of the habits."""


class EvidenceGraph(nn.Module):
    """The additions of a batch of whole histories."""

    numbers: Tensor  # (3, 5) NUMBERS for each entry of KNOWN

    def __init__(self, evidence: Evidence) -> None:
        super().__init__()
        kinds = [evidence.kind(known) for known in KNOWN]
        self.reads_times, self.reads_now = kinds != ["order"] * len(KNOWN), kinds[-1] == "now"
        self.habits = Habits(evidence, kinds)
        self.followers = Strongest(evidence.transitions, evidence.fade) if "followers" in evidence.parts else None
        numbers = [[getattr(evidence.weights[kind], name) for name in NUMBERS] for kind in kinds]
        self.register_buffer("numbers", torch.tensor(numbers, dtype=torch.float64))

    def forward(self, scores: Logits, histories: Windows[Tensor]) -> tuple[Logits, Tensor]:
        """Scores with the evidence of the histories, and the distinct items of each (B, L), V elsewhere."""
        at, known = Places.of(histories), self._known(histories)
        scale, own_scale, a, own_a, sharpness = self.numbers[known].unsqueeze(1).unbind(2)  # (B, 1) each
        described = at.described()
        own = histories.items.where(described, scores.catalogue)  # (B, L)
        ids = own
        factor = (own_scale / scale).where(described, 1.0)
        bonus = self.habits(histories, at, known).where(described, 0.0)
        if self.followers is not None:
            items, strength = self.followers(histories)  # (B, 100)
            match = own.unsqueeze(2) == items.unsqueeze(1)  # (B, L, 100)
            bonus = bonus + own_a * torch.log1p(sharpness * (match * strength.unsqueeze(1)).sum(2))
            ids = torch.cat([own, torch.where(match.any(1), scores.catalogue, items)], 1)
            factor = torch.cat([factor, torch.ones_like(strength)], 1)
            bonus = torch.cat([bonus, a * torch.log1p(sharpness * strength)], 1)
        additions = Additions(ids, factor.to(scores.table), bonus.to(scores.table))
        final = scores.adjusted(scale.squeeze(1).to(scores.table), additions)
        return final, histories.items.where(at.last, scores.catalogue)

    def _known(self, histories: Windows[Tensor]) -> Tensor:
        """What is known of each history (B,), as a place in KNOWN; a time that is not known is NaN."""
        with_times = torch.zeros_like(histories.positions.squeeze(1))
        if histories.times is not None:
            with_times = (~(histories.times.isnan() & (histories.items >= 0)).any(1)).long()
        with_now = 0 if histories.now is None else (~histories.now.squeeze(1).isnan()).long()
        return with_times * (1 + with_now)


class Places(NamedTuple):
    """Where the items of histories occur; a place after the end holds none."""

    same: Tensor  # (B, L, L) two places hold the same item
    last: Tensor  # (B, L) the item of this place does not come again
    end: Tensor  # (B, 1) the latest place; 0 for an empty history

    @classmethod
    def of(cls, histories: Windows[Tensor]) -> "Places":
        items = histories.items
        present = items >= 0
        same = (items.unsqueeze(2) == items.unsqueeze(1)) & present.unsqueeze(1)
        again = torch.triu(same, diagonal=1).any(2)
        return cls(same, present & ~again, histories.positions.clamp_min(0))

    def described(self) -> Tensor:
        """Mask of the last occurrences of the latest distinct items (B, L)."""
        later = self.last.sum(1, keepdim=True) - self.last.long().cumsum(1)
        return self.last & (later < MOST_ITEMS)

    def counts(self, marks: list[Tensor]) -> tuple[Tensor, ...]:
        """The sum of each of the marks (B, L) over all places of a place's item (B, L)."""
        return (self.same.double() @ torch.stack(marks, 2).double()).unbind(2)


class Habits(nn.Module):
    """β + Σ_f b_f[bucket_f(x)] of the item whose last occurrence a place holds."""

    table: Tensor  # (3, buckets) b for each entry of KNOWN
    own: Tensor  # (3, 1) β

    def __init__(self, evidence: Evidence, kinds: list[str]) -> None:
        super().__init__()
        self.window, (self.gap, self.second) = evidence.window, evidence.clock
        self.names = max((evidence.habits(kind) for kind in kinds), key=len)
        self.types = evidence.types
        total = sum(len(EDGES[name]) + 1 for name in self.names)
        table = np.zeros((len(kinds), total))  # the habits of a kind are the first of those of the next
        own = np.zeros((len(kinds), 1))
        for row, kind in enumerate(kinds if "habits" in evidence.parts else ()):
            weights = evidence.weights[kind]
            table[row, : len(weights.habits)], own[row] = weights.habits, weights.own
        self.register_buffer("table", torch.from_numpy(table))
        self.register_buffer("own", torch.from_numpy(own))
        for place, name in enumerate(self.names):
            self.register_buffer(f"edges_{place}", torch.tensor(EDGES[name], dtype=torch.float64))

    def forward(self, histories: Windows[Tensor], at: Places, known: Tensor) -> Tensor:
        values, table, first = self._values(histories, at), self.table[known], 0
        bonus = self.own[known].expand(histories.items.shape)
        for place, name in enumerate(self.names):
            bucket = (values[name].unsqueeze(2) >= self.get_buffer(f"edges_{place}")).sum(2)  # (B, L)
            bonus = bonus + table.gather(1, first + bucket)
            first += len(EDGES[name]) + 1
        return bonus

    def _values(self, histories: Windows[Tensor], at: Places) -> dict[str, Tensor]:
        """The value of each habit (B, L), as in `describe`."""
        items, times, now = histories.items, histories.times, histories.now
        after = F.pad(items, (1, 0), value=-1)[:, :-1] == items.gather(1, at.end)  # right after the latest item
        marks = [torch.ones_like(after), after]
        if self.types is not None:
            assert histories.types is not None
            marks.append((histories.types.unsqueeze(2) == torch.tensor(self.types.targets)).any(2))
        count, follow, *taken = at.counts(marks)
        place = torch.arange(items.shape[1], device=items.device)
        first = at.same.int().argmax(2)
        since = (at.end + 1 - place).double()
        values = {
            "count": count,
            "since": since,
            "follow": follow,
            "rhythm": _rhythm(since, count, (place - first).double()),
            "window": (since <= self.window).double(),
        }
        if histories.types is not None and taken:
            values |= {"type": histories.types.double(), "taken": taken[0]}
        if times is None:
            return values
        moment = times.gather(1, at.end)  # (B, 1)
        if now is not None:
            moment = now.where(now > moment, moment)  # a moment that is not known is NaN
            apart = (moment - times).abs() / self.second
            hour, week, near = at.counts([_near(apart, *NEAR[name]) for name in ("hour", "week", "at hour")])
            values |= {"hour": hour / count, "week": week / count, "at hour": near}
        passed = (moment - times).clamp_min(0)
        rhythm = _rhythm(passed, count, times - times.gather(1, first))
        return values | {"time": passed / self.gap, "time rhythm": rhythm}


class Strongest(nn.Module):
    """The strongest followers of each history: items (B, 100), V for none, and r; equal strengths go by item."""

    starts: Tensor  # (V,) where the followers of each item begin
    width: Tensor  # (V,) how many they are
    root: Tensor  # (V,) √count
    items: Tensor  # (P + 1,) the followers; the last is none
    units: Tensor  # (P + 1,) S in units of 1/2520
    distance: Tensor  # (20,)
    faded: Tensor  # (20,) distance to the power f

    def __init__(self, transitions: Transitions, fade: float) -> None:
        super().__init__()
        self.catalogue, width = len(transitions.counts), np.diff(transitions.starts)
        self.longest = max(1, int(width.max(initial=0)))
        items, units = np.append(transitions.followers, self.catalogue), np.append(transitions.units, 0)
        arrays = {
            "starts": transitions.starts[:-1],
            "width": width,
            "root": np.sqrt(np.maximum(transitions.counts, 1)),
            "items": items.astype(np.int32),
            "units": units.astype(np.int32) if units.max() <= np.iinfo(np.int32).max else units,
            "distance": np.arange(1, REACH + 1),
            "faded": np.arange(1, REACH + 1) ** fade,
        }
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array))

    def forward(self, histories: Windows[Tensor]) -> tuple[Tensor, Tensor]:
        place = histories.positions + 1 - self.distance  # (B, 20)
        source = histories.items.gather(1, place.clamp_min(0)).clamp_min(0)
        step = torch.arange(self.longest, device=source.device)
        inside = (step < self.width[source].unsqueeze(2)) & (place >= 0).unsqueeze(2)  # (B, 20, longest)
        at = (self.starts[source].unsqueeze(2) + step).where(inside, self.items.shape[0] - 1)
        part = self.units[at] / (UNIT * self.faded * self.root[source]).unsqueeze(2)
        strength = part.new_zeros(part.shape[0], self.catalogue + 1)
        strength = strength.scatter_add(1, self.items[at].long().flatten(1), part.flatten(1))
        best = strength[:, :-1].topk(min(MOST_FOLLOWERS, self.catalogue), dim=1)
        return best.indices.where(best.values > 0, self.catalogue), best.values


def latest(histories: Windows[Tensor], window: int) -> Windows[Tensor]:
    """The last `window` items of whole histories."""
    size = torch.sym_min(histories.items.shape[1], window)  # type: ignore[no-untyped-call]
    begin = (histories.positions + 1 - window).clamp_min(0)  # (B, 1)
    places = begin + torch.arange(size, device=begin.device)
    items, types, times = (
        None if part is None else part.gather(1, places) for part in (histories.items, histories.types, histories.times)
    )
    assert items is not None
    return Windows(items, histories.positions - begin, times, histories.now, types)


def _rhythm(since: Tensor, count: Tensor, span: Tensor) -> Tensor:
    """As in `habits`."""
    repeated = (count > 1) & (span > 0)
    return (since * (count - 1) / span.where(repeated, 1.0)).where(repeated, -1.0)


def _near(apart: Tensor, period: float, width: float) -> Tensor:
    """How near a time is to the same moment of a period, as in `habits`; 0 for a time that is not known."""
    phase = apart % period
    nearness = torch.exp(-0.5 * (torch.minimum(phase, period - phase) / width) ** 2)
    return nearness.where(~apart.isnan(), 0.0)

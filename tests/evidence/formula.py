"""Evidence written like its formula, one item at a time."""

import math
from collections.abc import Sequence

DAY, HOUR = 86_400.0, 3_600.0


def followers(rows: Sequence[Sequence[int]], history: Sequence[int], catalogue: int, fade: float = 1.0) -> list[float]:
    """r of every item: transitions of the rows, within ten places, over the last twenty items of the history."""
    counted = [[0.0] * catalogue for _ in range(catalogue)]
    count = [0] * catalogue
    for row in rows:
        for place, item in enumerate(row):
            count[item] += 1
            for distance in range(1, 11):
                if place + distance < len(row):
                    counted[item][row[place + distance]] += 1 / distance
    strength = [0.0] * catalogue
    for back, source in enumerate(reversed(history[-20:]), start=1):
        for item in range(catalogue):
            strength[item] += counted[source][item] / (back**fade * math.sqrt(max(count[source], 1)))
    return strength


def of_types(history: Sequence[int], item: int, types: Sequence[int], targets: Sequence[int]) -> dict[str, float]:
    """The habits of an item that need types: of its last event, and how often it was taken."""
    own = [kind for other, kind in zip(history, types, strict=True) if other == item]
    return {"type": float(own[-1]), "taken": float(sum(kind in targets for kind in own))}


def habits(
    history: Sequence[int], item: int, window: int, times: Sequence[float] | None = None, now: float | None = None
) -> dict[str, float]:
    """The value of each habit of an item of the history; times in gaps of 1."""
    places = [place for place, other in enumerate(history) if other == item]
    first, last, count = places[0], places[-1], len(places)
    since = float(len(history) - last)
    found = {
        "count": float(count),
        "since": since,
        "follow": float(sum(history[p - 1] == history[-1] for p in places if p > 0)),
        "rhythm": since * (count - 1) / (last - first) if count > 1 else -1.0,
        "window": float(since <= window),
    }
    if times is None:
        return found
    moment = times[-1] if now is None else max(now, times[-1])
    passed, span = moment - times[last], times[last] - times[first]
    found["time"] = passed
    found["time rhythm"] = passed * (count - 1) / span if count > 1 and span > 0 else -1.0
    if now is not None:
        for name, period, width in (("hour", DAY, 1.5), ("week", 7 * DAY, 2.0), ("at hour", DAY, 1.0)):
            near = 0.0
            for place in places:
                phase = abs(moment - times[place]) % period
                near += math.exp(-((min(phase, period - phase) / HOUR / width) ** 2) / 2)
            found[name] = near if name == "at hour" else near / count
    return found

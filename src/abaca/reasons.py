"""Reasons that a person understands: the term that argues most for an item, in words."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from abaca.evidence.explain import FOLLOWERS, NETWORK, OWN, Explanation
from abaca.evidence.habits import DAY, HOUR
from abaca.histories import Floats, Histories, Ints
from abaca.similar import nearest

LEAST = 0.1
"""A term below it changes the odds of an item by less than a tenth, and is not named."""
FEW = 3
"""From this number on, times are often, and gaps are a rhythm."""
NAMED = 2
"""Items of the history that are named as alike."""

SPANS = (("year", 365.25 * DAY), ("day", DAY), ("hour", HOUR), ("minute", 60.0), ("second", 1.0))
PERIODS = {"hour": (DAY, "at about this hour"), "week": (7 * DAY, "at about this hour of the week")}

Chosen = list[list[int]]
"""The chosen items of each history."""


class Reason(NamedTuple):
    """Why an item was chosen."""

    terms: Mapping[str, float]
    """The parts of its logit; they add up to it."""
    argued_by: str | None
    """What argues most for it: habits, followers, network; None without evidence."""
    words: str


class Past(NamedTuple):
    """One history as a person knows it."""

    items: Ints
    """Negative where an item is not known."""
    seconds: Floats | None
    """When each interaction happened."""
    now: float | None


def leading(terms: Mapping[str, float]) -> str:
    """The term that argues most for an item: of evidence where it matters, else the network.

    The bonus that every item of a history has is not specific, so that a habit is named in its place.
    """
    found = {name: value for name, value in terms.items() if name != NETWORK and value >= LEAST}
    best = max(found, key=found.__getitem__, default=NETWORK)
    habits = found.keys() - {OWN, FOLLOWERS}
    return best if best in (NETWORK, FOLLOWERS) or not habits else max(habits, key=found.__getitem__)


def reasons(why: Explanation, chosen: Chosen, pasts: list[Past], name: Callable[[int], str]) -> list[list[Reason]]:
    """The reason for each chosen item of each history, `name` giving what an item is called."""
    terms = _rows(why.terms, chosen)
    if why.evidence is None:
        return [[Reason(each, None, "") for each in row] for row in terms]
    leads = [[leading(each) for each in row] for row in terms]
    words = _follower_words(why, chosen, leads, name) | _alike_words(why, chosen, leads, name)
    found = []
    for row, items in enumerate(chosen):
        own = _owned(why.histories[row], pasts[row], items, leads[row], name)
        said = [words.get((row, place)) or own[place] for place in range(len(items))]
        argued = [lead if lead in (NETWORK, FOLLOWERS) else "habits" for lead in leads[row]]
        found.append([Reason(*each) for each in zip(terms[row], argued, said, strict=True)])
    return found


def span(seconds: float) -> str:
    """A time for people: in the largest unit of which there are two."""
    for unit, size in SPANS:
        count = round(seconds / size)
        if seconds >= 2 * size:
            return f"{count} {unit}s"
    return "1 second" if seconds >= 1 else "a moment"


def seen(past: Past, item: int) -> str:
    """How often an item was seen, when last, and about how often; in time where times are known."""
    at = np.flatnonzero(past.items == item)
    count, ago = len(at), int(len(past.items) - at[-1])
    many = "once" if count == 1 else f"{count} times"
    last = "last " if count > 1 else ""
    if past.seconds is None:
        when = f"{last and 'last seen '}{ago} items ago"
        gap = float(at[-1] - at[0]) / max(count - 1, 1)
        every = f"about every {round(gap)} items" if gap >= 1.5 else "several in a row"
    else:
        when = last + _when(past, float(past.seconds[at[-1]]))
        gap = float(past.seconds[at[-1]] - past.seconds[at[0]]) / max(count - 1, 1)
        every = f"about every {span(gap)}" if gap >= 1 else ""
    when = "the latest item" if ago == 1 and past.now is None else when
    return ", ".join(part for part in (f"seen {many}", when, every if count >= FEW else "") if part)


def _when(past: Past, last: float) -> str:
    """How long ago something was, from now or from the latest item."""
    assert past.seconds is not None
    moment = float(past.seconds[-1]) if past.now is None else max(past.now, float(past.seconds[-1]))
    passed = max(moment - last, 0.0)
    if past.now is not None:
        return f"{span(passed)} ago"
    return f"{span(passed)} before the latest item" if passed >= 1 else "with the latest item"


def _rows(terms: dict[str, Floats], chosen: Chosen) -> list[list[dict[str, float]]]:
    """The terms of each item, without those that do not apply."""
    columns = {name: values.tolist() for name, values in terms.items()}
    return [
        [
            {name: values[row][place] for name, values in columns.items() if values[row][place] == values[row][place]}
            for place in range(len(items))
        ]
        for row, items in enumerate(chosen)
    ]


def _owned(known: Ints, past: Past, items: list[int], leads: list[str], name: Callable[[int], str]) -> list[str]:
    """The words for items whose habits argue most, and for the others of the history."""
    said = []
    for item, lead in zip(items, leads, strict=True):
        words = ""
        if lead == "follow":
            words = _after(known, item, name)
        elif lead in PERIODS:
            words = _at_hour(past, item, lead)
        said.append(words or (seen(past, item) if (past.items == item).any() else "fits the history as a whole"))
    return said


def _after(known: Ints, item: int, name: Callable[[int], str]) -> str:
    """How often an item came right after the latest one, in this history."""
    times = int(((known[:-1] == known[-1]) & (known[1:] == item)).sum())
    often = f"often after “{name(int(known[-1]))}” ({times} times)"
    return often if times >= 2 else f"seen after “{name(int(known[-1]))}” before" if times else ""


def _at_hour(past: Past, item: int, lead: str) -> str:
    """How many of an item's occurrences were at about this hour."""
    period, words = PERIODS[lead]
    if past.seconds is None or past.now is None:
        return ""
    phase = np.abs(max(past.now, float(past.seconds[-1])) - past.seconds[past.items == item]) % period
    near, count = int((np.minimum(phase, period - phase) <= HOUR).sum()), len(phase)
    if not near:
        return ""
    return f"seen once, {words}" if count == 1 else f"seen {count} times, {near} of them {words}"


Words = dict[tuple[int, int], str]
"""Words by the row and the place of an item."""


def _follower_words(why: Explanation, chosen: Chosen, leads: list[list[str]], name: Callable[[int], str]) -> Words:
    """The items that the followers follow."""
    at = _places(leads, FOLLOWERS)
    assert why.evidence is not None
    rows, items = (np.array(column, dtype=np.int64) for column in ([r for r, _ in at], [chosen[r][p] for r, p in at]))
    found = why.evidence.transitions.sources(why.histories, rows, items)
    said = {}
    for place, item, source, times in zip(at, items.tolist(), *(part.tolist() for part in found), strict=True):
        count, itself = round(times), source == item
        if count >= FEW:
            said[place] = f"often {'again soon' if itself else f'follows “{name(source)}”'} ({count:,} times)"
        else:
            said[place] = "came again soon before" if itself else f"followed “{name(source)}” before"
    return said


def _alike_words(why: Explanation, chosen: Chosen, leads: list[list[str]], name: Callable[[int], str]) -> Words:
    """The items of the history that are nearest to what the network alone explains."""
    assert why.evidence is not None
    said = {}
    for row, items in enumerate(chosen):
        read = np.unique(why.histories[row][-why.evidence.window :])
        own = set(why.histories[row].tolist())
        places = [place for place, lead in enumerate(leads[row]) if lead == NETWORK and items[place] not in own]
        if places:
            near = nearest(why.table, np.array([items[place] for place in places]), read, NAMED)
            for place, others in zip(places, near, strict=True):
                if others:
                    said[row, place] = f"like {' and '.join(f'“{name(other)}”' for other in others)} of your history"
    return said


def _places(leads: list[list[str]], lead: str) -> list[tuple[int, int]]:
    return [(row, place) for row, names in enumerate(leads) for place, each in enumerate(names) if each == lead]


def pasts_of(histories: Histories, per_second: float | None) -> list[Past]:
    """Each history with its times in seconds; `per_second` is how many units of time a second has, where known."""
    times, now = histories.times, histories.now
    seconds = None if times is None or per_second is None else times / per_second
    moments = None if now is None or per_second is None else (now / per_second).tolist()
    found = []
    for row, (begin, end) in enumerate(zip(histories.offsets[:-1], histories.offsets[1:], strict=True)):
        if seconds is None:
            found.append(Past(histories.items[begin:end], None, None))
        else:
            moment = None if moments is None else moments[row]
            found.append(Past(histories.items[begin:end], seconds[begin:end], moment))
    return found

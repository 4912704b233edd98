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
AT_HOUR = "at about this hour"
PERIODS = {"hour": (DAY, AT_HOUR), "at hour": (DAY, AT_HOUR), "week": (7 * DAY, f"{AT_HOUR} of the week")}

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

    length: int
    places: Mapping[int, list[int]]
    """Where each item is, ascending."""
    seconds: Floats | None = None
    """When each interaction happened."""
    now: float | None = None


def pasts_of(histories: Histories, per_second: float | None) -> list[Past]:
    """Each history with its times in seconds; `per_second` is how many units of time a second has, where known."""
    times, now = histories.times, histories.now
    seconds = None if times is None or per_second is None else times / per_second
    moments = None if now is None or per_second is None else (now / per_second).tolist()
    found = []
    for row, (begin, end) in enumerate(zip(histories.offsets[:-1], histories.offsets[1:], strict=True)):
        places: dict[int, list[int]] = {}
        for place, item in enumerate(histories.items[begin:end].tolist()):
            places.setdefault(item, []).append(place)
        if seconds is None:
            found.append(Past(int(end - begin), places))
        else:
            found.append(Past(int(end - begin), places, seconds[begin:end], None if moments is None else moments[row]))
    return found


def leading(terms: Mapping[str, float]) -> str:
    """The term that argues most for an item: all habits together or followers where they matter, else the network.

    Of the habits the largest is named. What every item of a history gets is not specific, and gives way to it.
    """
    total, habit, most = 0.0, OWN, LEAST
    for name, value in terms.items():
        if name not in (NETWORK, FOLLOWERS):
            total += value
            if name != OWN and value >= most:
                habit, most = name, value
    followers = terms.get(FOLLOWERS, 0.0)
    if max(total, followers) < LEAST:
        return NETWORK
    return habit if total >= followers else FOLLOWERS


def reasons(why: Explanation, chosen: Chosen, pasts: list[Past], name: Callable[[int], str]) -> list[list[Reason]]:
    """The reason for each chosen item of each history, `name` giving what an item is called."""
    terms = _rows(why.terms, chosen)
    if why.evidence is None:
        return [[Reason(each, None, "") for each in row] for row in terms]
    leads = [[leading(each) for each in row] for row in terms]
    words = _follower_words(why, chosen, leads, name)
    found = []
    for row, items in enumerate(chosen):
        known, past = why.histories[row], pasts[row]
        alike = [at for at, item in enumerate(items) if leads[row][at] == NETWORK and item not in past.places]
        words |= _alike_words(why, row, alike, items, name)
        each = []
        for place, (item, lead) in enumerate(zip(items, leads[row], strict=True)):
            said = words.get((row, place)) or _habit_words(known, past, item, lead, name)
            said += "" if lead in (NETWORK, FOLLOWERS) else _type_words(why, row, item)
            each.append(Reason(terms[row][place], lead if lead in (NETWORK, FOLLOWERS) else "habits", said))
        found.append(each)
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
    at = past.places[item]
    count, ago = len(at), past.length - at[-1]
    many = "once" if count == 1 else f"{count} times"
    last = "last " if count > 1 else ""
    if past.seconds is None:
        when = f"{last and 'last seen '}{ago} items ago"
        gap = (at[-1] - at[0]) / max(count - 1, 1)
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
    values = np.stack(list(terms.values()), axis=-1).tolist()  # (B, n, F)
    return [
        [{name: value for name, value in zip(terms, each, strict=True) if value == value} for each in row[: len(items)]]
        for row, items in zip(values, chosen, strict=True)
    ]


def _habit_words(known: Ints, past: Past, item: int, lead: str, name: Callable[[int], str]) -> str:
    """The words for an item of the history; what follows the latest item and hours are told where they lead."""
    words = ""
    if lead == "follow":
        words = _after(known, item, name)
    elif lead in PERIODS:
        words = _at_hour(past, item, lead)
    return words or seen(past, item)


def _type_words(why: Explanation, row: int, item: int) -> str:
    """The type of the last event of an item."""
    types, kinds = None if why.evidence is None else why.evidence.types, why.histories.types
    if types is None or kinds is None:
        return ""
    last = kinds[why.histories.offsets[row] : why.histories.offsets[row + 1]][why.histories[row] == item][-1]
    return f", last event: {types.names[last]}"


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
    phase = np.abs(max(past.now, float(past.seconds[-1])) - past.seconds[past.places[item]]) % period
    near, count = int((np.minimum(phase, period - phase) <= HOUR).sum()), len(phase)
    if not near:
        return ""
    return f"seen once, {words}" if count == 1 else f"seen {count} times, {near} of them {words}"


Words = dict[tuple[int, int], str]
"""Words by the row and the place of an item."""


def _follower_words(why: Explanation, chosen: Chosen, leads: list[list[str]], name: Callable[[int], str]) -> Words:
    """The items that the followers follow."""
    assert why.evidence is not None
    at = [
        (row, place)
        for row, items in enumerate(chosen)
        for place in range(len(items))
        if leads[row][place] == FOLLOWERS
    ]
    rows, items = np.array([row for row, _ in at]), np.array([chosen[row][place] for row, place in at])
    found = why.evidence.transitions.sources(why.histories, rows, items, why.evidence.fade)
    said = {}
    for place, item, source, times in zip(at, items.tolist(), *(part.tolist() for part in found), strict=True):
        count, itself = round(times), source == item
        if count >= FEW:
            often = "taken again soon by users" if itself else f"follows “{name(source)}”"
            said[place] = f"often {often} ({count:,} times)"
        else:
            said[place] = "taken again soon by a user" if itself else f"followed “{name(source)}” before"
    return said


def _alike_words(why: Explanation, row: int, places: list[int], items: list[int], name: Callable[[int], str]) -> Words:
    """The items of a history that are nearest to new ones which the network alone explains."""
    if not places:
        return {}
    assert why.evidence is not None
    read = np.unique(why.histories[row][-why.evidence.window :])
    said = {}
    near = nearest(why.table, np.array([items[place] for place in places]), read, NAMED)
    for place, others in zip(places, near, strict=True):
        like = " and ".join(f"“{name(other)}”" for other in others)
        said[row, place] = f"like {like} of your history" if like else "fits the history as a whole"
    return said

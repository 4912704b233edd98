"""Search for items by id or title, while the user types."""

from bisect import bisect_left
from itertools import accumulate
from typing import Any

from abaca.data.catalogue import Catalogue

MOST_MATCHES = 500
"""Number of the most popular matches that are sorted by fit."""

MOST_READ = 100_000
"""Limit of the items with the longest word that are read for the other words; it bounds the time of a query."""

_END = "\n"


class ItemSearch:
    """An index of ids and titles. Items are numbered by popularity, so the first matches are the most popular."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._names = [self._name(item) for item in range(catalogue.size)]
        self._text = _END + _END.join(self._names) + _END
        self._starts = list(accumulate((len(name) + len(_END) for name in self._names), initial=0))

    def find(self, query: str, n: int) -> list[int]:
        """The n best: the item with this id, titles that are or begin with the query, words that begin so, others."""
        words = query.casefold().split()
        if not words:
            return list(range(min(n, self.catalogue.size)))
        same = self.catalogue.index(query.strip())
        exact = [same] if same is not None and same < self.catalogue.size else []
        matches = sorted(self._matches(words), key=lambda item: self._fit(item, words))
        return list(dict.fromkeys([*exact, *matches]))[:n]

    def _name(self, item: int) -> str:
        id, title = str(self.catalogue.ids[item]), self.catalogue.name(item)
        return " ".join((title if title == id else f"{title} {id}").casefold().split())

    def _matches(self, words: list[str]) -> list[int]:
        """The most popular items whose text has every word."""
        found: list[int] = []
        longest = max(words, key=len)
        place = self._text.find(longest)
        for _ in range(MOST_READ):
            if place < 0 or len(found) == MOST_MATCHES:
                break
            item = bisect_left(self._starts, place) - 1
            if all(word in self._names[item] for word in words):
                found.append(item)
            place = self._text.find(longest, self._starts[item + 1])
        return found

    def _fit(self, item: int, words: list[str]) -> int:
        name, whole = f" {self._names[item]} ", " ".join(words)
        if name.startswith(f" {whole}"):
            return 0 if name.startswith(f" {whole} ") else 1
        return 2 if all(f" {word}" in name for word in words) else 3


def known_item(catalogue: Catalogue, id: str) -> int | None:
    """The item of an id that the model knows."""
    item = catalogue.index(id)
    return item if item is not None and item < catalogue.size else None


def item_json(catalogue: Catalogue, item: int) -> dict[str, Any]:
    """An item as an answer has it."""
    return {"id": catalogue.ids[item], "title": catalogue.name(item)}

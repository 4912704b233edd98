"""Public data sets: what each one is, where its log can be had, and how the paper filters it.

The recipes are in `sources.toml`, so that one can be added or mended without code.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from abaca.errors import SpecError


@dataclass(frozen=True)
class Origin:
    """A place that offers a data set's log, and in which form."""

    layout: str
    """How the log is written, see `data/layouts.py`."""
    address: str | None = None
    """Where the file is downloaded; None if it must be obtained by hand."""
    by_hand: str | None = None
    """How to obtain the file by hand, if it has no address."""
    file: str = ""
    """The file's name; that of the address when not given."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Other files that may replace it, and their layouts."""
    log: tuple[str, ...] = ()
    """What the log may be called inside an archive."""
    titles: str | None = None
    """The file of items' titles inside the archive."""
    bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None
    user: str | None = None
    item: str | None = None
    time: str | None = None
    """Columns of a log that names them; recognised when not given."""

    def __post_init__(self) -> None:
        if (self.address is None) == (self.by_hand is None):
            raise ValueError("got both or neither of address and by_hand, expected one")
        if not self.file:
            name = urlsplit(self.address or "").path.rsplit("/", 1)[-1]
            if not name:
                raise ValueError(f"got no file name in {self.address!r}")
            object.__setattr__(self, "file", name)

    @property
    def layouts(self) -> dict[str, str]:
        """Every file that will do, and its layout."""
        return {self.file: self.layout, **self.also}


@dataclass(frozen=True)
class Recipe:
    """A public data set."""

    name: str
    title: str
    kind: str
    """What its items are."""
    page: str
    licence: str
    cite: str
    publisher: Origin
    recbole: Origin | None = None
    """The same log as an archive in the format of RecBole, which the paper used."""
    note: str | None = None
    repeats: bool = False
    """Whether the paper has it among the data sets with duplicated items."""
    min_user: int = 5
    min_item: int = 1
    """The paper's filters."""
    users: int | None = None
    items: int | None = None
    interactions: int | None = None
    """What the log holds before filters; the paper's Table 1 rounds these to thousands."""

    @property
    def counts(self) -> dict[str, int]:
        """What the log should hold, as far as it is known."""
        known = {"users": self.users, "items": self.items, "interactions": self.interactions}
        return {name: count for name, count in known.items() if count is not None}

    def origin(self, place: str) -> Origin:
        """Where to get it: from its publisher, or as RecBole's archive."""
        offered = {"publisher": self.publisher} | ({"recbole": self.recbole} if self.recbole else {})
        if place not in offered:
            raise SpecError(f"--from {place!r}: {self.name} can be had from {' or '.join(offered)}")
        return offered[place]


@cache
def recipes() -> dict[str, Recipe]:
    """All recipes by name, the paper's twelve first."""
    document = tomllib.loads(files("abaca.data.public").joinpath("sources.toml").read_text(encoding="utf-8"))
    return {name: _recipe(name, entry) for name, entry in document.items()}


def find_recipe(name: str) -> Recipe:
    """The recipe of a name; an error suggests the nearest."""
    known = recipes()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise SpecError(f"no data set is called {name!r}; {hint} (abaca fetch --list)")
    return known[name]


def _recipe(name: str, entry: dict[str, Any]) -> Recipe:
    publisher, recbole = _origin(entry.pop("publisher")), entry.pop("recbole", None)
    return Recipe(name=name, publisher=publisher, recbole=recbole and _origin(recbole), **entry)


def _origin(entry: dict[str, Any]) -> Origin:
    return Origin(**entry | {"log": tuple(entry.get("log", ()))})

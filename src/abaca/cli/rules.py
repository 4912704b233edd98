"""Options that are the rules of a policy, and what rules did as a table."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from abaca.cli import show
from abaca.data.idlist import read_ids
from abaca.errors import QueryError
from abaca.policy import Policy
from abaca.recommendation import Recommendations
from abaca.types import Id

RULES = "Rules of a list"


def _option(name: str, help: str) -> Any:
    return typer.Option(name, rich_help_panel=RULES, help=help)


Repeats = Annotated[str, _option("--repeats", "auto (as learned), exclude or only.")]
MaxRepeatShare = Annotated[float, _option("--max-repeat-share", "Largest share of repeats.")]
MaxRepeats = Annotated[int | None, _option("--max-repeats", "Largest number of repeats.")]
MinNew = Annotated[int, _option("--min-new", "Smallest number of new items, as far as there are some.")]
MinCold = Annotated[
    int, _option("--min-cold", "Smallest number of items that nobody had taken; the model needs features.")
]
Exclude = Annotated[
    list[str] | None,
    _option("--exclude", "Never recommend this one id, or the ids of @FILE (one per line, or a table); repeatable."),
]
Candidates = Annotated[
    list[str] | None,
    _option("--candidates", "Only this one id, or the ids of @FILE, such as the stock; repeatable."),
]
OldCandidates = Annotated[
    list[str] | None, typer.Option("--candidate", hidden=True, help="The old name of --candidates.")
]
CooldownOption = Annotated[
    list[str] | None,
    _option(
        "--cooldown",
        "Not within this time of an item's last occurrence: '7 days', '5 items', '7 days of buy'; repeatable.",
    ),
]
AtMost = Annotated[
    list[str] | None,
    _option("--at-most", "COLUMN=N: at most N items of each value; COLUMN=VALUE=N: of one value; repeatable."),
]
AtLeast = Annotated[
    list[str] | None,
    _option("--at-least", "COLUMN=VALUE=N: at least N items of a value, as far as there are some; repeatable."),
]
BoostOption = Annotated[list[str] | None, _option("--boost", "ID=X: add X to the logit of an id; repeatable.")]
BoostCategory = Annotated[
    list[str] | None, _option("--boost-category", "COLUMN=VALUE=X: add X to the logits of a category; repeatable.")
]
Diversity = Annotated[
    float, _option("--diversity", "Strength of maximal marginal relevance on item vectors, 0 to 1; 0 is off.")
]
ExplainRules = Annotated[bool, _option("--explain-rules", "List what each rule removed or moved.")]


def ids(given: list[str] | None) -> list[Id] | None:
    """The ids of an option; @FILE is replaced by the ids of a file."""
    if given is None:
        return None
    return [id for entry in given for id in (read_ids(Path(entry[1:])) if entry.startswith("@") else [entry])]


def stock(given: list[str] | None) -> list[Id] | None:
    """The ids of --candidates; lists without any are refused, since nothing could be recommended."""
    found = ids(given)
    if found == []:
        raise QueryError(f"{', '.join(one.removeprefix('@') for one in given or ())} has no ids: nothing is left")
    return found


def warn_of_commas(index: Callable[[Id], int | None], policy: Policy) -> None:
    """Warn of an unknown id that looks like several."""
    for given in (policy.exclude, policy.candidates or ()):
        assert isinstance(given, tuple)
        for id in given:
            if "," in str(id) and index(id) is None:
                show.warn(f"'{id}' is one id, which the model does not know; give the option several times, or @FILE")


def effects(answer: Recommendations) -> Table:
    """What each rule removed or moved."""
    shown = Table(title="rules", title_justify="left", header_style="bold")
    for name in ("rule", "removed", "moved up", "note"):
        shown.add_column(name)
    for effect in answer.rules:
        lists = (", ".join(map(str, each)) for each in (effect.removed, effect.moved))
        note = "; ".join([f"{effect.short} short"] * bool(effect.short) + [effect.note] * bool(effect.note))
        shown.add_row(*map(escape, (effect.rule, *lists, note)))
    return shown

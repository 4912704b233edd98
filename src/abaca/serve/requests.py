"""Requests, as the OpenAPI document describes them; `schemas` has the answers."""

import time
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from abaca.data.moments import Moment
from abaca.serve import rules
from abaca.serve.feedback import Kind
from abaca.serve.rules import LONGEST_ID as LONGEST_ID
from abaca.serve.rules import MOST_IDS as MOST_IDS
from abaca.serve.rules import MOST_N as MOST_N
from abaca.serve.rules import Ids
from abaca.serve.times import (
    LARGEST_SECONDS,
    BodySecondsField,
    NowField,
    SecondsField,
    TimesField,
    check_each,
    without_default,
)
from abaca.types import Id

MOST_HISTORIES = 1000
MOST_ITEMS = 50_000
"""Limit of the items in all answers to one request."""
MOST_EVENTS = 1000
MOST_FOUND = 100
MOST_NEW_ITEMS, MOST_COLUMNS = 1000, 1000
AHEAD = 86_400.0
"""Seconds that the time of an event may be ahead of the server's clock."""

_Text = Annotated[rules.Text, Field(min_length=1)]
ItemId = Annotated[Annotated[int, Field(strict=True)] | _Text, BeforeValidator(rules.whole_id)]
_InAddress = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00\n]*$")]
UserId = Annotated[Annotated[int, Field(strict=True)] | _InAddress, BeforeValidator(rules.whole_id)]

Found = Annotated[int, Field(ge=1, le=MOST_FOUND, description="Number of results.")]
Words = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
TypeName = Annotated[str, Field(max_length=LONGEST_ID)]
ModelName = Annotated[
    str,
    Field(max_length=LONGEST_ID, description="Name of the model; by default the user's with --split, else the first."),
]


class UserAsk(rules.RuleFields):
    """Options of recommendations for a user whose history is stored, given in the address."""

    model: ModelName = ""
    now: SecondsField = None


class UserRules(rules.ListedRules):
    """Options of recommendations for a user whose history is stored, given in the body."""

    model_config = ConfigDict(strict=True)

    model: ModelName = ""
    now: BodySecondsField = None


class Ask(rules.ListedRules, BaseModel):
    """One history or several, and what may be recommended. Values are not converted."""

    model_config = ConfigDict(
        strict=True,
        json_schema_extra={
            "oneOf": [{"required": ["history"]}, {"required": ["histories"]}],
            "examples": [
                {"history": ["milk", "bread", "milk"], "n": 5, "repeats": "auto"},
                {"history": ["milk", "bread"], "times": ["2024-01-29", "2024-01-31"], "now": "2024-02-05T18:30:00Z"},
            ],
        },
    )

    model: ModelName = ""
    user: Annotated[
        UserId,
        Field(description="Whose history it is: with --split it chooses the model.", json_schema_extra=without_default),
    ] = ""
    history: Annotated[Ids, Field(description="Ids of the log, oldest first.")] = []
    histories: Annotated[
        list[Ids], Field(max_length=MOST_HISTORIES, fail_fast=True, description="Several histories instead.")
    ] = []
    times: TimesField = []
    now: NowField = 0.0
    types: Annotated[
        Annotated[list[TypeName], Field(max_length=MOST_IDS, fail_fast=True)]
        | Annotated[
            list[Annotated[list[TypeName], Field(max_length=MOST_IDS, fail_fast=True)] | None],
            Field(max_length=MOST_HISTORIES, fail_fast=True),
        ],
        Field(
            description="The type of each event of the history, as in the training log. One for each item; with "
            "`histories` a list for each of them, or null. Only for models that were trained with types.",
            json_schema_extra=without_default,
        ),
    ] = []

    @model_validator(mode="after")
    def _one_or_many(self) -> "Ask":
        if len(self.model_fields_set & {"history", "histories"}) != 1:
            raise ValueError("give either history (a list of ids) or histories (a list of such lists)")
        if len(self.asked) * self.n > MOST_ITEMS:
            raise ValueError(
                f"{len(self.asked)} histories with n = {self.n}: at most {MOST_ITEMS} items; send several requests"
            )
        _ = self.times_asked, self.types_asked
        return self

    @property
    def asked(self) -> list[list[Id]]:
        """The histories, also where there is one."""
        return [self.history] if "history" in self.model_fields_set else list(self.histories)

    @property
    def times_asked(self) -> list[list[Moment] | None] | None:
        """The times of each history; None where none are given."""
        if "times" not in self.model_fields_set:
            return None
        return check_each(self.times, self.asked, "times", several="histories" in self.model_fields_set)

    @property
    def types_asked(self) -> list[list[str] | None] | None:
        """The types of the events of each history; None where none are given."""
        if "types" not in self.model_fields_set:
            return None
        return check_each(self.types, self.asked, "types", several="histories" in self.model_fields_set)

    @property
    def moment(self) -> Moment | None:
        """The moment of the query, where one is given."""
        return self.now if "now" in self.model_fields_set else None


class FindModel(BaseModel, extra="forbid"):
    """A model by its name."""

    model: Annotated[str, Field(max_length=LONGEST_ID, description="Name of the model; all by default.")] = ""


class FindItems(BaseModel, extra="forbid"):
    """Search for items by id or title."""

    q: Annotated[Words, Field(description="An id, or words of a title; empty: the most popular items.")] = ""
    id: Annotated[
        list[rules.Text], Field(max_length=MOST_FOUND, description="Ids to look up instead; unknown ones are left out.")
    ] = []
    n: Found = 20
    model: ModelName = ""


class FindUsers(BaseModel, extra="forbid"):
    """Search for users whose events are stored."""

    q: Annotated[Words, Field(description="Part of the user's id, in upper or lower case; empty: all users.")] = ""
    after: Annotated[rules.Text, Field(description="The `next` of the page before; empty: the first page.")] = ""
    n: Found = 20


def _not_ahead(seconds: float) -> float:
    """A time that may be; later ones would hide all that comes before them from an update."""
    if seconds > time.time() + AHEAD:
        raise PydanticCustomError("ahead", "it is more than a day ahead of the server's clock; send seconds since 1970")
    return seconds


ArrivalField = Annotated[
    float,
    Field(
        ge=-LARGEST_SECONDS,
        le=LARGEST_SECONDS,
        allow_inf_nan=False,
        description="Seconds since 1970, at most a day ahead; the arrival by default.",
        json_schema_extra=without_default,
    ),
    AfterValidator(_not_ahead),
]
OnceField = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_ID,
        pattern=r"^[^\x00]*$",
        description="A second one with the same id is ignored, so sending again is safe.",
    ),
]


class Event(BaseModel, extra="forbid", strict=True):
    """A user chose an item."""

    user: UserId
    item: ItemId
    time: ArrivalField = 0.0
    id: OnceField = ""
    type: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=LONGEST_ID,
            pattern=r"^[^\x00]*$",
            description="The type of the event, such as view or buy; the usual one of a model by default.",
        ),
    ] = None


class Events(BaseModel, extra="forbid", strict=True):
    """Events that are stored together or not at all."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"events": [{"user": "c7", "item": "milk", "time": 1700000000}]}]}
    )

    events: Annotated[list[Event], Field(min_length=1, max_length=MOST_EVENTS, fail_fast=True)]


class Feedback(BaseModel, extra="forbid", strict=True):
    """What a user did with an item that was recommended."""

    user: UserId
    item: ItemId
    kind: Annotated[Kind, Field(description="shown, clicked or bought.")]
    model: Annotated[
        str, Field(max_length=LONGEST_ID, description="The `model` of the answer; by default the user's model.")
    ] = ""
    time: ArrivalField = 0.0
    id: OnceField = ""


class FeedbackList(BaseModel, extra="forbid", strict=True):
    """Feedback that is stored together or not at all."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"feedback": [{"user": "c7", "item": "milk", "kind": "clicked"}]}]}
    )

    feedback: Annotated[list[Feedback], Field(min_length=1, max_length=MOST_EVENTS, fail_fast=True)]


class NewItem(BaseModel, extra="forbid", strict=True):
    """An item that no model knows, with its values in the item table's columns."""

    id: ItemId
    columns: Annotated[dict[str, Any], Field(max_length=MOST_COLUMNS, description="Values by column.")]

    @property
    def values(self) -> dict[str, Any]:
        """The columns with the id among them."""
        return {**self.columns, "id": self.id}


class NewItems(BaseModel, extra="forbid", strict=True):
    """Items that are added together or not at all."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [{"id": "oat-milk", "columns": {"title": "Oat milk, 1 l"}}]}]}
    )

    items: Annotated[list[NewItem], Field(min_length=1, max_length=MOST_NEW_ITEMS, fail_fast=True)]
    model: ModelName = ""

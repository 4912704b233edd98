"""Requests, as the OpenAPI document describes them; `schemas` has the answers."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from abaca.data.moments import Moment
from abaca.policy import Policy
from abaca.serve.times import LARGEST_SECONDS, NowField, SecondsField, TimesField, check_times, without_default
from abaca.types import Id

MOST_N = 1000
MOST_HISTORIES = 1000
MOST_ITEMS = 50_000
"""Limit of the items in all answers to one request."""
MOST_IDS = 10_000
MOST_EVENTS = 1000
MOST_FOUND = 100
LONGEST_ID = 512


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is 3."""
    return int(value) if type(value) is float and value.is_integer() else value


def _all_whole(values: Any) -> Any:
    return [_whole(value) for value in values] if isinstance(values, list) else values


_Text = Annotated[str, Field(strict=True, max_length=LONGEST_ID, pattern=r"^[^\x00]*$")]
_Id = Annotated[int, Field(strict=True)] | _Text
ItemId = Annotated[_Id, BeforeValidator(_whole)]
_InAddress = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00\n]*$")]
UserId = Annotated[Annotated[int, Field(strict=True)] | _InAddress, BeforeValidator(_whole)]
Ids = Annotated[list[_Id], Field(max_length=MOST_IDS, fail_fast=True), BeforeValidator(_all_whole)]

N = Annotated[int, Field(ge=1, le=MOST_N, description="Number of items."), BeforeValidator(_whole)]
Found = Annotated[int, Field(ge=1, le=MOST_FOUND, description="Number of results.")]
Words = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
RepeatsField = Annotated[
    Literal["auto", "exclude", "only"],
    Field(description="auto: as learned; exclude: no item of the history; only: nothing else."),
]
Share = Annotated[
    float, Field(ge=0, le=1, allow_inf_nan=False, description="Largest share of items of the history among the n.")
]
ModelName = Annotated[str, Field(max_length=LONGEST_ID, description="Name of the model; the first by default.")]


class Options(BaseModel, extra="forbid"):
    """What every request for recommendations may hold."""

    n: N = 10
    repeats: RepeatsField = "auto"
    max_repeat_share: Share = 1.0
    model: ModelName = ""

    @property
    def policy(self) -> Policy:
        """What may be recommended."""
        return Policy(n=self.n, repeats=self.repeats, max_repeat_share=self.max_repeat_share)


class UserAsk(Options):
    """Options of recommendations for a user whose history is stored, given in the address."""

    now: SecondsField = None


class Ask(Options):
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

    history: Annotated[Ids, Field(description="Ids of the log, oldest first.")] = []
    histories: Annotated[
        list[Ids], Field(max_length=MOST_HISTORIES, fail_fast=True, description="Several histories instead.")
    ] = []
    exclude: Annotated[Ids, Field(description="Ids that may not be recommended.")] = []
    candidates: Annotated[
        Ids, Field(description="The only ids that may be recommended; the whole catalogue by default.")
    ] = []
    times: TimesField = []
    now: NowField = 0.0

    @model_validator(mode="after")
    def _one_or_many(self) -> "Ask":
        if len(self.model_fields_set & {"history", "histories"}) != 1:
            raise ValueError("give either history (a list of ids) or histories (a list of such lists)")
        if len(self.asked) * self.n > MOST_ITEMS:
            raise ValueError(
                f"{len(self.asked)} histories with n = {self.n}: at most {MOST_ITEMS} items; send several requests"
            )
        _ = self.times_asked
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
        return check_times(self.times, self.asked, several="histories" in self.model_fields_set)

    @property
    def moment(self) -> Moment | None:
        """The moment of the query, where one is given."""
        return self.now if "now" in self.model_fields_set else None

    @property
    def policy(self) -> Policy:
        """What may be recommended, as a value that can be hashed."""
        candidates = tuple(self.candidates) if "candidates" in self.model_fields_set else None
        return replace(super().policy, exclude=tuple(self.exclude), candidates=candidates)


class FindItems(BaseModel, extra="forbid"):
    """Search for items by id or title."""

    q: Annotated[Words, Field(description="An id, or words of a title; empty: the most popular items.")] = ""
    id: Annotated[
        list[_Text], Field(max_length=MOST_FOUND, description="Ids to look up instead; unknown ones are left out.")
    ] = []
    n: Found = 20
    model: ModelName = ""


class FindUsers(BaseModel, extra="forbid"):
    """Search for users whose events are stored."""

    q: Annotated[Words, Field(description="Part of the user's id, in upper or lower case; empty: all users.")] = ""
    after: Annotated[_Text, Field(description="The `next` of the page before; empty: the first page.")] = ""
    n: Found = 20


class Event(BaseModel, extra="forbid", strict=True):
    """A user chose an item."""

    user: UserId
    item: ItemId
    time: Annotated[
        float,
        Field(
            ge=-LARGEST_SECONDS,
            le=LARGEST_SECONDS,
            allow_inf_nan=False,
            description="Seconds since 1970; the arrival by default.",
            json_schema_extra=without_default,
        ),
    ] = 0.0
    id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=LONGEST_ID,
            pattern=r"^[^\x00]*$",
            description="A second event with the same id is ignored, so sending again is safe.",
        ),
    ] = ""


class Events(BaseModel, extra="forbid", strict=True):
    """Events that are stored together or not at all."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"events": [{"user": "c7", "item": "milk", "time": 1700000000}]}]}
    )

    events: Annotated[list[Event], Field(min_length=1, max_length=MOST_EVENTS, fail_fast=True)]

"""Requests and answers, as the OpenAPI document describes them."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from abaca.policy import Policy
from abaca.recommendation import Recommendations
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


class UserAsk(BaseModel, extra="forbid"):
    """Options of recommendations for a user whose history is stored, given in the address."""

    n: N = 10
    repeats: RepeatsField = "auto"
    max_repeat_share: Share = 1.0
    model: ModelName = ""

    @property
    def policy(self) -> Policy:
        """What may be recommended."""
        return Policy(n=self.n, repeats=self.repeats, max_repeat_share=self.max_repeat_share)


class Ask(UserAsk):
    """One history or several, and what may be recommended. Values are not converted."""

    model_config = ConfigDict(
        strict=True,
        json_schema_extra={
            "oneOf": [{"required": ["history"]}, {"required": ["histories"]}],
            "examples": [{"history": ["milk", "bread", "milk"], "n": 5, "repeats": "auto"}],
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

    @model_validator(mode="after")
    def _one_or_many(self) -> "Ask":
        if len(self.model_fields_set & {"history", "histories"}) != 1:
            raise ValueError("give either history (a list of ids) or histories (a list of such lists)")
        if len(self.asked) * self.n > MOST_ITEMS:
            raise ValueError(
                f"{len(self.asked)} histories with n = {self.n}: at most {MOST_ITEMS} items; send several requests"
            )
        return self

    @property
    def asked(self) -> list[list[Id]]:
        """The histories, also where there is one."""
        return [self.history] if "history" in self.model_fields_set else list(self.histories)

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
        Field(ge=-1e11, le=1e11, allow_inf_nan=False, description="Seconds since 1970; the arrival by default."),
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


class Item(BaseModel):
    """An item of the catalogue."""

    id: Id
    title: Annotated[str, Field(description="The title of the item table; the id where there is none.")]


class Recommended(Item):
    """An item, its probability, and the reason for it."""

    probability: Annotated[
        float | None, Field(description="Of being next, over the whole catalogue; null for a popular item.")
    ]
    reason: Annotated[str, Field(description="The reason in words.")]
    partition: Annotated[
        Literal["copy", "rerank", "explore", "popular"],
        Field(description="The part of the model that scored it; popular where no item of the history is known."),
    ]
    repeat: Annotated[bool, Field(description="Whether it is in the history.")]
    times: Annotated[int, Field(description="How often it is in the history.")]
    ago: Annotated[int | None, Field(description="How many items ago it was last seen: 1 for the latest.")]


class Answer(BaseModel):
    """The recommendations for one history."""

    items: list[Recommended]
    unknown: Annotated[list[Id], Field(description="Ids of the request that the model does not know.")]
    repeat_probability: Annotated[
        float | None, Field(description="Predicted probability that the next item is one of the history.")
    ]
    estimated: Annotated[
        bool, Field(description="Whether probabilities are estimates: an approximate index skips items.")
    ]


class Answers(BaseModel):
    """One answer per history, in their order, with the model and its version."""

    model: str
    version: str
    answers: list[Answer]


class UserAnswer(Answer):
    """The recommendations for the stored history of a user."""

    model: str
    version: str
    user: str
    events: Annotated[int, Field(description="Number of events in the history; 0 for an unknown user.")]


class Items(BaseModel):
    """Items that match, best first."""

    items: list[Item]


class Users(BaseModel):
    """A page of users that match, in the order of the database."""

    users: list[str]
    next: Annotated[
        str | None, Field(description="Send it as `after` for the next page, which may be empty; null at the end.")
    ]


class Example(BaseModel):
    """A user of the data with the latest items of the history."""

    user: str
    items: list[Item]
    repeat_share: Annotated[float, Field(description="Share of the history that repeats an earlier item.")]


class Examples(BaseModel):
    """Users of the data; empty unless the server was started with --examples."""

    examples: list[Example]


class Stored(BaseModel):
    """Numbers of new and of repeated events."""

    stored: int
    duplicates: Annotated[int, Field(description="Events whose id was already stored.")]


class UserHistory(BaseModel):
    """The stored history of a user, oldest first."""

    user: str
    items: list[Item]


class Deleted(BaseModel):
    """Number of deleted events."""

    deleted: int


class ModelFacts(BaseModel):
    """A model that is served."""

    name: str
    version: str
    encoder: str
    output: str
    window: int
    items: int
    parameters: int
    trained: dict[str, Any]


class Models(BaseModel):
    """The models that are served; the first is the default."""

    models: list[ModelFacts]
    store: Annotated[bool, Field(description="Whether the server stores events.")]


class Status(BaseModel):
    """State of the server."""

    status: str


class Problem(BaseModel):
    """What went wrong and what to do, after RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    hint: str


def answer(found: Recommendations) -> dict[str, Any]:
    """One answer as plain values; an item's name is its title."""
    document = found.to_json()
    for item in document["items"]:
        item["title"] = item.pop("name")
    return document

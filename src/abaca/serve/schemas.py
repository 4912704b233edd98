"""What the server takes and answers, as its OpenAPI document describes it."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from abaca.policy import Policy
from abaca.recommendation import Recommendations
from abaca.types import Id

MOST_N = 1000
MOST_HISTORIES = 1000
MOST_ITEMS = 50_000
"""Items of all answers to one request."""
MOST_IDS = 10_000
MOST_EVENTS = 1000
LONGEST_ID = 512

Repeats = Literal["auto", "exclude", "only"]


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 3.0 is 3."""
    return int(value) if type(value) is float and value.is_integer() else value


def _all_whole(values: Any) -> Any:
    return [_whole(value) for value in values] if isinstance(values, list) else values


_Text = Annotated[str, Field(strict=True, max_length=LONGEST_ID, pattern=r"^[^\x00]*$")]
_Id = Annotated[int, Field(strict=True)] | _Text
ItemId = Annotated[_Id, BeforeValidator(_whole)]
_InAddress = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00\n]*$")]
UserId = Annotated[Annotated[int, Field(strict=True)] | _InAddress, BeforeValidator(_whole)]
Ids = Annotated[list[_Id], Field(max_length=MOST_IDS, fail_fast=True), BeforeValidator(_all_whole)]

N = Annotated[int, Field(ge=1, le=MOST_N, description="How many items."), BeforeValidator(_whole)]
RepeatsField = Annotated[
    Repeats, Field(description="auto: as learned; exclude: no item of the history; only: nothing else.")
]
Share = Annotated[float, Field(ge=0, le=1, description="At most this share of the n may be items of the history.")]
ModelName = Annotated[str, Field(max_length=LONGEST_ID, description="Which model; without it, the first.")]


class Strict(BaseModel):
    """Nothing is converted, and a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Ask(Strict):
    """One history or many, and what may be recommended."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["history"]}, {"required": ["histories"]}],
            "examples": [{"history": ["milk", "bread", "milk"], "n": 5, "repeats": "auto"}],
        }
    )

    history: Annotated[Ids, Field(description="Raw ids as the log spells them, oldest first.")] = []
    histories: Annotated[
        list[Ids], Field(max_length=MOST_HISTORIES, fail_fast=True, description="Several histories instead.")
    ] = []
    n: N = 10
    repeats: RepeatsField = "auto"
    max_repeat_share: Share = 1.0
    exclude: Annotated[Ids, Field(description="Ids that may not be recommended.")] = []
    candidates: Annotated[Ids, Field(description="The only ids that may be; without it, the whole catalogue.")] = []
    model: ModelName = ""

    @model_validator(mode="after")
    def _one_or_many(self) -> "Ask":
        if len(self.model_fields_set & {"history", "histories"}) != 1:
            raise ValueError("give either history (a list of ids) or histories (a list of such lists)")
        if len(self.asked) * self.n > MOST_ITEMS:
            raise ValueError(f"{len(self.asked)} histories with n = {self.n}: at most {MOST_ITEMS} items; ask in parts")
        return self

    @property
    def asked(self) -> list[list[Id]]:
        """The histories, also where there is one."""
        return [self.history] if "history" in self.model_fields_set else list(self.histories)

    @property
    def policy(self) -> Policy:
        """What may be recommended, in a form that equals its equals."""
        return Policy(
            n=self.n,
            repeats=self.repeats,
            max_repeat_share=self.max_repeat_share,
            exclude=tuple(self.exclude),
            candidates=tuple(self.candidates) if "candidates" in self.model_fields_set else None,
        )


class UserAsk(BaseModel):
    """What may be recommended to a user whose history the server remembers; it stands in the address."""

    model_config = ConfigDict(extra="forbid")

    n: N = 10
    repeats: RepeatsField = "auto"
    max_repeat_share: Annotated[Share, Field(allow_inf_nan=False)] = 1.0
    model: ModelName = ""

    @property
    def policy(self) -> Policy:
        """What may be recommended."""
        return Policy(n=self.n, repeats=self.repeats, max_repeat_share=self.max_repeat_share)


class Find(BaseModel):
    """What a person types, and how many items to show."""

    model_config = ConfigDict(extra="forbid")

    q: Annotated[str, Field(max_length=200, description="An id, or words of a title; empty: the most popular.")] = ""
    n: Annotated[int, Field(ge=1, le=100)] = 20
    model: ModelName = ""


class Event(Strict):
    """A user chose an item."""

    user: UserId
    item: ItemId
    time: Annotated[
        float,
        Field(
            ge=-1e11,
            le=1e11,
            allow_inf_nan=False,
            description="Seconds since 1970; without it, when the event arrived.",
        ),
    ] = 0.0
    id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=LONGEST_ID,
            pattern=r"^[^\x00]*$",
            description="A second event with the same id is ignored: with it, sending again is safe.",
        ),
    ] = ""


class Events(Strict):
    """Events that are remembered together or not at all."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"events": [{"user": "c7", "item": "milk", "time": 1700000000}]}]}
    )

    events: Annotated[list[Event], Field(min_length=1, max_length=MOST_EVENTS, fail_fast=True)]


class Item(BaseModel):
    """An item of the catalogue."""

    id: Id
    title: Annotated[str, Field(description="Its title where the item table has one, else its id.")]


class Recommended(Item):
    """An item, how likely it is next, and why it is here."""

    probability: Annotated[
        float | None, Field(description="Of being next, over the whole catalogue; null for a popular item.")
    ]
    reason: Annotated[str, Field(description="The reason in words.")]
    partition: Annotated[
        Literal["copy", "rerank", "explore", "popular"],
        Field(description="Who scored it; popular where no item of the history is known."),
    ]
    repeat: Annotated[bool, Field(description="Whether it is in the history.")]
    times: Annotated[int, Field(description="How often it is in the history.")]
    ago: Annotated[int | None, Field(description="How many items ago it was last there: 1 for the latest.")]


class Answer(BaseModel):
    """What comes after one history."""

    items: list[Recommended]
    unknown: Annotated[list[Id], Field(description="Ids of the question that the model does not know.")]
    repeat_probability: Annotated[
        float | None, Field(description="Predicted probability that the next item is one of the history.")
    ]
    estimated: Annotated[
        bool,
        Field(description="Whether probabilities are estimates, since a search index does not look at every item."),
    ]


class Answers(BaseModel):
    """One answer per history, in their order, and who gave them."""

    model: str
    version: str
    answers: list[Answer]


class UserAnswer(Answer):
    """What comes after the history that the server remembers of a user."""

    model: str
    version: str
    user: str
    events: Annotated[int, Field(description="How many events the history holds; 0 for a user not seen before.")]


class Found(BaseModel):
    """Items that fit what was typed, best first."""

    items: list[Item]


class Example(BaseModel):
    """A user of the data with the latest items of the history."""

    user: str
    items: list[Item]
    repeat_share: Annotated[float, Field(description="How much of the history repeats what came before.")]


class Examples(BaseModel):
    """Users of the data; empty unless the server was started with --examples."""

    examples: list[Example]


class Remembered(BaseModel):
    """What became of the events."""

    stored: int
    duplicates: Annotated[int, Field(description="Events whose id was there before.")]


class UserHistory(BaseModel):
    """What the server remembers of a user, oldest first."""

    user: str
    items: list[Item]


class Forgotten(BaseModel):
    """What was deleted."""

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
    store: Annotated[bool, Field(description="Whether the server remembers events.")]


class Status(BaseModel):
    """Whether the server lives, or is ready."""

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
    document = {"estimated": False, **found.to_json()}
    for item in document["items"]:
        item["title"] = item.pop("name")
    return document


UserQuery = Annotated[UserAsk, Query()]
FindQuery = Annotated[Find, Query()]

"""Answers, as the OpenAPI document describes them; `requests` has the requests."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from abaca.recommendation import Recommendations
from abaca.types import Id


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
        Literal["copy", "rerank", "explore", "popular", "rule"],
        Field(
            description="The part of the model that scored it; popular where no item of the history is known; rule of "
            "a saved baseline."
        ),
    ]
    repeat: Annotated[bool, Field(description="Whether it is in the history.")]
    times: Annotated[int, Field(description="How often it is in the history.")]
    ago: Annotated[int | None, Field(description="How many items ago it was last seen: 1 for the latest.")]
    logit: Annotated[float | None, Field(description="Its score; null for a popular item.")]
    terms: Annotated[
        dict[str, float],
        Field(description="Each part's share of the logit: network, own, each habit, followers. They add up to it."),
    ]
    argued_by: Annotated[
        Literal["habits", "followers", "network"] | None,
        Field(description="What argues most for it; null for a model without evidence."),
    ]


class RuleEffect(BaseModel):
    """What one rule did to a list."""

    rule: Annotated[str, Field(description="Its name, for a category with the column and the value.")]
    removed: Annotated[list[Id], Field(description="Ids that are not in the list because of it; the first few.")]
    moved: Annotated[list[Id], Field(description="Ids that are in the list, or higher in it, because of it.")]
    short: Annotated[int, Field(description="How many items are missing of what it wants at least.")]
    note: str


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
    rules: Annotated[
        list[RuleEffect],
        Field(description="What each rule removed or moved; of filters only with `explain_rules`."),
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


class Added(BaseModel):
    """How many items were added to a model."""

    model: str
    added: int


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


class StoredItem(Item):
    """An item of a stored history, and when it was chosen."""

    time: Annotated[float, Field(description="Seconds since 1970.")]
    type: Annotated[str | None, Field(description="The type of the event; null where none was sent.")]


class UserHistory(BaseModel):
    """The stored history of a user, oldest first."""

    user: str
    items: list[StoredItem]


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
    time_unit: Annotated[
        str | None,
        Field(description="The unit of the training log's times, such as seconds; null unless they count from 1970."),
    ]
    trained: dict[str, Any]


class Models(BaseModel):
    """The models that are served; the first is the default."""

    models: list[ModelFacts]
    store: Annotated[bool, Field(description="Whether the server stores events.")]


class Status(BaseModel):
    """State of the server."""

    status: str


class Ready(Status):
    """State of the server and the models that can answer."""

    models: list[str]


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

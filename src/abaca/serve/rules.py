"""The rules of a policy as fields of requests."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from abaca.policy import Policy

MOST_N = 1000
MOST_IDS = 10_000
LONGEST_ID = 512
LARGEST_ID = 10**LONGEST_ID
LARGEST_BOOST = 1e6


def whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is 3."""
    return int(value) if type(value) is float and value.is_integer() else value


def whole_id(value: Any) -> Any:
    """An id, with 3 for 3.0; a number has a limit of digits, as text has one of characters."""
    if type(value) is int and not -LARGEST_ID < value < LARGEST_ID:
        raise ValueError(f"an id has at most {LONGEST_ID} digits")
    return whole(value)


def _all_whole(values: Any) -> Any:
    return [whole_id(value) for value in values] if isinstance(values, list) else values


Text = Annotated[str, Field(strict=True, max_length=LONGEST_ID, pattern=r"^[^\x00]*$")]
Id = Annotated[int, Field(strict=True)] | Text
Ids = Annotated[list[Id], Field(max_length=MOST_IDS, fail_fast=True), BeforeValidator(_all_whole)]

_Key = Annotated[str, Field(max_length=LONGEST_ID)]
_Count = Annotated[int, Field(ge=0, le=MOST_N), BeforeValidator(whole)]
_Amount = Annotated[float, Field(ge=-LARGEST_BOOST, le=LARGEST_BOOST, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Cooldown = Annotated[
    str,
    Field(
        max_length=120,
        pattern=r"^(\d{1,9} ?items?|\d{1,9}(\.\d{1,6})? ?(second|minute|hour|day|week|unit)s?)( of .{1,80})?$",
    ),
]
_ByValue = Annotated[dict[_Key, _Count], Field(max_length=MOST_IDS)]


class RuleFields(BaseModel, extra="forbid"):
    """The rules that an address can hold."""

    n: Annotated[int, Field(ge=1, le=MOST_N, description="Number of items."), BeforeValidator(whole)] = 10
    repeats: Annotated[
        Literal["auto", "exclude", "only"],
        Field(description="auto: as learned; exclude: no item of the history; only: nothing else."),
    ] = "auto"
    max_repeat_share: Annotated[_Share, Field(description="Largest share of items of the history among the n.")] = 1.0
    max_repeats: Annotated[_Count, Field(description="Largest number of items of the history.")] = MOST_N
    min_new: Annotated[
        _Count, Field(description="Smallest number of items that are not in the history, as far as there are some.")
    ] = 0
    min_cold: Annotated[
        _Count,
        Field(description="Smallest number of items that nobody had taken, as far as there are some; needs features."),
    ] = 0
    cooldown: Annotated[
        list[_Cooldown],
        Field(
            max_length=10,
            description="How long an item is not recommended after its last occurrence, such as `7 days` or `5 items`; "
            "`7 days of buy` counts events of this type.",
        ),
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    ] = []
    diversity: Annotated[
        _Share, Field(description="Strength of maximal marginal relevance on item vectors; 0 is off.")
    ] = 0.0
    explain_rules: Annotated[
        bool, Field(description="Whether `rules` of the answer also says what filters removed.")
    ] = False

    @property
    def policy(self) -> Policy:
        """What may be recommended, as a value that can be hashed."""
        return Policy(**{name: getattr(self, name) for name in self._rules})

    @property
    def _rules(self) -> list[str]:
        """The rules that are given."""
        return [name for name in Policy.__dataclass_fields__ if name in self.model_fields_set]


class ListedRules(RuleFields):
    """The rules with lists and categories, which a body can hold."""

    exclude: Annotated[Ids, Field(description="Ids that may not be recommended.")] = []
    candidates: Annotated[
        Ids,
        Field(description="The only ids that may be recommended, such as the stock; the whole catalogue by default."),
    ] = []
    at_most: Annotated[
        dict[_Key, _Count | _ByValue],
        Field(
            max_length=20,
            description="Largest number of items by a column of the item table: of each value, or of some values.",
            json_schema_extra={"examples": [{"brand": 2}, {"brand": {"Acme": 1}}]},
        ),
    ] = {}
    at_least: Annotated[
        dict[_Key, _ByValue],
        Field(
            max_length=20,
            description="Smallest number of items with a value in a column, as far as there are some.",
            json_schema_extra={"examples": [{"brand": {"Acme": 1}}]},
        ),
    ] = {}
    boost: Annotated[
        dict[_Key, _Amount],
        Field(max_length=MOST_IDS, description="Numbers that are added to the logits of ids to order the list."),
    ] = {}
    boost_category: Annotated[
        dict[_Key, Annotated[dict[_Key, _Amount], Field(max_length=MOST_IDS)]],
        Field(max_length=20, description="The same for all items with a value in a column of the item table."),
    ] = {}

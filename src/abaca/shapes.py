"""The shape of a JSON document, written like the document, and the first place where a value differs from it.

str, int, float, bool, dict, list    a value of this type; a float may be whole and is finite
None                                 null
"a", "b" in a OneOf                  one of these values
(shape, shape)                       any of these
[shape]                              a list of such values
Each(shape)                          an object with any keys and such values
{"key": shape, "key?": shape}        an object with these keys, those with "?" optional, and any others
Only({…})                            the same without others
Least(number)                        a whole number of at least that, below 2⁶³
"""

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

from abaca.errors import UserError

WORDS = {
    str: "text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    None: "null",
}

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character beyond 16 bits, or half of nothing."""


class Each(NamedTuple):
    """An object with any keys."""

    value: Any


class Only(NamedTuple):
    """An object with these keys and no others."""

    keys: dict[str, Any]


class Least(NamedTuple):
    """A whole number."""

    number: int


class OneOf(NamedTuple):
    """One of some values."""

    values: tuple[Any, ...]


def mismatch(value: Any, shape: Any, at: str = "") -> str | None:
    """The first difference between a value and a shape, in words; None where there is none."""
    if isinstance(shape, Each):
        return _of_object(value, dict.fromkeys(value, shape.value) if isinstance(value, dict) else {}, at)
    if isinstance(shape, Only):
        other = sorted(set(value) - {key.removesuffix("?") for key in shape.keys}) if isinstance(value, dict) else []
        return f"{at} has the unknown key {other[0]!r}" if other else _of_object(value, shape.keys, at)
    if isinstance(shape, dict):
        return _of_object(value, shape, at)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _differs(value, "a list", at)
        found = (mismatch(entry, shape[0], f"{at}[{place}]") for place, entry in enumerate(value))
        return next((words for words in found if words), None)
    if type(shape) is tuple:
        if any(mismatch(value, each, at) is None for each in shape):
            return None
        return mismatch(value, shape[0], at)
    return None if _fits(value, shape) else _differs(value, _words(shape), at)


def _of_object(value: Any, keys: dict[str, Any], at: str) -> str | None:
    if not isinstance(value, dict):
        return _differs(value, "an object", at)
    for key, shape in keys.items():
        name, inner = key.removesuffix("?"), f"{at}.{key.removesuffix('?')}" if at else key.removesuffix("?")
        if name not in value:
            if not key.endswith("?"):
                return f"{inner} is missing"
        elif words := mismatch(value[name], shape, inner):
            return words
    return None


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, OneOf):
        return isinstance(value, str | int) and value in shape.values
    if isinstance(shape, Least):
        return type(value) is int and shape.number <= value < 1 << 63
    if shape is float:
        return type(value) in (int, float) and abs(value) < 1e308 and math.isfinite(value)
    return value is None if shape is None else type(value) is shape


def _words(shape: Any) -> str:
    if isinstance(shape, OneOf):
        return f"one of {', '.join(map(str, shape.values))}"
    return f"a whole number of at least {shape.number}" if isinstance(shape, Least) else WORDS[shape]


def _differs(value: Any, wanted: str, at: str) -> str:
    shown = repr(value)
    return f"{at or 'it'} must be {wanted}, got {shown if len(shown) <= 60 else shown[:57] + '…'}"


def loads(text: str | bytes) -> Any:
    """The value of JSON; ValueError also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(path: Path, error: type[UserError], cure: str) -> Any:
    """The value of a JSON file; nesting without end is refused, and text that is not Unicode."""
    try:
        text = path.read_text(encoding="utf-8")
        value = loads(text)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except ValueError as cause:
        raise error(f"{path} is not JSON ({cause}); {cure}") from cause
    return value

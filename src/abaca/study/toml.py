"""TOML tables read key by key: unknown keys and values of the wrong type are refused."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from abaca.errors import SpecError
from abaca.nn.outputs import OutputSpec
from abaca.options import check_names

Grid = dict[str, list[Any]]


def read_toml(path: Path, hint: str) -> dict[str, Any]:
    """A file's values; the hint completes the error where it is missing."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path} does not exist; {hint}") from None
    except OSError as error:
        raise SpecError(f"{path} cannot be read ({error.strerror}); {hint}") from error
    except RecursionError as error:
        raise SpecError(f"{path} is nested too deeply; {hint}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from error


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse an unknown key, naming the nearest known one."""
    check_names(f"{where}:", given, known, "unknown key")


class TomlTable:
    """A TOML table read key by key, each with its type."""

    def __init__(self, values: Any, where: str, known: Iterable[str]) -> None:
        if not isinstance(values, dict):
            raise SpecError(f"{where} must be a table, got {values!r}")
        refuse_unknown(values, known, where)
        self.values, self.where = values, where

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        """A value of a type, or the default."""
        value = self.values.get(key, default)
        if key in self.values and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
            words = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}
            raise SpecError(f"{self.where}: {key} must be {words[kind]}, got {value!r}")
        return value

    def many(self, key: str, kind: type, default: Iterable[Any] | None = None) -> tuple[Any, ...] | None:
        """A list of distinct values of one type."""
        if key not in self.values:
            return None if default is None else tuple(default)
        values = self.take(key, list)
        if not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
            raise SpecError(f"{self.where}: {key} must be a list of {kind.__name__}, got {values!r}")
        if len(set(values)) < len(values):
            raise SpecError(f"{self.where}: {key} names something twice: {values!r}")
        return tuple(values)

    def specs(self, key: str, default: Iterable[str] | None = None) -> tuple[str, ...] | None:
        """A list of output layers in their usual spelling."""
        found = self.many(key, str, default)
        return None if found is None else tuple(str(OutputSpec.parse(text)) for text in found)

    def grid(self, key: str) -> Grid:
        """Options, each with a list of values to try."""
        grid: Grid = self.take(key, dict, {})
        for name, values in grid.items():
            if not isinstance(values, list) or not values:
                raise SpecError(f"{self.where}: {key}.{name} must be a list of values to try, got {values!r}")
        return grid

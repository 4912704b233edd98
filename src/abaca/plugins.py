"""Custom encoders and output layers. They are given as objects or registered, never imported by name."""

from dataclasses import asdict
from typing import Any, TypeVar

from abaca.errors import SpecError
from abaca.nn.encoders import ENCODERS, Encoder
from abaca.nn.outputs import OUTPUTS, Output, OutputSpec

Kind = TypeVar("Kind", bound=type[Any])

BUILT_IN = frozenset(ENCODERS) | frozenset(OUTPUTS)
OUTPUT_PLUGINS: dict[str, type[Output]] = {}
"""Output layers that were registered, by name."""


def register(kind: Kind) -> Kind:
    """Make an encoder or output layer known by its `name`, so that models with it can be loaded; a decorator too."""
    if not isinstance(kind, type) or not issubclass(kind, Encoder | Output):
        raise SpecError(f"got {kind!r}, expected a subclass of abaca.nn.encoders.Encoder or abaca.nn.outputs.Output")
    if kind.name in BUILT_IN:
        if ENCODERS.get(kind.name) is not kind:
            raise SpecError(f"the name '{kind.name}' of {import_path(kind)} is taken; choose another")
        return kind
    plugins: dict[str, Any] = ENCODERS if issubclass(kind, Encoder) else OUTPUT_PLUGINS
    plugins[kind.name] = kind
    return kind


def import_path(kind: type[Any]) -> str:
    """Where a class is defined, for messages only: nothing is imported by it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def import_paths(encoder: str, output: str) -> dict[str, str]:
    """The import paths of those parts of a model that are plug-ins."""
    found = {"encoder": None if encoder in BUILT_IN else ENCODERS.get(encoder), "output": OUTPUT_PLUGINS.get(output)}
    return {part: import_path(kind) for part, kind in found.items() if kind is not None}


def encoder_name(encoder: Any) -> tuple[Any, dict[str, Any]]:
    """The name of an encoder that is given by name, class or object, and the options of the object."""
    if isinstance(encoder, Encoder):
        return register(type(encoder)).name, asdict(encoder.options)
    if not isinstance(encoder, type):
        return encoder, {}
    kind: type[Encoder] = register(encoder)
    return kind.name, {}


def output_name(output: Any) -> tuple[str, dict[str, Any]]:
    """The spec of an output layer that is given as text, class or object, and the options of the object."""
    if isinstance(output, str) and output in OUTPUT_PLUGINS:
        output = OUTPUT_PLUGINS[output]
    if isinstance(output, type):
        output = output()
    if not isinstance(output, Output) or type(output) in OUTPUTS.values():
        return str(OutputSpec.parse(output.spec if isinstance(output, Output) else output)), {}
    return register(type(output)).name, asdict(output.options)


def output_layer(name: str, options: dict[str, Any]) -> str | Output:
    """A registered output layer as an object, any other as its spec."""
    kind = OUTPUT_PLUGINS.get(name)
    return name if kind is None else kind(kind.Options(**options))

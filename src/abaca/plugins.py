"""Custom encoders and output layers. They are given as objects or registered, never imported by name."""

import json
from dataclasses import asdict
from typing import Any, TypeVar

from abaca.errors import SpecError
from abaca.nn.encoders import ENCODERS, Encoder
from abaca.nn.outputs import OUTPUTS, Output, OutputSpec
from abaca.options import AUTO

Kind = TypeVar("Kind", bound=type[Any])

BUILT_IN = frozenset(ENCODERS) | frozenset(OUTPUTS) | {"rule"}  # which stands for the encoder of a baseline
OUTPUT_PLUGINS: dict[str, type[Output]] = {}
"""Output layers that were registered, by name."""


def register(kind: Kind) -> Kind:
    """Make an encoder or output layer known by its `name`, so that models with it can be loaded; a decorator too."""
    if not isinstance(kind, type) or not issubclass(kind, Encoder | Output):
        raise SpecError(f"got {kind!r}, expected a subclass of abaca.nn.encoders.Encoder or abaca.nn.outputs.Output")
    plugins: dict[str, Any] = ENCODERS if issubclass(kind, Encoder) else OUTPUT_PLUGINS
    if kind.name in ("", Encoder.name, Output.name):
        raise SpecError(f"{import_path(kind)} needs a `name` of its own, by which its models are saved")
    known = plugins.get(kind.name)
    spec = kind.name in BUILT_IN or "+" in kind.name or ":" in kind.name
    if known is not kind and (spec or (known and import_path(known) != import_path(kind))):
        raise SpecError(f"the name '{kind.name}' of {import_path(kind)} is taken; choose another")
    plugins[kind.name] = kind
    return kind


def saved_options(of: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options as a model directory holds them, in JSON: tuples are lists, before and after loading alike."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(options))
    except (TypeError, ValueError) as error:
        raise SpecError(f"the options of {of} cannot be saved as JSON ({error}); use numbers, text and lists") from None
    return found


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
    if isinstance(encoder, str) and encoder in ENCODERS:
        return encoder, {}
    if not isinstance(encoder, type):
        raise SpecError(f"encoder {encoder!r} is not one of {', '.join(ENCODERS)}, {AUTO}")
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

"""A model from an encoder, an output layer and their options."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from abaca.errors import SpecError
from abaca.histories import EventTypes
from abaca.nn.encoders import Encoder, encoder_class
from abaca.nn.features import Described, FeatureVectors
from abaca.nn.model import Model
from abaca.nn.outputs import Output, make_output


def make_model(
    encoder: str | Encoder,
    output: str | Output,
    catalogue: int,
    features: Described | None = None,
    *,
    types: EventTypes | None = None,
    **options: Any,
) -> Model:
    """A fresh model for `catalogue` items, and for types of events; options are the encoder's (`dim`, `dropout`, …).

    With `features` items have vectors of their features beside their own.

    An encoder or output layer given as an object is a pattern: a new one is made of its class and its options.
    """
    kind = encoder_class(encoder)
    known = {field.name for field in fields(kind.Options)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise SpecError(f"{kind.name} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    sizes = kind.Options(**options) if isinstance(encoder, str) else replace(encoder.options, **options)
    built, layer = kind(sizes), make_output(output)
    layer.build(built.layers, sizes.dim, catalogue)
    if features is not None and layer.item_tables:
        raise SpecError(f"{layer.spec} has an item table of its own, which features do not reach; leave out features")
    vectors = None if features is None else FeatureVectors(features, sizes.dim)
    return Model(built, layer, nn.Embedding(catalogue, sizes.dim), types, vectors)


class _WithoutDraws(TorchFunctionMode):
    """Draws no random numbers. On the meta device torch would import its compiler for them, which takes seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func.__name__ in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@contextmanager
def planned() -> Iterator[None]:
    """Models that are made here have sizes, but no memory and no numbers."""
    with torch.device("meta"), _WithoutDraws():
        yield


def check_memory(encoder: str | Encoder, output: str | Output, catalogue: int, **options: Any) -> None:
    """Refuse a model that cannot be trained in this machine's memory: weights, gradients and Adam's two averages."""
    try:
        with planned():
            model = make_model(encoder, output, catalogue, **options)
        needed = 16 * sum(weight.numel() for weight in model.parameters())
    except RuntimeError:  # a size that does not even fit into an integer
        needed = 1 << 63
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise SpecError(
            f"training {encoder_class(encoder).name} {make_output(output).spec} for {catalogue:,} items takes "
            f"{needed / 1e9:,.0f} GB and more, this machine has {memory / 1e9:,.0f} GB; choose smaller sizes (dim, "
            "window, hidden)"
        )

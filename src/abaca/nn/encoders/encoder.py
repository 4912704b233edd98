"""The contract of an encoder: from windows to states."""

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from abaca.errors import SpecError
from abaca.histories import Windows
from abaca.types import whole_number

MOST_BLOCKS = 1000
"""More than could ever be trained."""


@dataclass(frozen=True)
class EncoderOptions:
    """Options that every encoder has."""

    dim: int = 64
    """Size of an item's embedding and of a state."""


class Inputs(NamedTuple):
    """A batch of windows with the vectors of their items.

    Values after the end of a window, times included, have no meaning. Times are float64: subtract before a cast. `now`
    is known per prediction, states are per position: other positions take the time of the next item as their moment.
    """

    windows: Windows[Tensor]  # items, types (B, L), positions (B, T), and where they are known times (B, L), now (B, T)
    embedded: Tensor  # (B, L, D) plus the vector of the event's type, where there are types; after the end any item's
    table: Tensor  # (V, D)


class Encoder(nn.Module):
    """Turns windows into states. A subclass sets `name`, `Options` and `forward`, and whatever else differs.

    A state may depend on its own position and earlier ones only.
    """

    name: ClassVar[str] = "encoder"
    Options: ClassVar[type[Any]] = EncoderOptions
    """A frozen dataclass with a field `dim`."""
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    """Options of training whose defaults differ from those of `TrainingOptions`."""

    reads_times: ClassVar[bool] = False
    """Whether states depend on times and the moment of the query."""

    layers: int = 1
    """M: states per position."""

    def __init__(self, options: Any = None) -> None:
        super().__init__()
        self.options = self.Options() if options is None else options

    @classmethod
    def sized(cls, options: dict[str, Any], longest: int) -> dict[str, Any]:
        """The options of an encoder that reads windows of up to `longest` items."""
        return dict(options)

    def initialise(self, model: nn.Module) -> None:
        """The first weights of the whole model: N(0, 0.02), biases 0."""
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, inputs: Inputs) -> Tensor:
        """States (B, L, M, D)."""
        raise NotImplementedError


def check_sizes(**sizes: int) -> None:
    """A size is a whole number of at least 1."""
    for name, size in sizes.items():
        if (whole_number(size) or 0) < 1:
            raise SpecError(f"{name} must be a whole number of at least 1, got {size!r}")


def check_shares(**shares: float) -> None:
    """What is dropped is a share below 1."""
    for name, share in shares.items():
        if not isinstance(share, numbers.Real) or not 0 <= share < 1:
            raise SpecError(f"{name} must be a number from 0 to below 1, got {share!r}")


def check_attention(dim: int, blocks: int, heads: int) -> None:
    """Blocks can be trained, and heads have equal parts of a state."""
    if blocks > MOST_BLOCKS:
        raise SpecError(f"blocks must be at most {MOST_BLOCKS}, got {blocks}")
    if dim % heads:
        raise SpecError(f"dim {dim} cannot be divided among {heads} heads; choose a multiple of {heads}")

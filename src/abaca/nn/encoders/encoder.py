"""The contract of an encoder: from windows to states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from abaca.histories import Windows


@dataclass(frozen=True)
class EncoderOptions:
    """Options that every encoder has."""

    dim: int = 64
    """Size of an item's embedding and of a state."""


class Inputs(NamedTuple):
    """A batch of windows with the vectors of their items."""

    windows: Windows[Tensor]  # items (B, L), positions (B, T), and where they are known times (B, L) and now (B, T)
    embedded: Tensor  # (B, L, D); after the end of a window any item's
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

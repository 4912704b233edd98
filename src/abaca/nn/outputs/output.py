"""The contract of an output layer: from the encoder's states to a loss and to scores of items."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from abaca.nn.logits import Scores
from abaca.nn.outputs.encoded import Encoded
from abaca.nn.outputs.spec import OutputSpec


@dataclass(frozen=True)
class OutputOptions:
    """No options."""


class Output(nn.Module):
    """Scores items after each prediction. A subclass sets `name`, `Options`, `build`, `loss` and `scores`."""

    name: ClassVar[str] = "output"
    Options: ClassVar[type[Any]] = OutputOptions
    """A frozen dataclass."""

    searchable: bool = False
    """Whether its scores are `Logits` over the model's item table, which an index can search."""
    exportable: bool = False
    """Whether its scores are `Logits` that ONNX can express."""
    can_weigh: bool = False
    """Whether its loss reads `encoded.weights`."""
    excludes_history: bool = False
    """Whether items of the window are never recommended."""
    evidence: tuple[str, ...] = ()
    """What is fitted after training: habits, followers."""

    def __init__(self, options: Any = None) -> None:
        super().__init__()
        self.options = self.Options() if options is None else options
        self.spec = self.name
        """How the layer is spelled in reports and model directories."""

    def build(self, layers: int, dim: int, catalogue: int) -> None:
        """Make the weights, for an encoder of `layers` layers and `dim` dimensions and `catalogue` items."""

    @property
    def can_sample(self) -> bool:
        """Whether its loss can be estimated from a part of the catalogue."""
        return False

    @property
    def item_tables(self) -> list[nn.Embedding]:
        """Item tables of its own (V, …), which start like the model's."""
        return []

    @property
    def item_projections(self) -> list[nn.Linear]:
        """Projections whose result is multiplied with the item table."""
        return []

    def loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        """Sum of −log P(target) over the rows (N,), each times its weight where there are weights."""
        raise NotImplementedError

    def scores(self, encoded: Encoded) -> Scores:
        """The scores of all items in each row."""
        raise NotImplementedError


class SpelledOutput(Output):
    """An output layer of the paper, whose options are its spec."""

    Options = OutputSpec
    can_weigh = True

    def __init__(self, options: OutputSpec) -> None:
        super().__init__(options)
        self.spec = str(options)
        self.excludes_history = options.nodup
        self.evidence = options.evidence

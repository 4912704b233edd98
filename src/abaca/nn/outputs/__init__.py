"""Output layers: from the encoder's states to a loss and to scores of items."""

from abaca.nn.outputs.encoded import Encoded
from abaca.nn.outputs.mixture import MixtureOfSoftmaxes
from abaca.nn.outputs.output import Output, OutputOptions
from abaca.nn.outputs.repeatnet import RepeatNet
from abaca.nn.outputs.softmax import Softmax
from abaca.nn.outputs.spec import OutputSpec

__all__ = ["OUTPUTS", "Encoded", "Output", "OutputOptions", "OutputSpec", "make_output"]

OUTPUTS: dict[str, type[Output]] = {
    "softmax": Softmax,
    "mos": Softmax,
    "mos-mix": MixtureOfSoftmaxes,
    "repeatnet": RepeatNet,
}
"""The layer of each base of a spec."""


def make_output(output: str | Output) -> Output:
    """A layer without weights, of a spec or like an object; `build` makes the weights."""
    if isinstance(output, Output):
        return type(output)(output.options)
    spec = OutputSpec.parse(output)
    return OUTPUTS[spec.base](spec)

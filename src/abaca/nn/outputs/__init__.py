"""Output layers: what turns the encoder's states into scores of items."""

from abaca.nn.outputs.encoded import Encoded
from abaca.nn.outputs.mixture import MixtureOfSoftmaxes
from abaca.nn.outputs.repeatnet import RepeatNet
from abaca.nn.outputs.softmax import Softmax
from abaca.nn.outputs.spec import OutputSpec

Output = Softmax | MixtureOfSoftmaxes | RepeatNet

__all__ = ["Encoded", "Output", "OutputSpec", "Softmax", "make_output"]


def make_output(spec: OutputSpec, layers: int, dim: int, catalogue: int) -> Output:
    """The output layer that a spec spells, for an encoder of `layers` layers and `dim` dimensions."""
    if spec.base == "repeatnet":
        return RepeatNet(spec, layers, dim, catalogue)
    if spec.base == "mos-mix":
        return MixtureOfSoftmaxes(spec, layers, dim)
    return Softmax(spec, layers, dim)

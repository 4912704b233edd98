"""Encoders and output layers of one's own: an object is a pattern of which a fresh model is made."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from abaca.errors import SpecError
from abaca.histories import Windows
from abaca.nn import ops
from abaca.nn.answers import answer
from abaca.nn.build import check_memory, make_model
from abaca.nn.encoders import ENCODERS, Encoder, Inputs, encoder_class
from abaca.nn.logits import Logits
from abaca.nn.ops.loss import cross_entropy
from abaca.nn.outputs import OUTPUTS, Encoded, Output, make_output
from abaca.options import TrainingOptions, training_defaults

from .cases import CASES, SPECS, question, rows_of


@dataclass(frozen=True)
class DecayOptions:
    dim: int = 8
    half_life: float = 2.0


class Decay(Encoder):
    """The items' mean, weighted by their age; by their times where they are known."""

    name = "decay"
    Options = DecayOptions
    training_defaults = {"lr": 1e-2}  # noqa: RUF012

    def __init__(self, options: DecayOptions | None = None) -> None:
        super().__init__(options)
        self.linear = nn.Linear(self.options.dim, self.options.dim)

    def forward(self, inputs: Inputs) -> Tensor:
        length, times = inputs.embedded.shape[1], inputs.windows.times
        at = torch.arange(length).expand(len(inputs.embedded), -1) if times is None else times
        age = (at.unsqueeze(2) - at.unsqueeze(1)).to(inputs.embedded)  # (B, L, L)
        weights = (-age / self.options.half_life).exp2().tril()
        return self.linear(weights @ inputs.embedded).unsqueeze(2)


@dataclass(frozen=True)
class BiasedOptions:
    start: float = 0.5


class Biased(Output):
    """A softmax with a number of its own for items of the window."""

    name = "biased"
    Options = BiasedOptions
    searchable = exportable = True

    def build(self, layers: int, dim: int, catalogue: int) -> None:
        self.query = nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.tensor(self.options.start))

    def loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        return cross_entropy(self.scores(encoded), targets)

    def scores(self, encoded: Encoded) -> Logits:
        query = self.query(encoded.rows(encoded.at_positions(encoded.states[:, :, -1])))
        ids = encoded.ids.where(torch.ones_like(encoded.ids).cumsum(1) == 1, encoded.table.shape[0])  # the first item
        values = self.bias.expand(len(query), ids.shape[1])
        return Logits(query.unsqueeze(1), encoded.table, (), encoded.overrides(ids, values))


BATCH = CASES["repeats"].batch


@pytest.mark.parametrize("output", ["softmax+CPR:3+Mi", "mos-mix:3", "repeatnet", Biased(BiasedOptions(1.5))])
@pytest.mark.parametrize("encoder", ["gru4rec", "sasrec", "hstu", Decay(DecayOptions(dim=12))])
def test_every_combination_learns_and_ranks(encoder: str | Encoder, output: str | Output) -> None:
    torch.manual_seed(0)
    options = {"dim": 12} if isinstance(encoder, str) else {}
    model = make_model(encoder, output, 14, **options)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.02), []
    for _ in range(40):
        losses.append(model.loss(BATCH.windows, BATCH.targets))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]
    found = answer(model.eval().scores(BATCH.windows), question(len(rows_of(BATCH))))
    assert found.items.shape == (len(rows_of(BATCH)), 5)


def test_an_object_is_a_pattern() -> None:
    encoder, output = Decay(DecayOptions(dim=4, half_life=3.0)), Biased(BiasedOptions(0.25))
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(make_model(encoder, output, 9, half_life=5.0))
    first, same, other = (model.encoder.linear.weight for model in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert models[0].encoder is not encoder
    assert models[0].encoder.options == DecayOptions(dim=4, half_life=5.0)
    assert models[0].output.bias == 0.25
    assert models[0].table.shape == (9, 4) == (models[0].catalogue, models[0].dim)
    assert models[0].table.std() < 0.05


def test_an_encoder_reads_times() -> None:
    model = make_model(Decay(), "softmax", 14)
    items, positions = torch.tensor([[3, 5, 8]]), torch.tensor([[2]])
    states = [
        model.encode(Windows(items, positions, times)).states[0, 2]
        for times in (None, torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.0, 1.0, 9.0]]))
    ]
    torch.testing.assert_close(states[0], states[1])
    assert not torch.allclose(states[1], states[2])


def test_what_encoders_say_of_themselves() -> None:
    assert encoder_class(Decay()) is Decay
    assert encoder_class("sasrec") is ENCODERS["sasrec"]
    assert {name: kind.name for name, kind in ENCODERS.items()} == {name: name for name in ENCODERS}
    assert ENCODERS["sasrec"].sized({"dim": 8}, 70) == {"dim": 8, "window": 70}
    assert ENCODERS["gru4rec"].sized({"dim": 8}, 70) == {"dim": 8}
    assert training_defaults(Decay()) == TrainingOptions(lr=1e-2)
    assert training_defaults("gru4rec") == TrainingOptions()
    with pytest.raises(SpecError, match="decay has no option window; it has dim, half_life"):
        make_model(Decay(), "softmax", 9, window=3)


def test_what_output_layers_say_of_themselves() -> None:
    for spec in SPECS:
        layer = make_output(spec)
        assert layer.spec == spec
        assert layer.excludes_history == spec.endswith("nodup")
        assert layer.searchable == layer.exportable == (layer.options.base in ("softmax", "mos"))
        assert make_output(layer).options == layer.options
        assert type(layer) is OUTPUTS[layer.options.base]
    assert make_output(Biased(BiasedOptions(2.0))).options.start == 2.0
    assert make_output(Biased()).spec == "biased"


def test_a_model_too_large_for_the_machine_is_refused() -> None:
    check_memory(Decay(), Biased(), 1000)
    with pytest.raises(SpecError, match=r"training decay biased for 1,000,000,000,000 items takes .* GB"):
        check_memory(Decay(), Biased(), 10**12)


@pytest.mark.parametrize("encoder", ["gru4rec", "sasrec", "hstu"])
def test_the_form_changes_rounding_only(encoder: str) -> None:
    torch.manual_seed(0)
    model = make_model(encoder, "softmax+CPR:3+Mi", 14, dim=16).eval()
    gradients = []
    for form in ("plain", "native"):
        with ops.form(form):
            loss = model.loss(BATCH.windows, BATCH.targets)
            gradients.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
    for plain, native in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, native, rtol=1e-4, atol=1e-5)

"""How a model is put together: its sizes, its first weights, and what happens at the edge of the numbers."""

import math

import pytest
import torch
from torch import nn

from abaca.errors import SpecError
from abaca.histories import Windows
from abaca.nn.answers import answer
from abaca.nn.build import make_model

from . import formula
from .cases import CASES, ENCODERS, SIZES, SPECS, Case, batch_of, final_logits, model_of, question, rows_of

each_spec = pytest.mark.parametrize("spec", SPECS)
each_encoder = pytest.mark.parametrize("encoder", ENCODERS)

BATCH = CASES["repeats"].batch


# Sizes

V, D, H = 10, 4, 3
SHAPES = {  # of the output layer on a GRU: (rows, columns) of every weight, biases apart
    "softmax": [(D, D)],
    "softmax+Mi": [(D, 3 * D), (D, 2 * D)],
    "softmax+C": [(D, D)] * 2,
    "softmax+CP": [(D, D)] * 4,
    "softmax+R:5": [(D, D)] * 2,
    "softmax+CPR:5": [(D, D)] * 5,
    "softmax+CPR:2,4,8+Mi": [(D, 3 * D)] + [(D, 2 * D)] * 7,
    "softmax+CPR:5+nodup": [(D, D)] * 5,
    "mos:3": [(D, D)] * 3,
    "mos-mix:3": [(D, D)] * 3 + [(3, D)],
    "repeatnet": [(D, D), (D, D), (1, D)] * 3 + [(2, D), (V, 2 * D)],
}


@pytest.mark.parametrize("spec", SHAPES)
def test_projections_and_their_sizes(spec: str) -> None:
    """Each projection has its own weights, plain softmax too; the item table is shared by input and output."""
    model = make_model("gru4rec", spec, V, dim=D, hidden=H)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    output = [shape for name, shape in shapes.items() if name.startswith("output.") and name.endswith(".weight")]
    assert sorted(output) == sorted(SHAPES[spec])
    biases = [name for name in shapes if name.startswith("output.") and name.endswith(".bias")]
    maps = {"mos-mix:3": 3, "repeatnet": 0}.get(spec, len(output))
    assert len(biases) == maps
    rest = {name: shape for name, shape in shapes.items() if not name.startswith("output.")}
    assert rest == {
        "items.weight": (V, D),
        "encoder.gru.weight_ih_l0": (3 * H, D),
        "encoder.gru.weight_hh_l0": (3 * H, H),
        "encoder.dense.weight": (D, H),
        "encoder.dense.bias": (D,),
    }


def test_mi_on_the_transformer_reads_two_layers() -> None:
    model = make_model("sasrec", "softmax+Mi", V, dim=D)
    assert model.output.mix.linear.weight.shape == (D, 2 * 3 * D)


# First weights


@each_spec
def test_gru4rec_begins_as_the_paper_does(spec: str) -> None:
    torch.manual_seed(0)
    model = make_model("gru4rec", spec, 300, dim=32, hidden=48)
    normal = math.sqrt(2 / (300 + 32))
    assert model.items.weight.std().item() == pytest.approx(normal, rel=0.05)
    for weight, inputs in ((model.encoder.gru.weight_ih_l0, 32), (model.encoder.gru.weight_hh_l0, 48)):
        bound = math.sqrt(6 / (3 * 48 + inputs))
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert weight.abs().max().item() <= bound


@each_spec
def test_sasrec_begins_as_the_paper_does(spec: str) -> None:
    torch.manual_seed(0)
    model = make_model("sasrec", spec, 300, dim=32)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            spread = 4 * 0.02 / math.sqrt(2 * module.weight.numel())
            assert module.weight.std().item() == pytest.approx(0.02, abs=spread)
        if isinstance(module, nn.Linear) and module.bias is not None:
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert module.weight.eq(1).all()
            assert not module.bias.any()


def test_sizes_are_the_papers_but_for_a_wider_gru() -> None:
    gru, transformer = make_model("gru4rec", "softmax", 9), make_model("sasrec", "softmax", 9)
    assert gru.items.weight.shape == transformer.items.weight.shape == (9, 64)
    assert gru.encoder.gru.hidden_size == 128
    assert transformer.encoder.position.weight.shape == (50, 64)
    assert [block.widen.weight.shape for block in transformer.encoder.blocks] == [(256, 64)] * 2
    assert [block.heads for block in transformer.encoder.blocks] == [2, 2]
    assert [block.attention_dropout for block in transformer.encoder.blocks] == [0.1, 0.1]


@each_encoder
def test_dropout_is_for_training_only(encoder: str) -> None:
    model = make_model(encoder, "softmax", 14, dim=8, dropout=0.5).double()
    torch.manual_seed(0)
    drawn = {model.train().loss(BATCH.windows, BATCH.targets).item() for _ in range(3)}
    still = {model.eval().loss(BATCH.windows, BATCH.targets).item() for _ in range(3)}
    assert len(drawn) == 3
    assert len(still) == 1


def test_attention_dropout_is_for_training_only() -> None:
    model = make_model("sasrec", "softmax", 14, dim=8, dropout=0.0, attention_dropout=0.5).double()
    torch.manual_seed(0)
    assert len({model.train().loss(BATCH.windows, BATCH.targets).item() for _ in range(3)}) == 3
    assert len({model.eval().loss(BATCH.windows, BATCH.targets).item() for _ in range(3)}) == 1


# Refused


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(SpecError, match=r"encoder 'gru' is not one of gru4rec, sasrec"):
        make_model("gru", "softmax", 9)


@each_encoder
def test_an_unknown_option_is_refused(encoder: str) -> None:
    with pytest.raises(SpecError, match=rf"{encoder} has no option depth; it has .*dropout"):
        make_model(encoder, "softmax", 9, depth=3)


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(SpecError, match="did you mean softmax"):
        make_model("gru4rec", "softmaxx", 9)


def test_a_window_longer_than_the_positions_is_refused() -> None:
    model = make_model("sasrec", "softmax", V, dim=4, window=3)
    with pytest.raises(SpecError, match="a window of 4 items is longer than the 3 positions of this sasrec"):
        model.scores(Windows(torch.zeros(1, 4, dtype=torch.long), torch.tensor([[3]])))


def test_a_size_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(SpecError, match="heads"):
        make_model("sasrec", "softmax", 9, dim=5)


# Precision


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@each_spec
@each_encoder
def test_float32_is_close_to_float64(encoder: str, spec: str, case: Case) -> None:
    """What trains in float32, by whichever code, is what the equation tests check in float64."""
    fine = model_of(encoder, spec, case.catalogue)
    coarse = make_model(encoder, spec, case.catalogue, **SIZES[encoder]).eval()
    coarse.load_state_dict(fine.state_dict())
    losses = [model.loss(case.batch.windows, case.batch.targets) for model in (fine, coarse)]
    for loss in losses:
        (0.7 * loss).backward()
    with torch.no_grad():
        torch.testing.assert_close(
            coarse.loss(case.batch.windows, case.batch.targets), losses[1].detach(), rtol=1e-6, atol=1e-6
        )
    assert losses[1].dtype == torch.float32
    torch.testing.assert_close(losses[1].double(), losses[0], rtol=1e-5, atol=1e-5)
    for one, other in zip(fine.parameters(), coarse.parameters(), strict=True):
        torch.testing.assert_close(other.grad.double(), one.grad, rtol=1e-4, atol=4e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@each_spec
@each_encoder
def test_extreme_logits_stay_finite(encoder: str, spec: str, dtype: torch.dtype) -> None:
    model = extreme(encoder, spec).to(dtype)
    loss = model.loss(BATCH.windows, BATCH.targets)
    loss.backward()
    assert loss.isfinite()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    found = answer(model.scores(BATCH.windows), question(len(rows_of(BATCH)), n=14))
    assert not found.logits.isnan().any()
    assert found.normaliser.isfinite().all()


@each_spec
@each_encoder
def test_extreme_logits_follow_the_formula(encoder: str, spec: str) -> None:
    """A probability that underflows still has a logarithm."""
    model = extreme(encoder, spec)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    expected = formula.loss(weights, encoder, spec, BATCH)
    torch.testing.assert_close(model.loss(BATCH.windows, BATCH.targets).detach(), expected, rtol=1e-9, atol=1e-9)
    found = final_logits(model.scores(BATCH.windows)).log_softmax(dim=1)
    for row, (history, states, _) in zip(found, formula.rows(weights, encoder, BATCH), strict=True):
        scores = torch.tensor(formula.ranked_scores(weights, spec, history, states), dtype=torch.float64)
        torch.testing.assert_close(row, scores.log_softmax(dim=0), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("target", [3, 5, 8])
def test_repeatnet_attention_that_underflows_still_has_a_logarithm(target: int) -> None:
    """An item that attention all but ignores is unlikely, not certain."""
    model = model_of("gru4rec", "repeatnet")
    with torch.no_grad():
        model.output.repeat.v.weight *= 50_000
    weights = dict(model.named_parameters())
    batch = batch_of([[3, 5, 3, 8]], [[3]], [[target]])
    expected = formula.loss(weights, "gru4rec", "repeatnet", batch)
    torch.testing.assert_close(model.loss(batch.windows, batch.targets), expected, rtol=1e-9, atol=1e-9)
    log_probability = final_logits(model.scores(batch.windows)).log_softmax(dim=1)
    torch.testing.assert_close(-log_probability[0, target], expected.detach(), rtol=1e-9, atol=1e-9)


def extreme(encoder: str, spec: str) -> nn.Module:
    """Every weight fifty times as large."""
    model = model_of(encoder, spec)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 50
    return model


@pytest.mark.parametrize("output", ["softmax", "softmax+CPR:5+Mi", "mos:2", "mos-mix:2", "repeatnet"])
def test_the_table_has_the_gradients_of_both_its_uses(output: str) -> None:
    """As a row that the encoder reads, and as a row that is scored: against differences of the loss."""
    batch = CASES["repeats"].batch
    model = model_of("gru4rec", output)
    gradient = torch.autograd.grad(model.loss(batch.windows, batch.targets), model.items.weight)[0]
    with torch.no_grad():
        for item in (0, 3, 10):
            entry, around = model.items.weight[item, 2:3], []
            for step in (1e-6, -2e-6):
                entry += step
                around.append(model.loss(batch.windows, batch.targets).item())
            entry += 1e-6
            assert gradient[item, 2].item() == pytest.approx((around[0] - around[1]) / 2e-6, rel=1e-4, abs=1e-6)

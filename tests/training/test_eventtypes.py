"""Types of events in training: which targets are trained, their weights, and what the encoder reads."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch

from abaca.data.batches import Epochs
from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.data.synthetic import FROM_CART, VIEWED, synthetic_log
from abaca.errors import SpecError
from abaca.histories import EventTypes, Histories, Windows
from abaca.nn.build import make_model
from abaca.nn.model import Model
from abaca.nn.outputs import Output
from abaca.options import TrainingOptions
from abaca.training.eventweights import conversions, type_weights
from abaca.training.trainer import Trainer

TYPES = EventTypes(("buy", "cart", "view"), (0,), 0)
OUTPUTS = ("softmax+CPR:3+Mi", "mos:2", "mos-mix:2", "repeatnet")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequences]:
    options = PrepareOptions(targets_of=("buy",))
    with read_log(synthetic_log("view-then-buy", 200, 60, 25, 0)) as log:
        yield prepare(log, tmp_path_factory.mktemp("shop") / "s", options=options)


def epochs(sequences: Sequences, weights: list[float] | None) -> Epochs:
    found = None if weights is None else np.array(weights, dtype=np.float32)
    begin, end = np.asarray(sequences.offsets[:-1]), np.asarray(sequences.train_end)
    return Epochs(sequences.items, sequences.times, begin, end, 4, 3, 30, 0, sequences.events, found)


def test_every_target_of_a_weighted_type_is_trained_once_with_its_weight(shop: Sequences) -> None:
    """Targets, their times and weights are those of the log, and inputs are strictly before them."""
    assert shop.times is not None
    assert shop.events is not None
    weights = [1.0, 0.25, 0.0]
    trained = []
    for windows, targets, weight, _ in epochs(shop, weights).batches(0):
        assert weight is not None
        assert windows.now is not None
        assert windows.types is not None
        assert windows.times is not None
        assert ((targets >= 0) == (windows.positions >= 0)).all()
        assert ((targets >= 0) == (weight > 0)).all()
        for row, column in zip(*np.nonzero(targets >= 0), strict=True):
            place = windows.positions[row, column]
            assert windows.times[row, place] == windows.now[row, column] - 1  # the interaction right before
            trained.append((targets[row, column], weight[row, column]))
        assert {str(part.dtype) for part in (windows.types, targets)} == {"int64"}
    expected = [
        (shop.items[place], weights[shop.events[place]])
        for begin, end in zip(shop.offsets[:-1], shop.train_end, strict=True)
        for place in range(begin + 1, end)
        if weights[shop.events[place]]
    ]
    assert sorted(trained) == sorted(expected)


def test_equal_weights_are_no_weights(shop: Sequences) -> None:
    for batch in epochs(shop, [0.5, 0.0, 0.0]).batches(0):
        assert batch.weights is None
    counts = [int((batch.targets >= 0).sum()) for batch in epochs(shop, [0.5, 0.0, 0.0]).batches(0)]
    assert sum(counts) == shop.training_targets
    assert max(counts) <= 30 + 4  # a batch has about as many targets as it is asked for


def test_types_of_the_inputs_are_those_of_the_log(shop: Sequences) -> None:
    assert shop.times is not None
    assert shop.events is not None
    first = {time: place for place, time in enumerate(shop.times[: shop.offsets[1]])}
    for windows, *_ in epochs(shop, None).batches(0):
        assert windows.types is not None
        assert windows.times is not None
        places = np.array([[first[time] for time in row] for row in windows.times])  # all users have the same rounds
        assert (windows.types == shop.events[places])[windows.items >= 0].all()


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("form", ["float32", "float64"])
def test_weights_are_those_of_the_formula(output: str, form: str) -> None:
    """The weighted loss is Σ w · loss of each target alone, with the gradients of that sum."""
    torch.manual_seed(0)
    model = make_model("gru4rec", output, 12, dim=8, hidden=8, dropout=0.0)
    model = model.double() if form == "float64" else model
    items, positions = torch.tensor([[1, 2, 1, 3], [4, 4, 5, -1]]), torch.tensor([[1, 3], [2, -1]])
    targets, weights = torch.tensor([[1, 7], [4, -1]]), torch.tensor([[0.5, 2.0], [0.25, 0.0]])
    windows = Windows(items, positions)
    found = gradients(model, model.loss(windows, targets, weights=weights.to(model.table.dtype)))
    parts = []
    for row, column in ((0, 0), (0, 1), (1, 0)):
        one = Windows(items[row : row + 1], positions[row : row + 1, column : column + 1])
        parts.append(weights[row, column] * model.loss(one, targets[row : row + 1, column : column + 1]))
    expected = gradients(model, torch.stack(parts).sum())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def gradients(model: Model, loss: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return [loss.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


@pytest.mark.parametrize("encoder", ["gru4rec", "sasrec", "hstu"])
def test_types_are_added_to_the_items_that_the_encoder_reads(encoder: str) -> None:
    torch.manual_seed(0)
    plain = make_model(encoder, "softmax+CP", 9, dim=8).eval()
    torch.manual_seed(0)
    typed = make_model(encoder, "softmax+CP", 9, dim=8, types=TYPES).eval()
    items, positions = torch.tensor([[1, 2, 1, 3, 4, 5, 6, 7, 8, 0]]), torch.tensor([[9]])
    types = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]])

    def logits(model: Model, types: torch.Tensor | None) -> torch.Tensor:
        (tile,) = model.scores(Windows(items, positions, types=types)).tiles()
        return tile.logits

    assert torch.equal(logits(plain, None), logits(typed, types))  # at first a type changes nothing
    assert torch.equal(logits(plain, None), logits(plain, types))  # a model without types does not read them
    assert typed.type_table is not None
    with torch.no_grad():
        typed.type_table.weight.normal_()
    assert not torch.equal(logits(typed, types), logits(plain, None))
    assert not torch.equal(logits(typed, types), logits(typed, types.flip(1)))
    usual = torch.full_like(types, TYPES.usual)
    assert torch.equal(logits(typed, None), logits(typed, usual))  # an event without a type has the usual one
    encoded = typed.encode(Windows(items, positions, types=types))  # the other way through the GRU
    tile = typed.output.logits(encoded).tile()  # type: ignore[operator]
    torch.testing.assert_close(tile.logits, logits(typed, types))


def test_shares_of_views_and_carts_that_lead_to_purchases_are_recovered(tmp_path: Path) -> None:
    with read_log(synthetic_log("view-then-buy", 2000, 60, 25, 1)) as log:
        sequences = prepare(log, tmp_path / "s", options=PrepareOptions(targets_of=("buy",)))
    found = conversions(sequences.training(), TYPES)  # without the purchases that are held out
    assert found[1] == pytest.approx(FROM_CART, abs=0.02)
    assert found[2] == pytest.approx(1 / VIEWED)
    weights = type_weights(sequences, "auto")
    assert weights is not None
    assert weights.tolist() == [1.0, *found[1:].tolist()]


def test_a_share_counts_later_events_of_the_same_user_and_item() -> None:
    """Views with a later purchase: two of the first user, of the same item once; one of the second, of another item."""
    rows = Histories.of([[1, 2, 1, 1, 2], [2, 1], [1]], types=[[2, 2, 0, 2, 2], [2, 0], [2]])
    assert conversions(rows, TYPES).tolist() == [0.0, 0.0, pytest.approx(1 / 3)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", [1, 0, 0]), ("cart=0.5", [1, 0.5, 0]), ("buy=2, view=.25", [2, 0, 0.25]), ("cart=1,view=1", None)],
)
def test_given_weights_change_the_default(shop: Sequences, given: str, expected: list[float] | None) -> None:
    found = type_weights(shop, given)
    assert (None if found is None else found.tolist()) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sold=1", "'sold' is no type of the log; it has buy, cart, view"),
        ("buy=0", "are all 0"),
        ("buy", "'buy' is not like buy=1"),
        ("buy=-1", "not like buy=1"),
        ("buy=nan", "not like buy=1"),
    ],
)
def test_wrong_weights_are_refused(shop: Sequences, given: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        type_weights(shop, given)


def test_weights_need_an_output_layer_that_reads_them(shop: Sequences) -> None:
    class Plain(Output):
        name = "plain"

    model = make_model("gru4rec", Plain(), shop.catalogue.size, dim=4, hidden=8, types=shop.types)
    with pytest.raises(SpecError, match="the loss of plain has no weights"):
        Trainer(model, shop, TrainingOptions())


def test_weights_change_what_is_trained(shop: Sequences) -> None:
    def losses(**options: Any) -> list[float]:
        torch.manual_seed(0)
        model = make_model("gru4rec", "softmax+C", shop.catalogue.size, dim=8, hidden=8, types=shop.types)
        trainer = Trainer(model, shop, TrainingOptions(epochs=2, **options))
        seen: list[float] = []
        for batch in trainer.epochs.batches(0):
            seen.append(trainer._step(batch)[0])
        return seen

    one, scaled, other = (losses(event_weights=given) for given in ("cart=0.5", "cart=1,buy=2", "cart=0.1"))
    assert scaled == pytest.approx(one, rel=1e-6)  # only the proportions matter
    assert len(other) == len(one)
    assert other != pytest.approx(one, rel=1e-5)


def test_without_types_weights_are_refused(tmp_path: Path) -> None:
    log = pyarrow.table({"user": [1, 1, 1, 1], "item": [1, 2, 3, 4]})
    with read_log(log) as read:
        plain = prepare(read, tmp_path / "s", options=PrepareOptions(min_user=1))
    assert type_weights(plain, "") is None
    with pytest.raises(SpecError, match="`event_weights` needs types of events"):
        type_weights(plain, "buy=1")
    with pytest.raises(SpecError, match="two weights of 'buy'"):
        TrainingOptions(event_weights="buy=1,view=0.2,buy=2")
    assert dataclasses.replace(TrainingOptions(), event_weights="auto").event_weights == "auto"

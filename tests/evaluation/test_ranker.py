"""What a ranker asks the model, and ranks up to a cutoff as an evaluation finds them."""

import numpy as np
import pytest
import torch

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences, Targets
from abaca.errors import SpecError
from abaca.evaluation.evaluate import evaluate
from abaca.evaluation.ranker import ModelRanker, distinct
from abaca.nn.build import make_model
from abaca.nn.model import Model

OUTPUTS = ("softmax", "softmax+CPR:4+Mi", "softmax+CP+nodup", "mos-mix:2", "repeatnet")


@pytest.mark.parametrize("catalogue", [50, 10**8])  # a table of all items, and too many of them for one
def test_every_item_of_a_history_stands_once(catalogue: int) -> None:
    rng = np.random.default_rng(0)
    histories = [rng.integers(0, 50, size).astype(np.int32) for size in rng.integers(1, 40, 30)]
    rows = distinct(histories, catalogue).tolist()
    width = max(len(set(history.tolist())) for history in histories)
    for row, history in zip(rows, histories, strict=True):
        own = sorted(set(history.tolist()))
        assert row == own + [catalogue] * (width - len(own))


def model_of(output: str, catalogue: int) -> Model:
    torch.manual_seed(1)
    model = make_model("gru4rec", output, catalogue, dim=8, hidden=8)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model


@pytest.fixture(scope="module")
def with_cold(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    """Items that come after training ended stand among the histories and the targets; some users have no other."""
    rng = np.random.default_rng(3)
    rows = [
        (user, int(rng.integers(12)) + 20 * (time >= 10 and rng.random() < 0.4), time)
        for user in range(80)
        for time in sorted(rng.choice(30, int(rng.integers(2, 9)), replace=False).tolist())
    ]
    log = tmp_path_factory.mktemp("cold") / "log.csv"
    log.write_text("user,item,time\n" + "".join(f"{user},{item},{time}\n" for user, item, time in rows))
    options = PrepareOptions(min_user=1, split="time", valid_from=10, test_from=20)
    return prepare(read_log(log), log.parent / "sequences", options=options)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("log", ["small", "with_cold"])
@pytest.mark.parametrize("cutoff", [1, 5, 100])
def test_ranks_up_to_a_cutoff(
    output: str, split: str, log: str, cutoff: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abaca.evaluation.ranker.MOST_TOGETHER", 32)
    sequences = request.getfixturevalue(log)
    catalogue = sequences.catalogue.size
    ranker = ModelRanker(model_of(output, catalogue), window=7)
    full = evaluate(ranker, sequences, split, cutoffs=(cutoff,))
    expected = np.where(full.rank <= min(cutoff, catalogue), full.rank, catalogue + 1)
    assert ranker.ranks(sequences, split, cutoff).tolist() == expected.tolist()
    assert ranker.means(sequences, split, cutoff) == {name: full.mean(name) for name in full.metric_names}


def test_the_log_with_cold_items_has_what_it_should(with_cold: Sequences) -> None:
    catalogue, test = with_cold.catalogue.size, with_cold.test
    histories = [with_cold.history(user, position) for user, position in zip(*test, strict=True)]
    assert (with_cold.items[test.positions] >= catalogue).any()
    assert any((history >= catalogue).any() and (history < catalogue).any() for history in histories)
    assert any(len(history) and (history >= catalogue).all() for history in histories)


def test_only_targets_can_be_ranked(small: Sequences) -> None:
    ranker = ModelRanker(model_of("softmax", small.catalogue.size), window=7)
    chosen = Targets(small.test.users[5:8], small.test.positions[5:8])
    assert ranker.ranks(small, chosen).tolist() == ranker.ranks(small)[5:8].tolist()
    first = Targets(small.test.users, small.offsets[small.test.users])
    assert ranker.ranks(small, first, 10).tolist() == [small.catalogue.size + 1] * 60, "nothing came before"
    with pytest.raises(SpecError, match="got targets 'train'"):
        ranker.ranks(small, "train")

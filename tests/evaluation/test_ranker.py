"""A model as a ranker: what an evaluation finds is what the model says of each history alone."""

import numpy as np
import pytest
import torch

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences, Targets
from abaca.errors import SpecError
from abaca.evaluation.evaluate import evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.histories import Windows
from abaca.nn.build import make_model
from abaca.nn.model import Model

OUTPUTS = ("softmax", "softmax+CPR:4+Mi", "softmax+CP+nodup", "mos-mix:2", "repeatnet")


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
@pytest.mark.parametrize("log", ["small", "with_cold"])
def test_ranks_are_those_of_each_history_alone(
    output: str, log: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches, lengths and order do not matter; a target that is not listed before is ranked among all items."""
    sequences = request.getfixturevalue(log)
    catalogue = sequences.catalogue.size
    model = model_of(output, catalogue).eval()
    monkeypatch.setattr("abaca.evaluation.evaluate.CHUNK", 16)
    full = evaluate(ModelRanker(model, window=7), sequences, "test")
    for place, (user, position) in enumerate(zip(*sequences.test, strict=True)):
        history = sequences.history(user, position)
        window, target = history[history < catalogue][-7:].astype(np.int64), int(sequences.items[position])
        missed = target >= catalogue or not len(window) or (output.endswith("nodup") and target in window)
        if missed:
            assert full.rank[place] == full.shelf_rank[place] == catalogue + 1
            continue
        (tile,) = model.scores(Windows(torch.tensor(window)[None], torch.tensor([[len(window) - 1]]))).tiles()
        logits = tile.logits[0, :-1]
        others = torch.arange(catalogue) != target
        assert full.rank[place] == 1 + int((logits[others] >= logits[target]).sum())
        owned = torch.isin(torch.arange(catalogue), torch.from_numpy(history.astype(np.int64)))
        shelf = others & (owned if full.repeat[place] else ~owned)
        assert full.shelf_rank[place] == 1 + int((logits[shelf] >= logits[target]).sum())
        assert full.repeat[place] == owned[target]


def test_the_log_with_cold_items_has_what_it_should(with_cold: Sequences) -> None:
    catalogue, test = with_cold.catalogue.size, with_cold.test
    histories = [with_cold.history(user, position) for user, position in zip(*test, strict=True)]
    assert (with_cold.items[test.positions] >= catalogue).any()
    assert any((history >= catalogue).any() and (history < catalogue).any() for history in histories)
    assert any(len(history) and (history >= catalogue).all() for history in histories)


def test_a_choice_of_targets_can_be_ranked(small: Sequences) -> None:
    ranker = ModelRanker(model_of("softmax", small.catalogue.size), window=7)
    chosen = Targets(small.test.users[5:8], small.test.positions[5:8])
    assert evaluate(ranker, small, chosen).rank.tolist() == evaluate(ranker, small).rank[5:8].tolist()
    first = Targets(small.test.users, small.offsets[small.test.users])
    assert evaluate(ranker, small, first).rank.tolist() == [small.catalogue.size + 1] * 60, "nothing came before"
    with pytest.raises(SpecError, match="got targets 'train'"):
        evaluate(ranker, small, "train")

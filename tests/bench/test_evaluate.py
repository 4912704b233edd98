"""Evaluation from remembered states is the same evaluation."""

import pytest

from abaca.bench.evaluate import (
    ALONE,
    ALONE_GIVEN,
    GIVEN,
    PARTS,
    WHOLE,
    EvaluateBench,
    Ranking,
    Recalled,
    Recorder,
    rank_test,
)
from abaca.data.sequences import Sequences
from abaca.nn.build import make_model


@pytest.mark.parametrize("output", ["softmax", "softmax+CPR:5+Mi", "repeatnet"])
def test_remembered_states_give_the_same_metrics(small: Sequences, output: str) -> None:
    model = make_model("gru4rec", output, small.catalogue.size, dim=8, hidden=8)
    recorder = Recorder(model)
    metrics = rank_test(recorder, small)
    assert metrics == rank_test(model, small)
    assert metrics == rank_test(Recalled(model, recorder.kept), small)
    assert set(metrics) == {"ndcg@10", "hr@10", "mrr@10"}
    alone = Recorder(model)
    assert rank_test(alone, small, alone=True) == metrics
    assert rank_test(Recalled(model, alone.kept), small, alone=True) == metrics


@pytest.mark.parametrize(("whole", "given"), [(WHOLE, GIVEN), (ALONE, ALONE_GIVEN)])
def test_given_states_the_encoder_is_not_asked(
    small: Sequences, monkeypatch: pytest.MonkeyPatch, whole: str, given: str
) -> None:
    model = make_model("gru4rec", "softmax", small.catalogue.size, dim=8, hidden=8)
    ranking, asked = Ranking(model, small), []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *inputs: asked.append(1) or encode(*inputs))
    ranking.spend(given)
    remembered = len(asked)
    assert ranking.spend(given).targets == len(small.test.users)
    assert len(asked) == remembered > 0
    ranking.spend(whole)
    assert len(asked) > remembered


def test_each_part_is_compared_with_the_same_part_of_softmax(small: Sequences) -> None:
    bench = EvaluateBench(small.path, ("gru4rec",), ("softmax", "softmax+C"))
    names = list(bench.contenders())
    assert names[4:] == [f"gru4rec softmax+C, {part}" for part in PARTS]
    assert [bench.references(name)["softmax"] for name in names] == names[:4] * 2

"""Evaluation from remembered states is the same evaluation."""

import pytest

from abaca.bench.evaluate import GIVEN, WHOLE, EvaluateBench, Ranking, Recalled, Recorder, rank_test
from abaca.data.sequences import Sequences
from abaca.nn.model import make_model


@pytest.mark.parametrize("output", ["softmax", "softmax+CPR:5+Mi", "repeatnet"])
def test_remembered_states_give_the_same_metrics(small: Sequences, output: str) -> None:
    model = make_model("gru4rec", output, small.catalogue.size, dim=8, hidden=8)
    recorder = Recorder(model)
    metrics = rank_test(recorder, small)
    assert metrics == rank_test(model, small)
    assert metrics == rank_test(Recalled(model, recorder.kept), small)
    assert set(metrics) == {"ndcg@10", "hr@10", "mrr@10"}


def test_given_states_the_encoder_is_not_asked(small: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gru4rec", "softmax", small.catalogue.size, dim=8, hidden=8)
    ranking, asked = Ranking(model, small), []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *inputs: asked.append(1) or encode(*inputs))
    ranking.spend(GIVEN)
    remembered = len(asked)
    assert ranking.spend(GIVEN).targets == len(small.test.users)
    assert len(asked) == remembered > 0
    ranking.spend(WHOLE)
    assert len(asked) > remembered


def test_each_part_is_compared_with_the_same_part_of_softmax(small: Sequences) -> None:
    bench = EvaluateBench(small.path, ("gru4rec",), ("softmax", "softmax+C"))
    names = list(bench.contenders())
    assert names[2:] == ["gru4rec softmax+C, evaluation", "gru4rec softmax+C, evaluation given states"]
    assert [bench.references(name)["softmax"] for name in names] == names[:2] * 2

"""Evaluation from remembered states is the same evaluation."""

import pytest

from abaca.bench.evaluate import GIVEN, WHOLE, EvaluateBench, Ranking, encoding_by
from abaca.data.sequences import Sequences
from abaca.nn.build import make_model


@pytest.mark.parametrize("output", ["softmax", "softmax+CPR:5+Mi", "repeatnet"])
def test_remembered_states_give_the_same_ranks_without_the_encoder(
    small: Sequences, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("gru4rec", output, small.catalogue.size, dim=8, hidden=8)
    ranking = Ranking(model, small)
    expected = ranking.evaluate().rank.tolist()
    assert ranking.spend(GIVEN).targets == len(small.test.users)
    assert ranking.states
    monkeypatch.setattr(type(model), "encode", None)
    states = iter(ranking.states)
    with encoding_by(model, lambda windows: next(states)):
        assert ranking.evaluate().rank.tolist() == expected
    ranking.spend(GIVEN)
    with pytest.raises(TypeError):
        ranking.spend(WHOLE)


def test_each_part_is_compared_with_the_same_part_of_softmax(small: Sequences) -> None:
    bench = EvaluateBench(small.path, ("gru4rec",), ("softmax", "softmax+C"))
    names = list(bench.contenders())
    assert names[2:] == [f"gru4rec softmax+C, {part}" for part in (WHOLE, GIVEN)]
    assert [bench.references(name)["softmax"] for name in names] == names[:2] * 2

"""The terms of a logit: they add up to it, and each is that of the formula."""

import numpy as np
import pytest
import torch

from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.evidence import Evidence
from abaca.evidence.habits import EDGES, KINDS
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.nn.outputs.spec import EVIDENCE

from . import formula
from .samples import ASKED, FADE, ROWS, WINDOW, V, evidence, ranker, weights

SPECS = ["softmax", "softmax+CP", "softmax+CPR:4", "repeatnet"]
N = 12


def asked(of: ModelRanker, histories: Histories, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """The best items (B, n) and their logits."""
    count = len(histories)
    nothing = torch.empty(count, 0).long()
    found = of.ask(histories, Question(torch.full((count,), -1), n, nothing, nothing))
    return found.items.numpy(), found.logits.double().numpy()


def added(terms: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(sum(np.nan_to_num(values) for values in terms.values()))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("parts", [EVIDENCE, ("habits",), ("followers",)])
def test_each_term_is_that_of_the_formula(spec: str, parts: tuple[str, ...]) -> None:
    of, histories, given = ranker(spec, evidence(parts)), Histories.of(ASKED), weights()
    items, logits = asked(of, histories)
    terms = of.explain(histories, items, logits).terms
    np.testing.assert_allclose(added(terms), logits, atol=1e-5)
    all_items, network = asked(ranker(spec, None), histories, V)  # the network alone
    table = given.by_habit(KINDS["order"])
    for row, history in enumerate(ASKED):
        own_logit = dict(zip(all_items[row].tolist(), network[row].tolist(), strict=True))
        strength = formula.followers(ROWS, history, V, FADE)
        for place, item in enumerate(items[row].tolist()):
            found = {name: values[row, place] for name, values in terms.items() if not np.isnan(values[row, place])}
            own = item in history
            expected = {"network": (given.own_scale if own else given.scale) * own_logit[item]}
            if own and "habits" in parts:
                expected["own"] = given.own
                for name, value in formula.habits(history, item, WINDOW).items():
                    expected[name] = table[name][np.searchsorted(EDGES[name], value, "right")]
            if "followers" in parts:
                gain = np.log1p(given.sharpness * strength[item])
                expected["followers"] = (given.own_followers if own else given.followers) * gain
            assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("spec", SPECS)
def test_without_evidence_the_network_is_all(spec: str) -> None:
    of, histories = ranker(spec, None), Histories.of(ASKED)
    items, logits = asked(of, histories)
    ((name, values),) = of.explain(histories, items, logits).terms.items()
    assert name == "network"
    np.testing.assert_array_equal(values, logits)


def test_it_does_not_matter_what_was_asked_last() -> None:
    """The evidence of the last question is kept for the next one, but never taken for another's."""
    of, histories, others = ranker("softmax", evidence()), Histories.of(ASKED), Histories.of(ASKED[::-1])
    items, logits = asked(of, histories)
    first = of.explain(histories, items, logits).terms
    asked(of, others)
    for again in (
        of.explain(histories, items, logits),
        ranker("softmax", evidence()).explain(histories, items, logits),
    ):
        assert list(again.terms) == list(first)
        for name, values in again.terms.items():
            np.testing.assert_array_equal(values, first[name])


def test_evidence_is_read_once_for_a_question_and_its_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    read, counted = Evidence.read, []
    monkeypatch.setattr(Evidence, "read", lambda self, given: counted.append(len(given)) or read(self, given))
    of, histories = ranker("softmax", evidence()), Histories.of(ASKED)
    of.explain(histories, *asked(of, histories))
    assert counted == [len(ASKED)]


def test_slots_without_an_item_claim_nothing() -> None:
    of, histories = ranker("softmax", evidence()), Histories.of(ASKED)
    items, logits = asked(of, histories)
    items[0, 3:], logits[0, 3:] = V, 0.0
    terms = of.explain(histories, items, logits).terms
    np.testing.assert_allclose(added(terms)[0, :3], logits[0, :3], atol=1e-5)
    assert np.isnan(terms["own"][0, 3:]).all()
    none = of.explain(histories, items[:, :0], logits[:, :0]).terms
    assert {values.shape for values in none.values()} == {(len(ASKED), 0)}


@pytest.mark.parametrize("fade", [1.0, 0.25])
def test_the_source_of_a_follower_is_the_one_with_the_largest_part(fade: float) -> None:
    transitions = Transitions.count(Histories.of(ROWS), V)
    pairs = [(row, item) for row in range(len(ASKED)) for item in range(V)]
    rows, items = (np.array(column) for column in zip(*pairs, strict=True))
    found = transitions.sources(Histories.of(ASKED), rows, items, fade)
    counts = np.bincount(np.concatenate(ROWS), minlength=V)
    some = 0
    for (row, item), source, times in zip(pairs, found.items.tolist(), found.times.tolist(), strict=True):
        parts: dict[int, float] = {}  # of the item at its best place
        pair = {other: formula.followers(ROWS, [other], V)[item] * np.sqrt(counts[other]) for other in set(ASKED[row])}
        for back, other in enumerate(reversed(ASKED[row][-20:]), start=1):
            parts[other] = max(parts.get(other, 0.0), pair[other] / (back**fade * np.sqrt(max(counts[other], 1))))
        best = max(parts.values())
        assert (source < 0) == (best == 0)
        if best:
            some += 1
            assert parts[source] == pytest.approx(best)
            assert times == pytest.approx(pair[source])
    assert some > 50
    assert len(transitions.sources(Histories.of(ASKED), rows[:0], items[:0]).items) == 0

"""Recommendations under every policy, against probabilities that are worked out the long way."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from abaca.data.catalogue import Catalogue
from abaca.errors import QueryError
from abaca.evaluation.ranker import ModelRanker
from abaca.histories import Histories, Windows
from abaca.nn.answers import Question, answer
from abaca.nn.build import make_model
from abaca.policy import Policy
from abaca.recommendation import Advisor, Recommendation, Recommendations

ITEMS = 20
WINDOW = 6
IDS = [f"id {i}" for i in range(ITEMS)]
HISTORY = ["id 3", "id 5", "id 3", "id 9"]
SPECS = ["softmax", "softmax+C", "softmax+CPR:4", "mos:2+CP+Mi", "mos-mix:2", "repeatnet"]


def advisor(output: str = "softmax+CPR:4", ids: list[Any] = IDS, window: int = WINDOW, seed: int = 0) -> Advisor:
    torch.manual_seed(seed)
    model = make_model("gru4rec", output, len(ids), dim=6, hidden=6)
    with torch.no_grad():
        model.items.weight.normal_(std=0.8)  # far from uniform
    return Advisor(ModelRanker(model, window), Catalogue(ids, columns={"title": [f"Item {i}" for i in ids]}))


def ask(history: list[Any], output: str = "softmax+CPR:4", **policy: Any) -> Recommendations:
    return advisor(output).recommend([history], Policy(**policy))[0]


def probabilities(output: str, history: list[str], window: int = WINDOW) -> dict[str, float]:
    """Every id's probability, from the model's logits and a plain softmax."""
    model = advisor(output).ranker.model.eval()
    items = torch.tensor([[IDS.index(id) for id in history][-window:]])
    positions = torch.tensor([[items.shape[1] - 1]])
    (tile,) = model.scores(Windows(items, positions)).tiles()
    return dict(zip(IDS, torch.softmax(tile.logits[0, :-1].double(), 0).tolist(), strict=True))


def best_first(chances: dict[str, float], allowed: Any = IDS) -> list[str]:
    return sorted((id for id in IDS if id in set(allowed)), key=lambda id: -chances[id])


@pytest.mark.parametrize("output", SPECS)
def test_auto_gives_the_most_likely_items_with_their_probability(output: str) -> None:
    chances = probabilities(output, HISTORY)
    answer = ask(HISTORY, output, n=7)
    assert answer.ids == best_first(chances)[:7]
    assert [item.probability for item in answer] == pytest.approx([chances[id] for id in answer.ids], rel=1e-4)
    assert answer.repeat_probability == pytest.approx(sum(chances[id] for id in set(HISTORY)), rel=1e-4)
    assert answer.unknown == ()


@pytest.mark.parametrize("output", SPECS)
def test_the_whole_catalogue_has_probability_one(output: str) -> None:
    for n in (ITEMS, ITEMS + 30):
        answer = ask(HISTORY, output, n=n)
        assert len(answer) == ITEMS
        assert sorted(answer.ids) == sorted(IDS)
        assert sum(item.probability for item in answer) == pytest.approx(1, abs=1e-5)
    assert sum(item.probability for item in ask(HISTORY, output, n=5)) < 1


POLICIES: dict[str, tuple[dict[str, Any], Any]] = {
    "exclude": ({"repeats": "exclude"}, lambda id: id not in HISTORY),
    "only": ({"repeats": "only"}, lambda id: id in HISTORY),
    "exclude list": ({"exclude": ("id 3", "id 7")}, lambda id: id not in ("id 3", "id 7")),
    "candidates": ({"candidates": ("id 3", "id 11", "id 7", "id 3")}, lambda id: id in ("id 3", "id 11", "id 7")),
    "no candidates": ({"candidates": ()}, lambda id: False),
    "new candidates": ({"candidates": ("id 3", "id 7"), "repeats": "exclude"}, lambda id: id == "id 7"),
    "old candidates": ({"candidates": ("id 3", "id 7"), "repeats": "only"}, lambda id: id == "id 3"),
    "both lists": ({"candidates": ("id 3", "id 7"), "exclude": ("id 3",)}, lambda id: id == "id 7"),
    "no repeats": ({"max_repeat_share": 0.0}, lambda id: id not in HISTORY),
}


@pytest.mark.parametrize("output", ["softmax", "softmax+CPR:4", "mos-mix:2", "repeatnet"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("n", [2, ITEMS])
def test_a_policy_chooses_and_changes_no_probability(output: str, policy: str, n: int) -> None:
    options, allows = POLICIES[policy]
    chances = probabilities(output, HISTORY)
    answer = ask(HISTORY, output, n=n, **options)
    assert answer.ids == best_first(chances, [id for id in IDS if allows(id)])[:n]  # filled up to n where possible
    assert [item.probability for item in answer] == pytest.approx([chances[id] for id in answer.ids], rel=1e-4)
    assert answer.repeat_probability == pytest.approx(sum(chances[id] for id in set(HISTORY)), rel=1e-4)


@pytest.mark.parametrize(("share", "most"), [(0.0, 0), (0.1, 0), (0.25, 1), (0.5, 2), (0.74, 2), (0.75, 3), (1.0, 4)])
def test_the_share_of_repeats_is_capped_and_the_rest_filled_with_new_items(share: float, most: int) -> None:
    history = ["id 3", "id 5", "id 9", "id 1", "id 2"]
    chances = probabilities("softmax+C", history)
    repeats, new = best_first(chances, history), best_first(chances, set(IDS) - set(history))
    answer = ask(history, "softmax+C", n=4, max_repeat_share=share)
    assert answer.ids == best_first(chances, [*repeats[:most], *new[:4]])[:4]
    assert sum(item.repeat for item in answer) <= most
    assert [item.probability for item in answer] == pytest.approx([chances[id] for id in answer.ids], rel=1e-4)


def test_only_repeats_keep_to_the_cap_as_well() -> None:
    assert len(ask(HISTORY, n=3, repeats="only")) == 3
    assert len(ask(HISTORY, n=4, repeats="only", max_repeat_share=0.5)) == 2
    assert len(ask(HISTORY, n=9, repeats="only")) == 3  # the history has no more


def test_the_cap_is_not_lost_to_rounding() -> None:
    history = IDS[:10]
    answer = ask(history, "softmax+C", n=10, max_repeat_share=0.3, candidates=tuple(IDS[:10] + IDS[13:]))
    assert len([item for item in answer if item.repeat]) == 3  # 0.3 · 10 is 2.9999… in a computer
    assert len(answer) == 10


def test_reasons_under_copying() -> None:
    answer = ask(HISTORY, "softmax+CPR:4", n=ITEMS)
    by_id = {item.id: item for item in answer}
    assert {id for id, item in by_id.items() if item.partition == "copy"} == set(HISTORY)
    assert {id for id, item in by_id.items() if item.repeat} == set(HISTORY)
    assert (by_id["id 3"].times, by_id["id 3"].ago) == (2, 2)
    assert (by_id["id 5"].times, by_id["id 5"].ago) == (1, 3)
    assert (by_id["id 9"].times, by_id["id 9"].ago) == (1, 1)
    assert by_id["id 3"].reason == "repeat · copy: seen 2 times, last seen 2 items ago"
    assert by_id["id 5"].reason == "repeat · copy: seen once, 3 items ago"
    assert by_id["id 9"].reason == "repeat · copy: seen once, the latest item"
    others = [item for item in answer if not item.repeat]
    assert all((item.times, item.ago) == (0, None) for item in others)
    assert all(item.reason == f"new · {item.partition}" for item in others)
    assert by_id["id 3"].name == "Item id 3"


def test_reasons_tell_reranked_items_from_explored_ones() -> None:
    model = advisor("softmax+CPR:4").ranker.model.eval()
    items = torch.tensor([[IDS.index(id) for id in HISTORY]])
    query = model.output.mix(model.encode(Windows(items, torch.tensor([[3]]))).states)[0, -1]
    base = model.items.weight @ model.output.f_V[0](query)
    expected = {IDS[item] for item in base.topk(4).indices.tolist()} - set(HISTORY)
    answer = ask(HISTORY, "softmax+CPR:4", n=ITEMS)
    assert expected
    assert {item.id for item in answer if item.partition == "rerank"} == expected
    assert {item.partition for item in answer} == {"copy", "rerank", "explore"}


def test_without_copying_a_repeat_is_never_called_explored() -> None:
    answer = ask(HISTORY, "softmax", n=ITEMS)
    assert {item.partition for item in answer} == {"explore"}
    assert {item.id for item in answer if item.repeat} == set(HISTORY)
    assert next(item for item in answer if item.id == "id 9").reason == "repeat: seen once, the latest item"


def test_nodup_never_names_what_the_window_holds() -> None:
    answer = ask(HISTORY, "softmax+CPR:4+nodup", n=ITEMS)
    assert set(answer.ids) == set(IDS) - set(HISTORY)
    assert sum(item.probability for item in answer) == pytest.approx(1, abs=1e-5)
    assert answer.repeat_probability == 0


def test_repeat_status_uses_the_whole_history_and_the_model_its_window() -> None:
    history = ["id 1", "id 2", "id 1", *[f"id {i}" for i in range(10, 10 + WINDOW)]]
    latest = history[-WINDOW:]
    chances = probabilities("softmax+C", latest)
    answer = ask(history, "softmax+C", n=ITEMS)
    assert answer.ids == best_first(chances)
    by_id = {item.id: item for item in answer}
    assert {id for id, item in by_id.items() if item.repeat} == set(history)
    assert {id for id, item in by_id.items() if item.partition == "copy"} == set(latest)
    assert (by_id["id 1"].times, by_id["id 1"].ago) == (2, WINDOW + 1)
    assert answer.repeat_probability == pytest.approx(sum(chances[id] for id in set(history)), rel=1e-4)
    assert not set(ask(history, "softmax+C", n=ITEMS, repeats="exclude").ids) & set(history)
    assert set(ask(history, "softmax+C", n=ITEMS, repeats="only").ids) == set(history)


def test_unknown_ids_are_named_once_wherever_they_stand() -> None:
    policy = Policy(n=3, exclude=("nope", "id 4"), candidates=("id 4", "id 8", "huh"))
    first, second = advisor().recommend([["what", *HISTORY, "what", "ever"], HISTORY], policy)
    assert first.unknown == ("what", "ever", "nope", "huh")
    assert second.unknown == ("nope", "huh")
    assert first.ids == second.ids == ["id 8"]


def test_unknown_ids_do_not_change_the_answer_but_count_as_items_ago() -> None:
    with_unknown = ask(["id 3", "what", "id 5", "ever"], n=5)
    without = ask(["id 3", "id 5"], n=5)
    assert with_unknown.ids == without.ids
    assert [item.probability for item in with_unknown] == [item.probability for item in without]
    ago = {item.id: item.ago for item in ask(["id 3", "what", "id 5", "ever"], n=ITEMS)}
    assert (ago["id 3"], ago["id 5"]) == (4, 2)


def test_a_cold_id_is_unknown() -> None:
    made = advisor()
    made.catalogue = Catalogue([*IDS, "cold"], ITEMS)
    found = made.recommend([["id 3", "cold"]], Policy(n=ITEMS))[0]
    assert found.unknown == ("cold",)
    assert "cold" not in found.ids


@pytest.mark.parametrize("history", [[], ["what"], ["what", "ever", "what"]])
def test_without_a_known_item_the_popular_ones_are_shown_and_said_so(history: list[str]) -> None:
    answer = ask(history, n=3)
    assert answer.ids == ["id 0", "id 1", "id 2"]  # items are numbered by popularity
    assert answer.unknown == tuple(dict.fromkeys(history))
    assert answer.repeat_probability is None
    for item in answer:
        assert (item.partition, item.probability, item.repeat) == ("popular", None, False)
        assert (item.logit, item.terms) == (None, {})
        assert item.reason == "new · popular: no item of the history is known"
    assert ask(history, n=3, exclude=("id 1",)).ids == ["id 0", "id 2", "id 3"]
    assert ask(history, n=3, candidates=("id 9", "id 4")).ids == ["id 4", "id 9"]
    assert ask(history, n=3, repeats="exclude").ids == ["id 0", "id 1", "id 2"]
    assert ask(history, n=3, repeats="only").ids == []


def same(one: Recommendations, other: Recommendations) -> bool:
    """Equal but for the last bits of the probabilities."""
    close = all(
        a.probability == b.probability or abs(a.probability - b.probability) < 1e-6
        for a, b in zip(one, other, strict=True)
    )
    plain = [[(i.id, i.partition, i.repeat, i.times, i.ago) for i in found] for found in (one, other)]
    return close and plain[0] == plain[1] and one.unknown == other.unknown


@pytest.mark.parametrize("output", SPECS)
def test_a_batch_equals_one_by_one(output: str) -> None:
    rng = np.random.default_rng(0)
    histories = [[IDS[i] for i in rng.integers(0, ITEMS, rng.integers(1, 12))] for _ in range(300)]
    histories[4], histories[9] = [], ["what"]
    policy = Policy(n=6, max_repeat_share=0.5)
    made = advisor(output)
    together = made.recommend(histories, policy)
    assert len(together) == 300
    for history, found in list(zip(histories, together, strict=True))[::7]:
        assert same(found, made.recommend([history], policy)[0])
    assert [len(found) for found in (together[4], together[9])] == [6, 6]


def test_no_history_at_all_is_no_answer() -> None:
    assert advisor().recommend([], Policy()) == []


def test_text_finds_integers_and_answers_hold_integers() -> None:
    numbers = advisor(ids=list(range(100, 100 + ITEMS)))
    found = numbers.recommend([[103, 105, np.int64(103)]], Policy(n=4))[0]
    assert found.unknown == ()
    assert all(type(id) is int for id in found.ids)
    assert numbers.recommend([["103", 105, 103]], Policy(n=4))[0] == found
    assert advisor(ids=[str(i) for i in range(ITEMS)]).recommend([[3, "3"]], Policy())[0].unknown == ()
    assert advisor().recommend([[np.str_("id 3")]], Policy())[0].unknown == ()


def test_an_answer_is_plain_json() -> None:
    answer = ask([*HISTORY, np.int64(7)], n=2)
    document = json.loads(json.dumps(answer.to_json()))
    assert document["unknown"] == [7]
    assert document["repeat_probability"] == answer.repeat_probability
    assert [entry["id"] for entry in document["items"]] == answer.ids
    assert set(document["items"][0]) == {
        "id", "name", "probability", "repeat", "partition", "times", "ago", "logit", "terms", "argued_by", "reason"
    }  # fmt: skip
    for entry, item in zip(document["items"], answer, strict=True):
        assert entry["terms"] == {"network": item.logit}
        assert entry["argued_by"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"repeats": "never"}, "repeats must be one of auto, exclude, only"),
        ({"max_repeat_share": 1.5}, "between 0 and 1"),
        ({"max_repeat_share": -0.1}, "between 0 and 1"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        Policy(**options)


def test_a_text_is_not_a_history() -> None:
    with pytest.raises(QueryError, match="expected a list of ids, got the text 'milk'"):
        advisor().recommend(["milk"], Policy())
    with pytest.raises(QueryError, match="got the text 'id 3'"):
        advisor().recommend([HISTORY], Policy(exclude="id 3"))


def test_a_recommendation_reads_well() -> None:
    latest = Recommendation("a", "A", 0.5, True, "copy", 1, 1)
    assert latest.reason == "repeat · copy: seen once, the latest item"
    found = Recommendations((latest,), (), 0.5)
    assert (len(found), list(found), found.ids) == (1, [latest], ["a"])


def test_a_ranker_agrees_with_the_recommendations() -> None:
    """Evaluation and recommending read the same answer."""
    made = advisor()
    history = [IDS.index(id) for id in HISTORY]
    recommended = made.recommend([HISTORY], Policy(n=ITEMS))[0]
    nothing, own = torch.empty(1, 0, dtype=torch.long), torch.tensor([sorted(set(history))])
    for place, id in enumerate(recommended.ids, 1):
        question = Question(torch.tensor([IDS.index(id)]), 3, own, nothing)
        found = made.ranker.ask(Histories.of([history]), question)
        assert found.rank.tolist() == [place]
        assert [IDS[item] for item in found.items[0]] == recommended.ids[:3]
        assert found.mass[0].item() == pytest.approx(recommended.repeat_probability)


def test_a_history_without_items_cannot_be_ranked_and_misses() -> None:
    nothing = torch.empty(2, 0, dtype=torch.long)
    question = Question(torch.tensor([0, 0]), 3, nothing, nothing)
    found = advisor().ranker.ask(Histories.of([[], [1]]), question)
    assert found.rank[0] == ITEMS + 1
    assert found.rank[1] <= ITEMS
    assert found.logits[0].tolist() == [-math.inf] * 3
    assert math.isnan(found.mass[0])
    assert advisor().ranker.ask(Histories.of([[]]), question.take(torch.tensor([0]))).rank.tolist() == [ITEMS + 1]


def test_each_history_may_have_a_policy_of_its_own() -> None:
    """Histories with policies of their own are answered as if each were alone."""
    made = advisor()
    histories = [HISTORY, HISTORY[:2], [], HISTORY, ["unheard of"]]
    policies = [
        Policy(n=4, exclude=IDS[:3]), Policy(n=4), Policy(n=2), Policy(n=4, repeats="exclude"),
        Policy(n=4, candidates=IDS[2:9]),
    ]  # fmt: skip
    together = made.recommend(histories, policies)
    for found, one, policy in zip(together, histories, policies, strict=True):
        (alone,) = made.recommend([one], policy)
        assert (found.ids, found.unknown) == (alone.ids, alone.unknown)
        assert found.repeat_probability == pytest.approx(alone.repeat_probability)
    with pytest.raises(QueryError, match="there are 2 policies for 1 histories"):
        made.recommend([HISTORY], [Policy(), Policy()])


def test_times_and_moments_are_one_each() -> None:
    made = advisor()
    with_times = made.recommend([HISTORY], Policy(), [[float(i) for i in range(len(HISTORY))]], [99.0])
    assert with_times == made.recommend([HISTORY], Policy())  # this model does not read them
    with pytest.raises(QueryError, match="4 items and 1 times"):
        made.recommend([HISTORY[:4]], Policy(), [[1.0]])
    with pytest.raises(QueryError, match="`now` has 2 entries for 1 histories"):
        made.recommend([HISTORY], Policy(), None, [1.0, 2.0])


def test_asking_twice_gives_the_same() -> None:
    """A policy must not write into what the next question reads."""
    made = advisor()
    items, positions = np.array([[3, 5, 3, 9]]), np.array([[3]])
    nothing = torch.empty(1, 0, dtype=torch.long)
    question = Question(torch.tensor([4]), 5, nothing, nothing)
    scores = made.ranker.model.eval().scores(Windows(torch.from_numpy(items), torch.from_numpy(positions)))
    before = answer(scores, question)
    answer(scores, question._replace(banned=before.items))
    after = answer(scores, question)
    assert torch.equal(before.items, after.items)
    assert torch.equal(before.logits, after.logits)


def test_lists_may_be_arrays() -> None:
    numbers = advisor(ids=list(range(ITEMS)))
    best = numbers.recommend([[3, 5]], Policy(n=3))[0].ids
    for excluded in (np.array(best[:1]), np.array(best[:2])):
        found = numbers.recommend([[3, 5]], Policy(n=ITEMS, exclude=excluded))[0].ids  # type: ignore[arg-type]
        assert not set(excluded.tolist()) & set(found)
    first = np.array([0])
    assert 0 not in numbers.recommend([[3, 5]], Policy(n=ITEMS, exclude=first))[0].ids  # type: ignore[arg-type]


def test_a_long_list_of_unknown_ids_does_not_fill_every_answer() -> None:
    listed = tuple(f"nothing {i}" for i in range(5000))
    answers = advisor().recommend([HISTORY, ["what", *HISTORY]], Policy(n=2, exclude=listed))
    assert answers[0].unknown == listed[: len(answers[0].unknown)]
    assert 1 <= len(answers[0].unknown) <= 20
    assert answers[1].unknown == ("what", *answers[0].unknown)


@pytest.mark.parametrize("times", [3, [1, 2], [["a"], [1]], [[None], [1]], [[math.nan], [1]], [[1]], {7: [1], 8: [1]}])
def test_times_that_are_no_numbers_are_refused(times: Any) -> None:
    with pytest.raises(QueryError, match="times"):
        advisor().recommend([["id 1"], ["id 2"]], Policy(), times)


@pytest.mark.parametrize("now", [3, ["a", "b"], [1, math.inf], [[1], [2]], {7: 1, 8: 2}, [], [1]])
def test_moments_that_are_no_numbers_are_refused(now: Any) -> None:
    with pytest.raises(QueryError, match="now"):
        advisor().recommend([["id 1"], ["id 2"]], Policy(), None, now)


def test_times_may_be_arrays() -> None:
    """Of NumPy, whose truth is not defined."""
    histories = [["id 1", "id 2"], ["id 2", "id 3"]]
    found = advisor().recommend(histories, Policy(), np.array([[1, 2], [3, 4]]), np.array([5, 6]))
    assert found == advisor().recommend(histories, Policy())


def test_what_is_no_policy_is_refused() -> None:
    for policies in ([Policy(), None], [{"n": 1}, Policy()], {"a": Policy(), "b": Policy()}):
        with pytest.raises(QueryError, match="`policy` is a Policy or a list of them"):
            advisor().recommend([["id 1"], ["id 2"]], policies)  # type: ignore[arg-type]

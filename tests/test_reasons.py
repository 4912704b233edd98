"""Reasons in words: which term is named, and what is said of it."""

import numpy as np
import pytest
import torch

from abaca.data.catalogue import Catalogue
from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.evidence import Evidence, Weights
from abaca.evidence.habits import DAY, EDGES, HOUR, KINDS, Clock
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories
from abaca.nn.build import make_model
from abaca.nn.outputs.spec import EVIDENCE
from abaca.policy import Policy
from abaca.reasons import leading, pasts_of, seen, span
from abaca.recommendation import Advisor, Recommendation

NAMES = ["Milk", "Bread", "Pasta", "Pesto", "Tea", "Jam", "Salt", "Oats"]
V = len(NAMES)
LOG = [[2, 3]] * 5 + [[0, 1, 0, 1], [2, 3, 4, 6], [5, 7]]


def numbers(kind: str, **habits: float) -> tuple[float, ...]:
    """The same number for each bucket of a habit but the first."""
    return tuple(
        0.0 if at == 0 else habits.get(name.replace(" ", "_"), 0.0)
        for name in KINDS[kind]
        for at in range(len(EDGES[name]) + 1)
    )


def advisor(own: float = 0.0, followers: float = 0.0, seconds: bool = False, **habits: float) -> Advisor:
    """A model whose evidence is as given: every bucket but the first of a habit has its number."""
    weights = {kind: Weights(0.5, 0.5, own, numbers(kind, **habits), followers, followers, 1.0) for kind in KINDS}
    counts = Transitions.count(Histories.of(LOG), V)
    evidence = Evidence(EVIDENCE, 6, Clock(HOUR if seconds else 0.0, seconds), counts, weights)
    torch.manual_seed(0)
    model = make_model("gru4rec", "softmax", V, dim=8, hidden=8).eval()
    with torch.no_grad():
        model.table[:] = torch.eye(8)
        model.table[7] = torch.tensor([1.0, 0.9, 0, 0, 0, 0, 0, 0.1])  # oats: like milk and bread
    catalogue = Catalogue([name.lower() for name in NAMES], columns={"title": NAMES})
    return Advisor(ModelRanker(model, 6, evidence=evidence), catalogue, "seconds" if seconds else None)


def found(of: Advisor, history: str, **known: object) -> dict[str, Recommendation]:
    times, now = (None if given is None else [given] for given in (known.get("times"), known.get("now")))
    (answer,) = of.recommend([history.split()], Policy(n=V), times, now)  # type: ignore[arg-type]
    return {str(item.id): item for item in answer}


@pytest.mark.parametrize(
    ("terms", "lead"),
    [
        ({"network": 9.0}, "network"),
        ({"network": 1.0, "own": -1.0, "count": -0.5, "followers": 0.05}, "network"),
        ({"network": 1.0, "own": 0.3, "count": -0.5, "followers": 0.05}, "network"),
        ({"network": 9.0, "followers": 0.2}, "followers"),
        ({"network": 9.0, "own": 0.4, "count": 0.2, "follow": 0.3, "followers": 0.8}, "follow"),
        ({"network": 9.0, "own": 0.4, "count": -0.2, "followers": 0.1}, "own"),
        ({"network": 9.0, "own": 0.4, "count": -0.3, "followers": 0.2}, "followers"),
        ({"network": 9.0, "own": -0.2, "count": 0.3, "since": 0.5, "followers": 0.4}, "since"),
        ({"network": 9.0, "own": 0.2, "count": 0.3}, "count"),
        ({"network": 9.0, "own": 0.2, "count": 0.05}, "own"),
    ],
)
def test_habits_together_or_followers_lead_where_they_matter(terms: dict[str, float], lead: str) -> None:
    assert leading(terms) == lead


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "a moment"), (1, "1 second"), (59.4, "59 seconds"), (119, "119 seconds"), (120, "2 minutes"),
        (2 * HOUR, "2 hours"), (47 * HOUR, "47 hours"), (12.3 * DAY, "12 days"), (3.1 * 365 * DAY, "3 years"),
    ],
)  # fmt: skip
def test_a_time_has_one_unit(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_what_was_seen_is_told_in_items_or_in_time() -> None:
    items = np.array([4, 1, -1, 4, 2, 1, 4, 3])
    days = DAY * np.array([0.0, 0, 1, 14, 14, 14, 28, 28])
    (plain,), (timed,), (now,) = (
        pasts_of(Histories.of([items], *known), 1.0) for known in ((), ([days],), ([days], [40 * DAY]))
    )
    assert seen(plain, 4) == "seen 3 times, last seen 2 items ago, about every 3 items"
    assert seen(plain, 1) == "seen 2 times, last seen 3 items ago"
    assert seen(plain, 2) == "seen once, 4 items ago"
    assert seen(plain, 3) == "seen once, the latest item"
    (row,) = pasts_of(Histories.of([[1, 1, 1, 2]]), None)
    assert seen(row, 1) == "seen 3 times, last seen 2 items ago, several in a row"
    assert seen(timed, 4) == "seen 3 times, last with the latest item, about every 14 days"
    assert seen(timed, 1) == "seen 2 times, last 14 days before the latest item"
    assert seen(timed, 3) == "seen once, the latest item"
    assert seen(now, 4) == "seen 3 times, last 12 days ago, about every 14 days"
    assert seen(now, 3) == "seen once, 12 days ago"


def test_habits_argue_for_a_repeat() -> None:
    item = found(advisor(own=1.0, count=0.5), "milk tea milk jam milk salt")["milk"]
    assert item.argued_by == "habits"
    assert item.reason == "repeat · habits: seen 3 times, last seen 2 items ago, about every 2 items"
    hours = [HOUR * at for at in (0, 10, 24, 30, 48, 50)]
    with_now = found(advisor(own=1.0, seconds=True), "milk tea milk jam milk salt", times=hours, now=60 * HOUR)["milk"]
    assert with_now.reason == "repeat · habits: seen 3 times, last 12 hours ago, about every 24 hours"


def test_what_follows_the_latest_item_in_this_history_is_told() -> None:
    items = found(advisor(own=0.5, follow=2.0), "pasta tea pasta tea jam pasta salt unknown pasta")
    assert items["tea"].reason == "repeat · habits: often after “Pasta” (2 times)"
    assert items["salt"].reason == "repeat · habits: seen after “Pasta” before"
    assert items["jam"].reason == "repeat · habits: seen once, 5 items ago"  # it never came after pasta


def test_the_hour_is_told() -> None:
    times = [DAY + 8 * HOUR, 2 * DAY + 8.5 * HOUR, 3 * DAY + 20 * HOUR, 8 * DAY + 8 * HOUR, 8 * DAY + 12 * HOUR]
    of = {name: advisor(seconds=True, **{name: 3.0}) for name in ("hour", "at_hour", "week")}
    asked = {"times": times, "now": 9 * DAY + 8 * HOUR}
    hour, often, week = (found(of[name], "milk milk milk jam tea", **asked) for name in of)
    assert hour["milk"].reason == "repeat · habits: seen 3 times, 2 of them at about this hour"
    assert often["milk"].reason == hour["milk"].reason
    assert hour["jam"].reason == "repeat · habits: seen once, at about this hour"
    assert week["milk"].reason == "repeat · habits: seen 3 times, 1 of them at about this hour of the week"
    assert week["jam"].reason == "repeat · network: seen once, 24 hours ago"


def test_followers_argue_for_what_came_soon_after() -> None:
    items = found(advisor(followers=2.0), "tea pasta")
    assert items["pesto"].reason == "new · followers: often follows “Pasta” (6 times)"
    assert items["salt"].reason == "new · followers: followed “Tea” before"  # once, and a third after pasta
    assert items["pesto"].argued_by == "followers"
    repeated = found(advisor(followers=2.0), "pasta pesto pasta")["pesto"]
    assert repeated.reason == "repeat · followers: often follows “Pasta” (6 times)"
    assert found(advisor(followers=2.0), "milk")["milk"].reason == "repeat · followers: taken again soon by a user"


def test_what_only_the_network_explains_is_like_items_of_the_history() -> None:
    items = found(advisor(), "bread milk tea")
    assert items["oats"].reason == "new · network: like “Milk” and “Bread” of your history"
    assert found(advisor(), "tea bread")["oats"].reason == "new · network: like “Bread” of your history"
    assert items["salt"].reason == "new · network: fits the history as a whole"
    assert items["milk"].reason == "repeat · network: seen once, 2 items ago"
    assert {item.argued_by for item in items.values()} == {"network"}


def test_only_what_the_network_reads_is_called_alike() -> None:
    assert (
        found(advisor(), "bread milk tea tea tea tea tea")["oats"].reason
        == "new · network: like “Milk” of your history"
    )


def test_terms_add_up_in_a_batch_of_unequal_histories() -> None:
    of = advisor(own=0.7, followers=1.3, count=0.4, since=-0.3, rhythm=0.2)
    histories = [["milk"], [], ["pasta", "pesto", "pasta", "jam"], ["what"], ["tea", "what", "tea"]]
    for policy in (Policy(n=V), Policy(n=4, max_repeat_share=0.25), Policy(n=3, candidates=("pesto", "jam"))):
        for history, answer in zip(histories, of.recommend(histories, policy), strict=True):
            for item in answer:
                if not {"milk", "pasta", "tea"} & set(history):
                    assert (item.partition, item.logit, item.terms) == ("popular", None, {})
                    continue
                assert item.logit is not None
                assert sum(item.terms.values()) == pytest.approx(item.logit, abs=1e-5)
                assert ("own" in item.terms) == item.repeat
                assert item.terms["followers"] >= 0

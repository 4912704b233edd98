"""Two models in production: a person stays with one, feedback is kept, and rates can be compared."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from abaca.cli.store_report import command as report
from abaca.errors import StoreError, UserError
from abaca.serve.events import Store
from abaca.serve.feedback import Feedback, UserCounts, add_feedback, per_user
from abaca.serve.report import model_rates
from abaca.serve.split import Split, parse_split
from abaca.serve.store import open_store

from .samples import Serve

USERS = [f"user {number}" for number in range(4000)]


def test_shares_are_those_that_were_asked_for_and_a_person_stays() -> None:
    split = Split({"a": 0.9, "b": 0.1})
    first = {user: split.model_for(user) for user in USERS}
    assert {user: split.model_for(user) for user in USERS} == first
    assert np.mean([model == "b" for model in first.values()]) == pytest.approx(0.1, abs=0.02)
    more = {user: Split({"a": 0.7, "b": 0.3}).model_for(user) for user in USERS}
    assert all(more[user] == "b" for user in USERS if first[user] == "b")  # nobody moves back
    other = {user: Split({"a": 0.5, "c": 0.5}).model_for(user) for user in USERS}
    both = np.mean([other[user] == "c" for user in USERS if first[user] == "b"])
    assert both == pytest.approx(0.5, abs=0.1)  # another test draws anew


def test_no_share_is_nobody() -> None:
    assert {Split({"a": 0.0, "b": 1.0}).model_for(user) for user in USERS} == {"b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "names no model"),
        ("c=1", "names no model"),
        ("a=0.5,a=0.5", "twice"),
        ("a=x,b=1", "not a share"),
        ("a=0.5,b=0.4", "add up to 1"),
        ("a=1.5,b=-0.5", "add up to 1"),
        ("a=nan,b=1", "add up to 1"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_split(text, ["a", "b"])


def test_answers_metrics_and_feedback_name_the_model_of_the_user(serve: Serve, store: Store) -> None:
    split = parse_split("cpr=0.5,softmax=0.5", ["cpr", "softmax"])
    client = serve(store=store, split=split)
    users = USERS[:12]
    for user in users:
        model = split.model_for(user)
        assert client.post("/recommend", json={"history": [1], "user": user}).json()["model"] == model
        assert client.get(f"/users/{user}/recommendations").json()["model"] == model
        assert client.post(f"/users/{user}/recommendations", json={}).json()["model"] == model
        sent = {"feedback": [{"user": user, "item": 1, "kind": "shown"}]}
        assert client.post("/feedback", json=sent).json() == {"stored": 1, "duplicates": 0}
    assert client.post("/recommend", json={"history": [1], "user": users[0], "model": "cpr"}).json()["model"] == "cpr"
    assert client.post("/recommend", json={"history": [1]}).json()["model"] == "cpr"
    many = sum(split.model_for(user) == "softmax" for user in users)
    assert 0 < many < 12
    text = client.get("/metrics").text
    assert f'abaca_recommendations_total{{model="softmax"}} {3.0 * many}' in text
    assert f'abaca_feedback_total{{kind="shown",model="softmax"}} {float(many)}' in text
    assert {(one.user, one.model) for one in per_user(store)} == {(user, split.model_for(user)) for user in users}


@pytest.mark.parametrize(
    "feedback",
    [
        [],
        [{"user": "u", "item": 1}],
        [{"user": "u", "item": 1, "kind": "seen"}],
        [{"user": "", "item": 1, "kind": "shown"}],
        [{"user": "u", "item": 1, "kind": "shown", "score": 1}],
    ],
)
def test_feedback_that_does_not_fit_is_refused(serve: Serve, store: Store, feedback: object) -> None:
    client = serve(store=store)
    assert client.post("/feedback", json={"feedback": feedback}).status_code == 422
    unknown = [{"user": "u", "item": 1, "kind": "shown", "model": "x"}]
    assert client.post("/feedback", json={"feedback": unknown}).status_code == 404
    assert per_user(store) == []


def given(kind: str, time: float, user: str = "u", item: str = "i", model: str = "a") -> Feedback:
    return Feedback(f"{kind} {time} {user} {item} {model}", user, item, time, kind, model)


def test_an_item_counts_once_and_only_what_came_after_it(store: Store) -> None:
    rows = [
        given("shown", 10), given("shown", 11), given("clicked", 12), given("clicked", 13),  # one item, one click
        given("clicked", 5, item="j"), given("shown", 10, item="j"),  # the click came before
        given("shown", 10, item="k"), given("bought", 10, item="k"),
        given("shown", 10, user="v"), given("clicked", 11, user="v", model="b"),  # what the other model showed
    ]  # fmt: skip
    assert add_feedback(store, rows) == len(rows)
    assert add_feedback(store, rows) == 0
    assert per_user(store) == [UserCounts("a", "u", 3, 1, 1), UserCounts("a", "v", 1, 0, 0)]
    assert per_user(store, 11) == [UserCounts("a", "u", 1, 1, 0)]
    store.forget("u")
    assert per_user(store) == [UserCounts("a", "v", 1, 0, 0)]


def test_intervals_hold_the_true_rate_in_nineteen_of_twenty_experiments() -> None:
    """Users differ in how much they are shown and how much they click; the difference of two equal models is 0."""
    rng, held, zero, rounds = random.Random(4), 0, 0, 300
    for _ in range(rounds):
        counts = []
        for number in range(200):
            taste, shown = rng.choice((0.05, 0.35)), rng.choice((5, 20))
            clicked = sum(rng.random() < taste for _ in range(shown))
            counts.append(UserCounts("ab"[number % 2], str(number), shown, clicked, 0))
        first, second = model_rates(counts)
        assert first.click_rate.low is not None
        assert first.click_rate.high is not None
        held += first.click_rate.low < 0.2 < first.click_rate.high
        difference = second.click_difference
        assert difference is not None
        assert difference.low is not None
        assert difference.high is not None
        zero += difference.low < 0 < difference.high
    assert 0.9 < held / rounds < 0.99
    assert 0.9 < zero / rounds < 0.99


def test_rates_by_hand() -> None:
    counts = [UserCounts("a", "u", 4, 2, 1), UserCounts("a", "v", 4, 0, 0), UserCounts("b", "w", 2, 1, 0)]
    a, b = model_rates(counts)
    assert (a.model, a.users, a.shown, a.clicked, a.bought) == ("a", 2, 8, 2, 1)
    assert a.click_rate.value == 0.25
    assert a.click_rate.high == pytest.approx(0.25 + 1.959964 * 0.25)  # errors ±1 of two users, over a mean of 4
    assert a.click_difference is None
    assert (b.click_rate.value, b.click_rate.low) == (0.5, None)
    assert b.click_difference is not None
    assert (b.click_difference.value, b.click_difference.low) == (0.25, None)
    assert model_rates([]) == []


def test_the_report_is_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = str(tmp_path / "events.db")
    with pytest.raises(StoreError, match="does not exist"):
        report(address)
    store = open_store(address)
    report(address)
    assert "there is no feedback" in capsys.readouterr().out
    add_feedback(store, [given("shown", 10), given("clicked", 12), given("shown", 10, user="v", model="b")])
    store.close()
    report(address)
    assert "click rate" in capsys.readouterr().out
    report(address, json=True)
    found = json.loads(capsys.readouterr().out)
    assert [(one["model"], one["shown"], one["clicked"]) for one in found] == [("a", 1, 1), ("b", 1, 0)]
    report(address, since="1970-01-01T00:00:11", json=True)
    assert json.loads(capsys.readouterr().out) == []

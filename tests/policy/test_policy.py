"""How rules are written, what is refused, and what an answer says about them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abaca.data.idlist import read_ids
from abaca.errors import QueryError
from abaca.policy import Boost, Cooldown, Policy, Quota, choose
from abaca.recommendation import Advisor
from abaca.recommender import Recommender
from models import untrained

IDS = [f"i{i}" for i in range(30)]
KIND = ["tea", "bread", "jam"] * 10
HISTORY = ["i1", "i2", "i3", "i1"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    folder = tmp_path_factory.mktemp("policy") / "model"
    return untrained(folder, ids=IDS, columns={"kind": KIND, "year": list(range(1990, 2020))})


def effects(model: Recommender, **rules: Any) -> dict[str, Any]:
    answer = model.recommend(HISTORY, 5, **rules)
    return {effect.rule: effect for effect in answer.rules}


def test_a_rule_may_be_text_or_a_mapping() -> None:
    mapped = Policy(
        at_most={"kind": 2, "brand": {"A=B": 1}}, at_least={"kind": {"tea": 1}}, boost={"i=1": 0.5, 7: -1},
        boost_category={"kind": {"tea": 2}}, cooldown="7 days",
    )  # fmt: skip
    written = Policy(
        at_most=["kind=2", "brand=A=B=1"], at_least=["kind=tea=1"], boost=["i=1=0.5", Boost(None, 7, -1.0)],
        boost_category=["kind=tea=2"], cooldown=[timedelta(days=7)],
    )  # fmt: skip
    assert mapped.at_most == (Quota("kind", None, 2), Quota("brand", "A=B", 1))
    assert mapped.cooldown == (Cooldown(7, "day"),)
    assert written.cooldown == (Cooldown(7 * 86400, "second"),)
    for name in ("at_most", "at_least", "boost", "boost_category"):
        assert getattr(mapped, name) == getattr(written, name)
    assert Policy(**vars(mapped)) == mapped
    assert hash(mapped) != hash(written)
    assert str(Cooldown(7, "day")) == "7 days"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"max_repeats": -1}, "max_repeats must be at least 0"),
        ({"min_new": 1.5}, "min_new must be at least 0, a whole number"),
        ({"min_cold": -1}, "min_cold must be at least 0"),
        ({"diversity": 1.5}, "diversity must be between 0 and 1"),
        ({"cooldown": "a week"}, "write it as '7 days', '5 items' or '7 days of buy'"),
        ({"cooldown": 7}, "cooldown 7 is not a time"),
        ({"cooldown": "1.5 items"}, "not a whole number of items"),
        ({"at_most": {"kind": -1}}, "at_most kind: -1 is not a whole number"),
        ({"at_most": "kind"}, "at_most 'kind' is not written as COLUMN=VALUE=NUMBER"),
        ({"at_least": {"kind": 1}}, "at_least kind: it needs a value"),
        ({"boost": {"a": float("nan")}}, "boost a: nan is not a finite number"),
        ({"boost": "a=lots"}, "boost 'a=lots' is not written as ID=NUMBER"),
        ({"boost_category": {"kind": 1}}, "boost_category kind: it needs a value"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rules: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        Policy(**rules)


def test_a_column_that_the_item_table_does_not_have_is_refused(model: Recommender) -> None:
    with pytest.raises(QueryError, match="no column 'brand'; it has title, kind, year"):
        model.recommend(HISTORY, at_most={"brand": 1})


def test_numbers_in_a_column_are_compared_as_text(model: Recommender) -> None:
    best = model.recommend(HISTORY, 1).ids[0]
    year = 1990 + IDS.index(best)
    for value in (year, str(year)):
        assert best not in model.recommend(HISTORY, 30, at_most={"year": {value: 0}}).ids


def test_a_cool_down_counts_items_and_time_since_the_last_occurrence(model: Recommender) -> None:
    day = 86400.0
    times, now = [0, 4 * day, 5 * day, 6 * day], 8 * day  # of i1 i2 i3 i1

    def left(cooldown: Any, now: float | None = now) -> set[str]:
        found = model.recommend(HISTORY, 30, times=times, now=now, cooldown=cooldown)
        return set(found.ids) & set(HISTORY)

    assert left("1 item") == {"i2", "i3"}
    assert left("3 items") == set()
    assert left("2 items") == {"i2"}
    assert left("2 days") == {"i1", "i2", "i3"}  # two days have passed
    assert left("49 hours") == {"i2", "i3"}
    assert left("4 days") == {"i2"}
    assert left("4 days", now=None) == set()  # counted from the latest item
    assert left(["1 item", "4 days"]) == {"i2"}
    assert left(f"{3 * day:g} units") == {"i2", "i3"}
    with pytest.raises(QueryError, match="needs the times of the history"):
        model.recommend(HISTORY, cooldown="2 days")
    assert len(model.recommend([], 3, cooldown="2 days")) == 3


def test_days_need_a_log_with_dates(tmp_path: Path) -> None:
    numbered = untrained(tmp_path / "model", time_unit=None)
    with pytest.raises(QueryError, match="cooldown '2 days': the log of this model has no times since 1970"):
        numbered.recommend(["i1"], times=[5], cooldown="2 days")
    assert "i1" not in numbered.recommend(["i1"], 30, times=[5], now=6, cooldown="2 units").ids


def test_an_answer_says_what_each_rule_did(model: Recommender) -> None:
    plain = model.recommend(HISTORY, 5)
    first = plain.ids[0]
    kind = KIND[IDS.index(first)]
    capped = effects(model, at_most={"kind": {kind: 0}})[f"at_most kind={kind}"]
    assert first in capped.removed
    raised = effects(model, boost={"i17": 90})["boost"]
    assert (raised.moved[0], raised.removed) == ("i17", (plain.ids[-1],))
    assert effects(model, at_least={"kind": {"tea": 5}})["at_least kind=tea"].short == 0
    short = effects(model, at_least={"kind": {"tea": 3}}, candidates=["i0", *IDS[1::3]])["at_least kind=tea"]
    assert short.short == 2
    assert effects(model, repeats="only", min_new=2)["min_new"].short == 2
    assert "diversity" in effects(model, diversity=1)
    unheard = effects(model, at_least={"kind": {"teaa": 2}}, at_most={"kind": {"cofee": 1}})
    assert unheard["at_least kind=teaa"].note == unheard["at_most kind=cofee"].note == "no item has this value"
    assert unheard["at_least kind=teaa"].short == 2
    assert effects(model) == {}


def test_explain_rules_also_says_what_filters_removed(model: Recommender) -> None:
    plain = model.recommend(HISTORY, 5)
    first, second = plain.ids[:2]
    rules = {"exclude": [first], "candidates": [id for id in IDS if id != second]}
    assert effects(model, **rules) == {}
    found = effects(model, **rules, explain_rules=True)
    assert {rule: effect.removed for rule, effect in found.items()} == {"exclude": (first,), "candidates": (second,)}
    everything = model.recommend(HISTORY, 30, explain_rules=True, repeats="exclude", cooldown="1 item")
    removed = {effect.rule: set(effect.removed) for effect in everything.rules}
    assert removed == {"repeats": set(HISTORY), "cooldown": {"i1"}}
    document = json.loads(json.dumps(everything.to_json()))
    assert document["rules"][0].keys() == {"rule", "removed", "moved", "short", "note"}
    assert model.recommend(HISTORY, 5, explain_rules=True).ids == plain.ids


def test_rules_change_no_probability(model: Recommender) -> None:
    plain = {item.id: item for item in model.recommend(HISTORY, 30)}
    ruled = model.recommend(HISTORY, 8, boost={"i9": 9}, at_most={"kind": 3}, diversity=0.5, min_new=2)
    assert ruled.ids[0] == "i9"
    for item in ruled:
        assert item.probability == pytest.approx(plain[item.id].probability, rel=1e-5)
        assert item.logit == pytest.approx(plain[item.id].logit, rel=1e-5)


def test_popular_items_keep_the_rules(model: Recommender) -> None:
    assert model.recommend([], 4, at_most={"kind": 1}).ids == ["i0", "i1", "i2"]
    assert model.recommend([], 3, boost={"i9": 9}, min_new=1).ids == ["i9", "i0", "i1"]
    assert model.recommend(["unheard"], 3, at_least={"kind": {"jam": 2}}).ids == ["i0", "i2", "i5"]
    spread = model.recommend([], 3, diversity=0.9)
    assert spread.ids[0] == "i0"
    assert all(item.logit is None and item.partition == "popular" for item in spread)


def test_popular_items_go_by_their_counts_and_retired_ones_are_never_listed(model: Recommender) -> None:
    saved = model.saved
    assert saved is not None
    advisor = Advisor(model.ranker(), saved.catalogue, popularity=np.arange(30), retired=["i29", "i27"])
    policy = Policy(n=3, at_most={"kind": {"jam": 0}}, candidates=IDS[20:], explain_rules=True)
    (found,) = advisor.recommend([[]], policy)
    assert found.ids == ["i28", "i25", "i24"]
    assert not {"i29", "i27"} & {id for effect in found.rules for id in effect.removed}
    for rules in ({}, {"boost": {"i29": 99}}, {"at_least": {"kind": {"jam": 5}}}):
        (found,) = advisor.recommend([HISTORY], Policy(n=30, **rules))
        assert set(found.ids) == set(IDS) - {"i29", "i27"}


def test_a_baseline_keeps_the_rules_and_has_no_diversity(tmp_path: Path) -> None:
    log = pa.table({"user": [u for u in "abcdefgh" for _ in range(6)], "item": [f"i{i % 9}" for i in range(48)]})
    kinds = pa.table({"item": [f"i{i}" for i in range(9)], "kind": KIND[:9]})
    rule = Recommender(baseline="popularity", min_user=1).fit(log, items=kinds)
    ids = rule.recommend(["i1"], 9).ids
    assert len(rule.recommend(["i1"], 9, at_most={"kind": 1})) == 3
    assert rule.recommend(["i1"], 9, boost={ids[-1]: 1e6}).ids == [ids[-1], *ids[:-1]]
    with pytest.raises(QueryError, match="diversity needs item vectors"):
        rule.recommend(["i1"], diversity=0.5)


RULES: list[dict[str, Any]] = [
    {"at_most": {"kind": 1}, "max_repeats": 1},
    {"at_least": {"kind": {"tea": 4}}},
    {"boost": {"i20": 3.0}},
    {"boost_category": {"kind": {"jam": 1.0, "tea": -1.0}}, "min_new": 4},
    {"diversity": 0.6, "at_most": {"kind": 2}},
    {"max_repeat_share": 0.2},
    {"at_least": {"kind": {"tea": 3}}, "at_most": {"year": dict.fromkeys(range(1990, 2014, 3), 0)}},
]


@pytest.mark.parametrize("rules", RULES)
def test_few_candidates_at_first_give_the_same_list(
    model: Recommender, monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any]
) -> None:
    """More are fetched while they could change it."""
    rng = np.random.default_rng(0)
    histories = [[f"i{item}" for item in rng.integers(0, 30, 6)] for _ in range(20)]
    wanted = [answer.ids for answer in model.recommend_many(histories, 5, **rules)]
    monkeypatch.setattr(choose, "FIRST", -19)  # 6 candidates for 5 items
    monkeypatch.setattr(choose, "MORE", 2)
    assert [answer.ids for answer in model.recommend_many(histories, 5, **rules)] == wanted


@pytest.mark.parametrize("rules", RULES)
def test_an_exact_index_gives_the_same_list(tmp_path: Path, rules: dict[str, Any]) -> None:
    pytest.importorskip("faiss")
    from abaca.search.answer import IndexSearch
    from abaca.search.index import build

    exact = untrained(tmp_path / "model", ids=IDS, columns={"kind": KIND, "year": list(range(1990, 2020))})
    wanted = exact.recommend(HISTORY, 5, **rules)
    table = exact.saved.model.table  # type: ignore[union-attr]
    exact._advisor.ranker.search = IndexSearch(build(table.detach().numpy(), "flat"), table)  # type: ignore[union-attr]
    assert exact.recommend(HISTORY, 5, **rules).ids == wanted.ids


def test_lists_may_be_files(model: Recommender, tmp_path: Path) -> None:
    """One id a line, or a table with a column of ids."""
    lines, table, parquet = tmp_path / "stock.txt", tmp_path / "stock.csv", tmp_path / "stock.parquet"
    lines.write_text("i4\n\n i5 \n")
    table.write_text("sku,left\ni4,3\ni5,1\n")
    pq.write_table(pa.table({"left": [3, 1], "id": ["i4", "i5"]}), parquet)
    for path in (lines, table, parquet):
        assert read_ids(path) == ["i4", "i5"]
        assert set(model.recommend(HISTORY, 9, candidates=path).ids) == {"i4", "i5"}
        assert not {"i4", "i5"} & set(model.recommend(HISTORY, 30, exclude=path).ids)
    (tmp_path / "alone.csv").write_text("i4\ni5\n")
    assert read_ids(tmp_path / "alone.csv") == ["i4", "i5"]
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    with pytest.raises(QueryError, match="no column looks like the item id"):
        read_ids(tmp_path / "odd.csv")
    with pytest.raises(QueryError, match="cannot be read as a list of ids"):
        read_ids(tmp_path / "nowhere.txt")

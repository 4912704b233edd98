"""Every rule holds, and lists are filled, in Python, in files of histories and over HTTP alike."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abaca.batch import recommend_file
from abaca.data.queries import HistorySource
from abaca.policy import Policy
from abaca.recommendation import Recommendations
from abaca.recommender import Recommender
from abaca.serve.app import make_app
from abaca.serve.metrics import Metrics
from abaca.serve.service import Service
from models import untrained

ITEMS = 30
IDS = [f"i{i}" for i in range(ITEMS)]
KIND = [None if i % 7 == 6 else "tea" if i % 3 == 0 else "bread" if i % 3 == 1 else "jam" for i in range(ITEMS)]
TAGS = [["hot"] * (i % 2) + ["sweet"] * (i % 3 == 0) for i in range(ITEMS)]
DAY = 86400
NOW = 1_700_000_000


class Asked(NamedTuple):
    """A history with the times of its items in days before now, and its rules."""

    history: list[str]
    ago: list[int]
    rules: dict[str, Any]

    @property
    def times(self) -> list[int]:
        return [NOW - DAY * days for days in self.ago]


def of_kind(numbers: Any) -> Any:
    return st.dictionaries(st.sampled_from(["tea", "bread", "jam"]), numbers, min_size=1, max_size=2)


RULES: dict[str, Any] = {
    "repeats": st.sampled_from(["auto", "exclude", "only"]),
    "max_repeat_share": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    "max_repeats": st.integers(0, 4),
    "min_new": st.integers(0, 6),
    "exclude": st.lists(st.sampled_from([*IDS, "nothing"]), max_size=5),
    "candidates": st.lists(st.sampled_from(IDS), max_size=20),
    "cooldown": st.sampled_from([["3 items"], ["2 days"], ["1 item", "36 hours"]]),
    "at_most": st.one_of(
        st.builds(lambda most: {"kind": most}, st.integers(0, 3)),
        st.builds(lambda kinds, tags: {"kind": kinds, "tags": tags}, of_kind(st.integers(0, 2)), st.integers(1, 4)),
    ),
    "at_least": st.builds(lambda kinds: {"kind": kinds}, of_kind(st.integers(1, 3))),
    "boost": st.dictionaries(st.sampled_from(IDS), st.sampled_from([-4.0, -0.5, 1.5, 6.0]), max_size=3),
    "boost_category": st.builds(lambda kinds: {"kind": kinds}, of_kind(st.sampled_from([-2.0, 3.0]))),
    "diversity": st.sampled_from([0.0, 0.3, 1.0]),
}


@st.composite
def questions(draw: Any, names: tuple[str, ...] = tuple(RULES)) -> Asked:
    length = draw(st.integers(0, 8))
    history = draw(st.lists(st.sampled_from([*IDS[:12], "unheard"]), min_size=length, max_size=length))
    ago = sorted(draw(st.lists(st.integers(0, 6), min_size=length, max_size=length)), reverse=True)
    given = draw(st.sets(st.sampled_from(names), min_size=len(names) == 1, max_size=5))
    return Asked(history, ago, {name: draw(RULES[name]) for name in sorted(given)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


@pytest.fixture(scope="module")
def model(folder: Path) -> Recommender:
    return untrained(folder / "model", ids=IDS, columns={"kind": KIND, "tags": TAGS})


@pytest.fixture(scope="module")
def client(folder: Path, model: Recommender) -> Iterator[TestClient]:
    with TestClient(make_app(Service([folder / "model"]), Metrics()), "http://localhost") as made:
        yield made


class Answered(NamedTuple):
    ids: list[str]
    rules: list[str]


def ranked(model: Recommender, asked: list[Asked]) -> list[Recommendations]:
    """All items in order, without rules."""
    histories, times = [one.history for one in asked], [one.times for one in asked]
    return model.recommend_many(histories, ITEMS, times=times, now=[NOW] * len(asked))


def in_python(model: Recommender, asked: list[Asked], n: int) -> list[Answered]:
    found = model.recommend_many(
        [one.history for one in asked],
        policy=[Policy(n=n, **one.rules) for one in asked],
        times=[one.times for one in asked],
        now=[NOW] * len(asked),
    )
    return [Answered(each.ids, [str(rule) for rule in each.rules]) for each in found]


def in_a_file(model: Recommender, asked: list[Asked], n: int, folder: Path) -> list[Answered]:
    rows = [{"history": one.history, "times": one.times, "now": NOW, **one.rules} for one in asked]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source, to = HistorySource(folder / "in.jsonl", history="history"), folder / "out.parquet"
    recommend_file(model, source, to, Policy(n=n), overwrite=True)
    return [Answered(row["ids"], row["rules"]) for row in pq.read_table(to).to_pylist()]


def over_http(client: TestClient, asked: list[Asked], n: int) -> list[Answered]:
    found = []
    for one in asked:
        body = {"history": one.history, "times": one.times, "now": NOW, "n": n, **one.rules}
        answer = client.post("/recommend", json=body)
        assert answer.status_code == 200, answer.text
        (only,) = answer.json()["answers"]
        said = [f"{rule['rule']}: " for rule in only["rules"]]
        found.append(Answered([item["id"] for item in only["items"]], said))
    return found


def allowed(one: Asked) -> list[str]:
    """The ids that no filter removes, worked out the long way."""
    rules, kept = one.rules, []
    most = min(rules.get("max_repeats", 99), int(rules.get("max_repeat_share", 1) * 6 + 1e-9))
    for id in IDS:
        places = [place for place, other in enumerate(one.history) if other == id]
        for text in rules.get("cooldown", []) if places else []:
            amount, unit = int(text.split()[0]), text.split()[1]
            if unit.startswith("item"):
                cool = len(one.history) - max(places) > amount
            else:
                cool = min(one.ago[place] for place in places) >= amount * (1 if unit == "days" else 1 / 24)
            if not cool:
                break
        else:
            banned = id in rules.get("exclude", []) or ("candidates" in rules and id not in rules["candidates"])
            repeats = rules.get("repeats", "auto")
            wrong = (repeats == "only" and not places) or (places and (repeats == "exclude" or most == 0))
            if not banned and not wrong:
                kept.append(id)
    return kept


def caps(one: Asked, n: int) -> list[tuple[set[str], int]]:
    """Sets of ids, and how many of each a list may hold."""
    rules, found = one.rules, []
    most = min(rules.get("max_repeats", n), int(rules.get("max_repeat_share", 1) * n + 1e-9))
    found.append((set(one.history), most))
    for column, wanted in rules.get("at_most", {}).items():
        values = KIND if column == "kind" else TAGS
        every = {"tea", "bread", "jam", "hot", "sweet"}
        for value, count in (wanted if isinstance(wanted, dict) else dict.fromkeys(every, wanted)).items():
            has = {id for id, cell in zip(IDS, values, strict=True) if cell == value or value in (cell or [])}
            found.append((has, count))
    return found


def check(one: Asked, found: Answered, n: int, logits: dict[str, float]) -> None:
    """No hard rule is broken, the list cannot be longer, floors hold, and the order is that of scores."""
    ids, may, limits = found.ids, allowed(one), caps(one, n)
    assert len(set(ids)) == len(ids) <= n
    assert set(ids) <= set(may)
    for some, count in limits:
        assert len(some & set(ids)) <= count
    if len(ids) < n:
        full = [some for some, count in limits if len(some & set(ids)) == count]
        assert all(any(id in some for some in full) for id in set(may) - set(ids))
    floors = one.rules.get("at_least", {}).get("kind", {})
    new = one.rules.get("min_new", 0)
    if len(limits) == 1 and limits[0][1] >= n and sum(floors.values()) + new <= n:
        for kind, count in floors.items():
            has = {id for id, cell in zip(IDS, KIND, strict=True) if cell == kind}
            assert len(has & set(ids)) >= min(count, len(has & set(may)))
        fresh = set(may) - set(one.history)
        assert len(fresh & set(ids)) >= min(new, len(fresh))
    if not one.rules.get("diversity") and logits:
        scores = [logits[id] + boost_of(one, id) for id in ids]
        assert scores == sorted(scores, reverse=True)
        if len(limits) == 1 and limits[0][1] >= n and not floors and not new:
            best = sorted(may, key=lambda id: -(logits[id] + boost_of(one, id)))[:n]
            assert ids == best


def boost_of(one: Asked, id: str) -> float:
    of_kind = one.rules.get("boost_category", {}).get("kind", {})
    return float(one.rules.get("boost", {}).get(id, 0) + of_kind.get(KIND[IDS.index(id)], 0))


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(asked=st.lists(questions(), min_size=25, max_size=25), n=st.just(6))
def test_rules_hold_everywhere(
    model: Recommender, client: TestClient, folder: Path, asked: list[Asked], n: int
) -> None:
    """Answers in Python keep the rules; a file and a server give the same."""
    found = in_python(model, asked, n)
    for one, each, plain in zip(asked, found, ranked(model, asked), strict=True):
        check(one, each, n, {item.id: item.logit for item in plain if item.logit is not None})
    assert in_a_file(model, asked, n, folder) == found
    served = over_http(client, asked, n)
    assert [each.ids for each in served] == [each.ids for each in found]
    assert [len(each.rules) for each in served] == [len(each.rules) for each in found]


@pytest.mark.parametrize("surface", ["Python", "file", "HTTP"])
@pytest.mark.parametrize("name", RULES)
def test_each_rule_alone_holds_and_changes_a_list(
    model: Recommender, client: TestClient, folder: Path, name: str, surface: str
) -> None:
    """Over many histories, every rule on its own is kept, and at some history it matters."""
    changed = 0
    answer = {
        "Python": lambda asked: in_python(model, asked, 6),
        "file": lambda asked: in_a_file(model, asked, 6, folder),
        "HTTP": lambda asked: over_http(client, asked, 6),
    }[surface]

    @settings(max_examples=3, suppress_health_check=list(HealthCheck))
    @given(asked=st.lists(questions((name,)), min_size=12, max_size=12))
    def run(asked: list[Asked]) -> None:
        nonlocal changed
        for one, found, plain in zip(asked, answer(asked), ranked(model, asked), strict=True):
            check(one, found, 6, {item.id: item.logit for item in plain if item.logit is not None})
            changed += found.ids != plain.ids[:6]

    run()
    assert changed


def test_columns_of_parquet_are_rules_too(model: Recommender, tmp_path: Path) -> None:
    """Structs, maps, lists of text and whole numbers that a table has as fractions; empty cells are no rules."""
    history = ["i1", "i2", "i3"]
    rows = pa.table(
        {
            "history": [history, history, history],
            "max_repeats": pa.array([1.0, None, None]),
            "at_most": pa.array([{"kind": 1}, None, None]),
            "boost": pa.array([None, [("i9", 50.0)], None], pa.map_(pa.string(), pa.float64())),
            "cooldown": pa.array([None, ["2 items"], None]),
        }
    )
    pq.write_table(rows, tmp_path / "in.parquet")
    recommend_file(model, HistorySource(tmp_path / "in.parquet"), tmp_path / "out.parquet", Policy(n=4, max_repeats=2))
    first, second, third = pq.read_table(tmp_path / "out.parquet")["ids"].to_pylist()
    assert first == model.recommend(history, 4, max_repeats=1, at_most={"kind": 1}).ids
    assert second == model.recommend(history, 4, max_repeats=2, boost={"i9": 50}, cooldown="2 items").ids
    assert second[0] == "i9"
    assert third == model.recommend(history, 4, max_repeats=2).ids


def test_a_faulty_rule_of_a_row_names_the_row(model: Recommender, tmp_path: Path) -> None:
    rows = [{"user": "a", "history": ["i1"]}, {"user": "b", "history": ["i1"], "cooldown": "a week"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(Exception, match="the rules of 'b': cooldown 'a week' is not a time"):
        recommend_file(model, HistorySource(tmp_path / "in.jsonl"), tmp_path / "out.parquet", Policy())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"at_most": {"brand": 2}}, "has no column 'brand'"),
        ({"cooldown": ["a week"]}, "cooldown"),
        ({"cooldown": ["7 days"]}, "needs the times of the history"),
        ({"boost": {"i1": "much"}}, "boost.i1"),
        ({"at_least": {"kind": 2}}, "at_least.kind"),
        ({"diversity": 2}, "diversity"),
        ({"max_repeats": -1}, "max_repeats"),
        ({"min_new": 1.5}, "min_new"),
    ],
)
def test_a_faulty_rule_of_a_request_is_refused(client: TestClient, body: dict[str, Any], said: str) -> None:
    answer = client.post("/recommend", json={"history": ["i1", "i2"], **body})
    assert answer.status_code == 422
    assert said in answer.json()["detail"]

"""Types of events from a log to answers: learned from views, predicted for purchases, the same on every surface."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from fastapi.testclient import TestClient

import abaca
from abaca.batch import recommend_file
from abaca.data.queries import HistorySource
from abaca.data.synthetic import synthetic_log
from abaca.errors import LogError, QueryError
from abaca.evaluation.evaluate import Evaluation
from abaca.export import Graph
from abaca.policy import Policy
from abaca.recommender import Recommender
from abaca.serve.app import make_app
from abaca.serve.metrics import Metrics
from abaca.serve.service import Service
from abaca.serve.store import open_store
from commandline import Cli

LOG = synthetic_log("view-then-buy", 200, 60, 25, 0)
ROUND = ["view", "view", "view", "cart"]
QUICK: dict[str, Any] = {"epochs": 2, "dim": 8, "seed": 0, "device": "cpu"}


def fitted(output: str = "softmax+CP+habits", **options: Any) -> Recommender:
    return Recommender("sasrec", output, **QUICK, **options).fit(LOG, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("typed") / "model"
    fitted(targets_of=["buy"], event_weights="auto").save(made)
    return made


@pytest.fixture(scope="module")
def blind() -> Evaluation:
    """What a model scores that reads all events alike."""
    return fitted().evaluate()


@pytest.fixture(scope="module")
def model(folder: Path) -> Recommender:
    return abaca.load(folder)


def test_learning_from_views_predicts_purchases(model: Recommender, blind: Evaluation) -> None:
    """Purchases alone say nothing of the next one; the item in the cart is bought three times in four."""
    typed = model.evaluate(LOG)
    alone = fitted(events=["buy"], min_user=1).evaluate()
    for other in (alone, blind):
        assert (other.users == typed.users).all()
        assert len(other.rank) == 200
    assert alone.mean("ndcg@10") < 0.2
    assert blind.mean("ndcg@10") < 0.8
    assert typed.mean("ndcg@10") > 0.85


def test_a_repeat_is_bought_again_not_viewed_again(model: Recommender, blind: Evaluation) -> None:
    """Every target was viewed before, and none was bought before."""
    found = model.evaluate(LOG)
    assert found.repeats_of == ("buy",)
    assert found.to_json()["repeats_of"] == ["buy"]
    assert not found.repeat.any()
    assert blind.repeat.all()
    assert "repeats_of" not in blind.to_json()


def test_the_item_in_the_cart_is_recommended_and_is_no_repeat(model: Recommender) -> None:
    answer = model.recommend([7, 8, 9, 8], n=3, types=ROUND)
    assert answer.ids[0] == 8
    assert not answer.items[0].repeat
    assert answer.items[0].reason.startswith("new · habits: seen 2 times")
    assert "last event: cart" in answer.items[0].reason
    assert answer.items[0].times == 2
    other = model.recommend([7, 8, 9, 7], n=3, types=ROUND)
    assert other.ids[0] == 7
    history, types = [7, 8, 9, 8, 8, 1, 2, 3, 1], [*ROUND, "buy", *ROUND]
    bought = model.recommend(history, n=60, types=types)
    assert bought.ids[0] == 1
    assert [item.id for item in bought.items if item.repeat] == [8]
    assert 8 not in model.recommend(history, n=60, types=types, repeats="exclude").ids
    assert model.recommend(history, n=60, types=types, repeats="only").ids == [8]
    assert answer.items[0].terms.keys() >= {"type", "taken"}
    assert sum(answer.items[0].terms.values()) == pytest.approx(answer.items[0].logit)


def test_without_types_every_event_has_the_usual_one(model: Recommender) -> None:
    assert model.saved is not None
    assert model.saved.types is not None
    assert model.saved.types.names[model.saved.types.usual] == "buy"
    plain, given = model.recommend([7, 8, 9]), model.recommend([7, 8, 9], types=["buy"] * 3)
    assert plain == given == model.recommend([7, 8, 9], types=[None, "buy", None])
    assert plain != model.recommend([7, 8, 9], types=["view"] * 3)
    assert [model.recommend([7, 8, 9])] == list(model.recommend_many([[7, 8, 9]], types=[None]))


def test_wrong_types_of_a_query_are_refused(model: Recommender) -> None:
    with pytest.raises(QueryError, match="'sold' is no type of event that the model knows; it knows buy, cart, view"):
        model.recommend([7], types=["sold"])
    with pytest.raises(QueryError, match="`types`: 2 types for 1 items"):
        model.recommend([7], types=["buy", "buy"])
    with pytest.raises(QueryError, match="`types` has 1 entries for 2 histories"):
        model.recommend_many([[7], [8]], types=[["buy"]])
    with pytest.raises(QueryError, match="trained without types of events; leave `types` out"):
        fitted("softmax", events=["buy"], min_user=1).recommend([7], types=["buy"])


def test_weights_are_recorded(model: Recommender, folder: Path) -> None:
    assert model.saved is not None
    weights = model.saved.training["type_weights"]
    assert weights["buy"] == 1
    assert weights["view"] == pytest.approx(1 / 3)
    assert weights["cart"] == pytest.approx(0.75, abs=0.05)
    document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert document["training"]["event_types"]["targets"] == ["buy"]
    assert model.learned.targets_of == ("buy",)


def test_files_and_http_answer_as_python_does(model: Recommender, folder: Path, tmp_path: Path) -> None:
    queries = [([7, 8, 9, 8], ROUND), ([1, 2, 3, 3, 3, 4], [*ROUND, "buy", "view"])]
    expected = [model.recommend(history, n=3, types=types).ids for history, types in queries]
    rows = [{"history": history, "types": types} for history, types in queries]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "lists.parquet")
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    log = [
        (user, item, kind)
        for user, (items, kinds) in enumerate(queries)
        for item, kind in zip(items, kinds, strict=True)
    ]
    lines = "".join(f"{user},{item},{place},{kind}\n" for place, (user, item, kind) in enumerate(log))
    (tmp_path / "log.csv").write_text("user,item,time,event\n" + lines, encoding="utf-8")
    for name in ("lists.parquet", "lists.jsonl", "log.csv"):
        to = tmp_path / f"{name}.parquet"
        recommend_file(model, HistorySource(tmp_path / name), to, Policy(n=3))
        assert pyarrow.parquet.read_table(to)["ids"].to_pylist() == expected, name
    metrics = Metrics()
    app = make_app(Service([folder], observe=metrics.batch), metrics, None, (), None)
    with TestClient(app, "http://localhost") as client:
        histories, types = zip(*queries, strict=True)
        several = client.post("/recommend", json={"histories": histories, "types": types, "n": 3}).json()
        assert [[item["id"] for item in answer["items"]] for answer in several["answers"]] == expected
        one = client.post("/recommend", json={"history": histories[0], "types": types[0], "n": 3}).json()
        assert one["answers"] == several["answers"][:1]
        for wrong in ({"types": ["view"]}, {"types": ["sold"] * 4}, {"types": [ROUND]}, {"types": [1, 2, 3, 4]}):
            assert client.post("/recommend", json={"history": histories[0], **wrong}).status_code in (400, 422), wrong


def test_a_cool_down_counts_events_of_its_type(model: Recommender, folder: Path, tmp_path: Path) -> None:
    """8 was bought two days ago and 9 viewed one day ago, 7 three days ago; the rule is the same on every surface."""
    day = 86400
    asked = {"history": [7, 8, 8, 9], "types": ["view", "view", "buy", "view"], "n": 60}
    asked |= {"times": [0, day, day, 2 * day], "now": 3 * day}
    barred: dict[str, set[int]] = {
        "3 days of buy": {8},
        "2 days of buy": set(),
        "36 hours of view": {9},
        "3 days of view": {8, 9},
        "2 items of view": {8, 9},
        "1 item of buy": {8},
        "3 days": {8},
        "4 days of cart": set(),
    }
    with TestClient(make_app(Service([folder]), Metrics()), "http://localhost") as client:
        for cooldown, items in barred.items():
            ids = model.recommend(**asked, cooldown=cooldown).ids
            assert {7, 8, 9} - set(ids) == items, cooldown
            found = client.post("/recommend", json={**asked, "cooldown": [cooldown]}).json()["answers"][0]["items"]
            assert [item["id"] for item in found] == ids
        wrong = client.post("/recommend", json={**asked, "cooldown": ["3 days of sale"]})
        assert wrong.status_code == 422
        assert "it knows buy, cart, view" in wrong.json()["detail"]
    rows = [{**asked, "cooldown": cooldown} for cooldown in barred]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recommend_file(model, HistorySource(tmp_path / "in.jsonl", history="history"), tmp_path / "out.parquet", Policy())
    lists = pyarrow.parquet.read_table(tmp_path / "out.parquet")["ids"].to_pylist()
    assert [{7, 8, 9} - set(ids) for ids in lists] == list(barred.values())
    late = model.recommend([8, 7], n=60, types=["buy", "view"], times=[0, 4 * day], cooldown="3 days").ids
    assert 8 in late  # without a moment of the query, the latest event of any type is it


def test_a_cool_down_of_a_type_is_never_violated(model: Recommender, folder: Path, tmp_path: Path) -> None:
    """Random histories, on every surface: nothing that is barred is listed, and the others keep their order."""
    assert model.saved is not None
    rng, ids = np.random.default_rng(2), model.saved.catalogue.ids
    rows: list[dict[str, Any]] = []
    expected = []
    for _ in range(24):
        size, kind = int(rng.integers(1, 9)), str(rng.choice(["view", "cart", "buy"]))
        history, types = rng.choice(ids[:12], size).tolist(), rng.choice(["view", "cart", "buy"], size).tolist()
        times, now = np.sort(rng.integers(0, 240, size) * 3600).tolist(), 241 * 3600
        asked = {"history": history, "types": types, "times": times, "now": now, "n": 60}
        events = [(item, time) for item, type, time in zip(history, types, times, strict=True) if type == kind]
        amount = int(rng.integers(1, 200))
        barred = {item for item, time in events if now - time < amount * 3600}
        cooldown = f"{amount} hours of {kind}"
        if rng.random() < 0.5:
            amount = int(rng.integers(1, 4))
            barred, cooldown = {item for item, _ in events[-amount:]}, f"{amount} items of {kind}"
        expected.append([id for id in model.recommend(**asked).ids if id not in barred])
        rows.append({**asked, "cooldown": cooldown})
    assert [model.recommend(**row).ids for row in rows] == expected
    assert any(len(found) < len(ids) for found in expected)
    with TestClient(make_app(Service([folder]), Metrics()), "http://localhost") as client:
        for row, wanted in zip(rows, expected, strict=True):
            found = client.post("/recommend", json=row).json()["answers"][0]["items"]
            assert [item["id"] for item in found] == wanted
        wrong = client.post("/recommend", json={**rows[0], "cooldown": "-1 items"})
        assert "a cool-down is a number and a unit" in wrong.json()["detail"]
    lines = "".join(json.dumps({name: row[name] for name in row if name != "n"}) + "\n" for row in rows)
    (tmp_path / "in.jsonl").write_text(lines, encoding="utf-8")
    source = HistorySource(tmp_path / "in.jsonl", history="history")
    recommend_file(model, source, tmp_path / "out.parquet", Policy(n=60))
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet")["ids"].to_pylist() == expected


def test_stored_events_keep_their_types(model: Recommender, folder: Path, tmp_path: Path) -> None:
    """A stored history is read with its types; one that the model does not know is the usual one."""
    store, metrics = open_store(str(tmp_path / "events.db")), Metrics()
    with TestClient(make_app(Service([folder], observe=metrics.batch), metrics, store, (), None)) as client:
        for user, kinds in {"typed": ROUND, "plain": [None] * 4, "other": ["sold"] * 4}.items():
            sent = zip([7, 8, 9, 8], kinds, range(4), strict=True)
            events = [{"user": user, "item": item, "time": at, "type": kind} for item, kind, at in sent]
            assert client.post("/events", json={"events": events}).status_code == 200
        found = {
            user: chances(client.get(f"/users/{user}/recommendations?n=3").json()["items"])
            for user in ("typed", "plain", "other")
        }
        kept = client.get("/users/typed/history").json()["items"]
    assert [item["type"] for item in kept] == ROUND
    typed, plain = (chances(map(vars, model.recommend([7, 8, 9, 8], n=3, types=types))) for types in (ROUND, None))
    assert found["typed"] == pytest.approx(typed)
    assert found["plain"] == found["other"] == pytest.approx(plain)
    assert typed != pytest.approx(plain)


def chances(items: Iterable[dict[str, Any]]) -> dict[int, float]:
    """The probabilities of recommended items."""
    return {item["id"]: item["probability"] for item in items}


def test_a_row_whose_types_do_not_fit_is_named(model: Recommender, tmp_path: Path) -> None:
    for types, said in ((["view"], "it has 2 items and 1 types"), ("view", "is not a list of types of events")):
        row = json.dumps({"history": [7, 8], "types": types})
        (tmp_path / "lists.jsonl").write_text(row + "\n", encoding="utf-8")
        with pytest.raises(LogError, match=said):
            recommend_file(model, HistorySource(tmp_path / "lists.jsonl"), tmp_path / "a.parquet", Policy(n=3))


def test_the_graph_of_an_export_reads_types(model: Recommender) -> None:
    """What is traced for ONNX gives the items and probabilities of `recommend`."""
    assert model.saved is not None
    graph = Graph(model.saved, model.training.window, 4)
    assert "types" in graph.inputs
    history, types = [7, 8, 9, 8, 8, 3], [*ROUND, "buy", "view"]
    ids, names = model.saved.catalogue, ["buy", "cart", "view"]
    items = torch.tensor([[ids.index(item) for item in history]])
    numbers = torch.tensor([[names.index(kind) for kind in types]])
    times = torch.full(items.shape, torch.nan, dtype=torch.float64) if "times" in graph.inputs else None
    now = torch.full((1,), torch.nan, dtype=torch.float64) if "now" in graph.inputs else None
    with torch.no_grad():
        found, probabilities, _, repeat = graph(items, torch.full((1, 1), -1), numbers, times, now)
    expected = model.recommend(history, n=4, types=types)
    assert [ids.ids[item] for item in found[0].tolist()] == expected.ids
    np.testing.assert_allclose(probabilities[0], [item.probability for item in expected.items], rtol=1e-4)
    assert float(repeat) == pytest.approx(expected.repeat_probability, rel=1e-4)  # of what was bought


def test_an_update_keeps_the_types_and_refuses_new_ones() -> None:
    first = fitted("softmax+habits+followers", targets_of=["buy"])
    rows = LOG.to_pylist()
    late = [{**row, "time": row["time"] + 1000} for row in rows[:25]]
    whole = pyarrow.Table.from_pylist([*rows, *late])
    before = first.recommend([7, 8, 9, 8], types=ROUND).ids[0]
    first.update(whole, whole=True)
    assert first.recommend([7, 8, 9, 8], types=ROUND).ids[0] == before == 8
    returned = [{**row, "time": row["time"] + 1000, "event": "return"} for row in late]
    other = pyarrow.Table.from_pylist([*rows, *late, *returned])
    with pytest.raises(LogError, match="events of type return, which the model does not know"):
        first.update(other, whole=True)


def test_the_command_line(tmp_path: Path, cli: Cli) -> None:
    log, model, prepared = (str(tmp_path / name) for name in ("log.parquet", "model", "prepared"))
    pyarrow.parquet.write_table(LOG.slice(0, 1500).rename_columns(["user", "item", "time", "kind"]), log)
    quick = ["--epochs", "1", "--dim", "8", "--output", "softmax+C"]
    weights = ["--targets-of", "buy", "--event-weights", "view=0.2,cart=0.5"]
    assert cli("train", log, model, "--event", "kind", *weights, *quick).code == 0
    made = abaca.load(model)
    assert made.saved is not None
    assert made.saved.training["type_weights"] == pytest.approx({"buy": 1.0, "cart": 0.5, "view": 0.2})
    said = cli("evaluate", model, log, "--no-baselines").done
    assert "repeat: an earlier event of type buy with the same item" in said
    manifest = cli("prepare", log, prepared, "--event", "kind", "--json").json
    assert manifest["event_types"]["targets"] == ["buy", "cart", "view"]
    one = ["--events", "buy", "--overwrite", "--json", "--min-user", "1"]
    assert "event_types" not in cli("prepare", log, prepared, "--event", "kind", *one).json

"""Items without interactions: on a log where categories follow each other, features alone find the right ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from fastapi.testclient import TestClient

from abaca.batch import recommend_file
from abaca.data.queries import HistorySource
from abaca.errors import QueryError, SpecError
from abaca.evaluation.cold import evaluate_cold
from abaca.policy import Policy
from abaca.recommender import Recommender
from abaca.serve.app import make_app
from abaca.serve.metrics import Metrics
from abaca.serve.service import Service

CATEGORIES, EACH, USERS, LENGTH = 4, 15, 150, 12
FAST: dict[str, Any] = {
    "encoder": "sasrec", "output": "softmax", "epochs": 4, "dim": 16, "blocks": 1, "lr": 0.01, "warmup": 10,
    "average": 0.0, "options": "fixed", "hold_out_items": 0.2, "seed": 1,
}  # fmt: skip


def log() -> pyarrow.Table:
    """Category c + 1 follows category c; which of its items is random."""
    random = np.random.default_rng(0)
    place = np.arange(LENGTH)
    items = (random.integers(CATEGORIES, size=(USERS, 1)) + place) % CATEGORIES
    items = items + CATEGORIES * random.integers(EACH, size=(USERS, LENGTH))
    users = np.repeat(np.arange(USERS), LENGTH)
    return pyarrow.table({"user": users, "item": items.ravel(), "time": np.tile(place, USERS)})


def item_table() -> pyarrow.Table:
    ids = np.arange(CATEGORIES * EACH)
    return pyarrow.table(
        {"item": ids, "kind": [f"kind {id % CATEGORIES}" for id in ids], "title": [f"t{id}" for id in ids]}
    )


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(features="kind", **FAST).fit(log(), items=item_table())


def cold_ids(recommender: Recommender) -> list[int]:
    assert recommender.sequences is not None
    catalogue = recommender.sequences.catalogue
    return [int(id) for id in catalogue.ids[catalogue.size :]]


def test_cold_items_of_the_right_category_are_recommended_first(fitted: Recommender) -> None:
    cold = cold_ids(fitted)
    assert len(cold) == 12
    for last in range(CATEGORIES):
        warm = next(id for id in range(CATEGORIES * EACH) if id % CATEGORIES == last and id not in cold)
        right = {id for id in cold if id % CATEGORIES == (last + 1) % CATEGORIES}
        found = fitted.recommend([warm], len(cold), candidates=cold)
        assert set(found.ids[: len(right)]) == right


def test_cold_targets_are_found_among_cold_items(fitted: Recommender) -> None:
    assert fitted.sequences is not None
    ranks = evaluate_cold(fitted.ranker(), fitted.sequences, cutoffs=(5,))
    found = ranks.summarise(100)
    assert found.items == 12
    assert found.targets == int(ranks.cold.sum()) > 10
    assert found.random["hr@5"] == pytest.approx(5 / 12)
    assert found.cold["hr@5"].value > 2 * found.random["hr@5"]  # items of one category are equal, and ties count
    whole = fitted.evaluate(cutoffs=(10,))
    assert whole.catalogue == CATEGORIES * EACH
    assert whole.summary.cold == found.targets
    assert (ranks.rank <= whole.rank).all()


def test_similar_items_of_a_cold_one_share_its_category(fitted: Recommender) -> None:
    for cold in cold_ids(fitted)[:3]:
        assert {int(item.id) % CATEGORIES for item in fitted.similar(cold, 5)} == {cold % CATEGORIES}


def test_a_saved_model_answers_alike(fitted: Recommender, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = Recommender.load(tmp_path / "model")
    history = cold_ids(fitted)[:2]
    assert again.recommend(history).ids == fitted.recommend(history).ids
    assert again.similar(history[0]) == fitted.similar(history[0])


def test_cold_items_are_searched_and_exported(fitted: Recommender, tmp_path: Path) -> None:
    """An exact index and the exported graph rank all items, cold ones too, as the model does."""
    onnxruntime, _ = pytest.importorskip("onnxruntime"), pytest.importorskip("faiss")
    from abaca.export import OUTPUTS, export_onnx
    from abaca.search.answer import IndexSearch
    from abaca.search.index import build

    cold, whole = cold_ids(fitted), CATEGORIES * EACH
    fitted.save(tmp_path / "model")
    model = Recommender.load(tmp_path / "model")
    assert model.saved is not None
    history = [1, cold[0], 3]
    wanted = model.recommend(history, whole)
    assert set(cold) <= set(wanted.ids)
    export_onnx(model.saved, 50, tmp_path / "graph.onnx", whole)
    session = onnxruntime.InferenceSession(tmp_path / "graph.onnx")
    numbers = np.array([[model.saved.catalogue.index(id) for id in history]])
    asked = {"histories": numbers, "exclude": np.full((1, 1), -1)}
    found = dict(zip(OUTPUTS, session.run(list(OUTPUTS), asked), strict=True))
    assert {model.saved.catalogue.ids[item] for item in found["items"][0]} == set(wanted.ids)
    assert found["probabilities"][0] == pytest.approx([item.probability for item in wanted], rel=1e-4)
    table = model.saved.model.table.detach()
    model._advisor.ranker.search = IndexSearch(build(table.numpy(), "flat"), table)  # type: ignore[union-attr]
    listed = model.recommend(history, 5, candidates=cold)
    best = [item.logit for item in wanted if item.id in cold][:5]  # equal features have equal scores, in any order
    assert [item.logit for item in listed] == pytest.approx(best, abs=1e-4)
    assert set(listed.ids) <= set(cold)


def test_a_list_has_as_many_cold_items_as_a_rule_wants(fitted: Recommender) -> None:
    """The best cold items replace the last others; the order is that of the scores."""
    cold, random = set(cold_ids(fitted)), np.random.default_rng(0)
    whole = CATEGORIES * EACH
    for least in range(5):
        history = random.integers(whole, size=5).tolist()
        ranked, found = fitted.recommend(history, whole).ids, fitted.recommend(history, 6, min_cold=least)
        plain = ranked[:6]
        lacking = max(0, least - sum(id in cold for id in plain))
        added = [id for id in ranked[6:] if id in cold][:lacking]
        dropped = [id for id in reversed(plain) if id not in cold][:lacking]
        assert found.ids == [id for id in ranked if id in (set(plain) - set(dropped)) | set(added)]
        assert [(effect.rule, effect.moved) for effect in found.rules] == (
            [("min_cold", tuple(added))] if added else []
        )
    warm = [id for id in range(whole) if id not in cold]
    (short,) = fitted.recommend([1, 2], 4, min_cold=3, candidates=[*warm, min(cold)]).rules
    assert (short.rule, short.short, short.moved) == ("min_cold", 2, (min(cold),))


def test_cold_items_are_wanted_alike_on_every_surface(fitted: Recommender, tmp_path: Path) -> None:
    histories, wanted = [[1, 2, 3], [4, 9]], [3, 1]
    each = zip(histories, wanted, strict=True)
    expected = [fitted.recommend(history, 5, min_cold=least).ids for history, least in each]
    rows = pyarrow.table({"history": histories, "min_cold": wanted})
    pyarrow.parquet.write_table(rows, tmp_path / "lists.parquet")
    recommend_file(fitted, HistorySource(tmp_path / "lists.parquet"), tmp_path / "answers.parquet", Policy(n=5))
    assert pyarrow.parquet.read_table(tmp_path / "answers.parquet")["ids"].to_pylist() == expected
    fitted.save(tmp_path / "model")
    with TestClient(make_app(Service([tmp_path / "model"]), Metrics())) as client:
        for history, least, ids in zip(histories, wanted, expected, strict=True):
            (found,) = client.post("/recommend", json={"history": history, "n": 5, "min_cold": least}).json()["answers"]
            assert [item["id"] for item in found["items"]] == ids


def test_cold_items_need_features() -> None:
    plain = Recommender("gru4rec", "softmax", epochs=1, dim=8, options="fixed").fit(log())
    with pytest.raises(QueryError, match="min_cold needs a model with features"):
        plain.recommend([1, 2], min_cold=1)


def test_further_items_are_known_by_their_features(fitted: Recommender, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    grown = Recommender.load(tmp_path / "model")
    before, asked = grown.recommend([1, 2]), cold_ids(fitted)[0]
    grown.add_items([{"id": 1000 + kind, "kind": f"kind {kind}", "title": f"new {kind}"} for kind in range(CATEGORIES)])
    grown.save(tmp_path / "grown")
    for model in (grown, Recommender.load(tmp_path / "grown")):
        assert [item.id for item in model.recommend([asked], 1, candidates=range(1000, 1004))] == [
            1000 + (asked + 1) % CATEGORIES
        ]
        assert [one.logit for one in model.recommend([1, 2], candidates=before.ids)] == [one.logit for one in before]
    with pytest.raises(QueryError, match="knows the item '1000'"):
        grown.add_items([{"id": "1000", "kind": "kind 1"}])


def test_new_items_of_an_update_have_vectors_of_features_and_rows() -> None:
    rows, new = log(), CATEGORIES * EACH
    options = FAST | {"hold_out_items": 0.0, "output": "softmax+followers", "epochs": 2, "min_user": 1}
    made = Recommender(features="kind", **options).fit(rows, items=item_table(), updatable=True)
    later = pyarrow.table({"user": [9999] * 3, "item": [0, new, 1], "time": [100, 101, 102]})
    wide = pyarrow.table({"item": [*range(new + 1)], "kind": [f"kind {id % CATEGORIES}" for id in range(new + 1)]})
    made.update(later, items=wide.append_column("title", [["t"] * (new + 1)]))
    assert made.saved is not None
    model, item = made.saved.model, made.saved.catalogue.index(new)
    assert item == new
    assert model.features is not None
    g = model.features.of(torch.tensor([item]))[0]
    assert g.norm() > 0
    mean = model.table[[made.saved.catalogue.index(0), made.saved.catalogue.index(1)]].mean(0)  # one place on each side
    both = pyarrow.concat_tables([rows, later])["item"].to_numpy()
    taken = torch.from_numpy(np.bincount([made.saved.catalogue.index(id) for id in both])[:new]).float()
    vector = model.table[:new].mean(0) + mean - taken @ model.table[:new] / taken.sum()
    own = 2 / (2 + 5) * (vector - g)
    torch.testing.assert_close(model.items.weight[item], own, atol=1e-4, rtol=1e-2)
    torch.testing.assert_close(model.table[item], g + own, atol=1e-4, rtol=1e-2)


def test_items_that_features_made_known_stay_when_a_model_is_trained_on() -> None:
    """Also the columns of old items stay, where the new item table lacks them."""
    rows, new = log(), CATEGORIES * EACH
    options = FAST | {"hold_out_items": 0.0, "output": "softmax", "epochs": 1, "min_user": 1}
    made = Recommender(features="kind", **options).fit(rows, items=item_table(), updatable=True)
    made.add_items([{"id": new, "kind": "kind 1", "title": "new"}])
    later = pyarrow.table({"user": [9999] * 5, "item": [0, 1, 2, 3, 4], "time": [100, 101, 102, 103, 104]})
    few = pyarrow.table({"item": [0], "kind": ["kind 2"], "title": ["other"]})
    made.update(later, train=True, items=few)
    assert made.saved is not None
    catalogue = made.saved.catalogue
    assert catalogue.ids[-1] == new
    kinds, places = catalogue.columns["kind"], [catalogue.index(id) for id in (0, 1, new)]
    assert [kinds[place] for place in places if place is not None] == ["kind 2", "kind 1", "kind 1"]
    assert made.recommend([1], 1, candidates=[new]).ids == [new]
    assert made.saved.model.features is not None
    assert made.saved.model.table[-1].norm() > 0


def test_the_options_of_features_change_something() -> None:
    losses = []
    for options in ({}, {"features": "kind"}, {"features": "kind", "feature_dropout": 0.6}):
        made = Recommender(**FAST | {"epochs": 1} | options).fit(log(), items=item_table())
        assert made.saved is not None
        losses.append(made.saved.training["records"][0]["loss"])
    assert len(set(losses)) == 3


def test_without_features_nothing_is_cold_to_rank() -> None:
    plain = Recommender(**FAST | {"epochs": 1}).fit(log())
    assert plain.sequences is not None
    with pytest.raises(SpecError, match="ranks no cold items"):
        evaluate_cold(plain.ranker(), plain.sequences)


def test_features_need_an_item_table() -> None:
    with pytest.raises(SpecError, match="no column 'kind'"):
        Recommender(features=["kind"], **FAST).fit(log())

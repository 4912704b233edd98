"""An index answers as full ranking does: surely when it is exact, mostly when it is not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from abaca.errors import ModelError, SpecError
from abaca.histories import Windows
from abaca.nn.logits import Logits
from abaca.recommender import Recommender
from abaca.search import answer
from abaca.search.answer import IndexSearch
from abaca.search.index import Index, build, cell_count
from abaca.search.measure import check, exact_answers, own_histories, recall
from abaca.search.tune import least, make_index, write_index
from abaca.training.checkpoint import load_model, weights_of
from models import WINDOW, untrained

SPECS = ["softmax", "softmax+nodup", "softmax+CP+Mi", "softmax+CPR:4", "softmax+CPR:2,5,9+Mi", "mos:3+CPR:6"]
POLICIES: list[dict[str, Any]] = [
    {},
    {"repeats": "exclude"},
    {"repeats": "only"},
    {"max_repeat_share": 0.4},
    {"exclude": ("i3", "i7", "i11")},
    {"candidates": ("i1", "i2", "i5", "i20"), "exclude": ("i2",)},
]
ITEMS = 400


def histories(count: int, seed: int = 0) -> list[list[str]]:
    """With repeats, some longer than the window."""
    rng = np.random.default_rng(seed)
    return [[f"i{item}" for item in rng.integers(0, 30, length)] for length in rng.integers(1, WINDOW + 6, count)]


def with_index(recommender: Recommender, index: Index) -> Recommender:
    assert recommender._advisor is not None
    assert recommender.saved is not None
    recommender._advisor.ranker.search = IndexSearch(index, recommender.saved.model.items.weight)
    return recommender


def table_of(recommender: Recommender) -> np.ndarray:
    assert recommender.saved is not None
    return recommender.saved.model.items.weight.detach().numpy()


@pytest.mark.parametrize("output", SPECS)
def test_an_exact_index_gives_the_full_ranking(tmp_path: Path, output: str) -> None:
    """Ids, reasons and probabilities, under every policy, for some and for all items."""
    full = untrained(tmp_path / "model", output)
    indexed = untrained(tmp_path / "model", output)
    with_index(indexed, build(table_of(indexed), "flat"))
    for policy in POLICIES:
        for n in (3, 40):
            for one, other in zip(
                full.recommend_many(histories(12), n, **policy),
                indexed.recommend_many(histories(12), n, **policy),
                strict=True,
            ):
                assert one.ids == other.ids, policy
                assert [item.reason for item in one] == [item.reason for item in other]
                assert [item.probability for item in one] == pytest.approx([i.probability for i in other], rel=2e-5)
                assert one.repeat_probability == pytest.approx(other.repeat_probability, rel=2e-5)
                assert not other.estimated


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_approximate_index_with_all_its_effort_finds_everything_and_says_that_it_estimates(
    tmp_path: Path, kind: str
) -> None:
    ids = [f"i{i}" for i in range(ITEMS)]
    full = untrained(tmp_path / "model", ids=ids)
    index = build(table_of(full), kind)
    index.effort = index.most
    indexed = with_index(untrained(tmp_path / "model", ids=ids), index)
    for history in histories(8):
        one, other = full.recommend(history, 10), indexed.recommend(history, 10)
        assert one.ids == other.ids
        assert (one.estimated, other.estimated) == (False, True)
        assert other.to_json()["estimated"]


def test_the_normaliser_is_estimated_from_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abaca.search.answer.SAMPLE", 200)
    recommender = untrained(tmp_path / "model", ids=[f"i{i}" for i in range(2000)])
    index = build(table_of(recommender), "ivf")
    index.effort = index.most
    ranker = recommender.ranker()
    exact = exact_answers(ranker, own_histories(ranker, 40, 0))
    found = recall(IndexSearch(index, ranker.model.items.weight), exact)
    assert found.base == found.answers == 1
    assert 0 < found.normaliser < 0.2


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_more_effort_finds_more(kind: str) -> None:
    rng = np.random.default_rng(0)
    table, queries = rng.normal(size=(4000, 16)), rng.normal(size=(50, 16))
    best = np.argsort(-queries @ table.T, axis=1)[:, :10]
    index = build(table.astype(np.float32), kind)
    shares = []
    for effort in (1, 16, index.most):
        index.effort = effort
        found = index.find(queries.astype(np.float32), 10)
        shares.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, best, strict=True)]))
    assert shares == sorted(shares)
    assert shares[0] < 0.9 < 0.99 < shares[-1]  # ivf: in half precision two items may be as good as equal


def test_more_cells_are_looked_at_where_the_usual_ones_hold_too_little(tmp_path: Path) -> None:
    """Many items asked for, many excluded, a long history that is not to be repeated."""
    ids = [f"i{i}" for i in range(ITEMS)]
    full = untrained(tmp_path / "model", "softmax+CPR:20", ids=ids)
    index = build(table_of(full), "ivf")
    assert index.effort == 1
    assert (index.find(np.ones((3, 8), np.float32), 300) >= 0).all()
    indexed = with_index(untrained(tmp_path / "model", "softmax+CPR:20", ids=ids), index)
    assert indexed.recommend(["i1", "i2"], ITEMS).ids == full.recommend(["i1", "i2"], ITEMS).ids
    best = full.recommend(["i1", "i2"], ITEMS).ids
    assert len(indexed.recommend(["i1", "i2"], 10, exclude=best[:300])) == 10
    assert indexed.recommend(["i1", "i2"], 10, exclude=best[: ITEMS - 10]).ids == best[-10:]
    assert len(indexed.recommend(best[:350], 10, repeats="exclude")) == 10


def test_more_is_looked_at_for_more_items_than_usual() -> None:
    rng = np.random.default_rng(0)
    table, queries = rng.normal(size=(4000, 16)).astype(np.float32), rng.normal(size=(50, 16)).astype(np.float32)
    index = build(table, "ivf")
    index.effort = 32
    best = np.argsort(-queries @ table.T, axis=1)[:, :80]

    def share(usual: int) -> float:
        found = index.find(queries, 80, usual)
        return float(np.mean([len(set(a) & set(b)) / 80 for a, b in zip(found, best, strict=True)]))

    assert share(80) < share(40) < share(10)


def test_the_index_is_tuned_to_the_recall_that_is_asked_for(tmp_path: Path) -> None:
    recommender = untrained(tmp_path / "model", ids=[f"i{i}" for i in range(3000)])
    assert recommender.saved is not None
    ranker = recommender.ranker()
    queries = own_histories(ranker, 60, 0)
    efforts = []
    for wanted in (0.5, 1.0):
        index = make_index(recommender.saved, ranker, "ivf", wanted, queries, lambda text: None)
        assert index is not None
        facts = check(ranker, index, queries, 2)
        assert min(facts["recall@10"], facts["answers_recall@10"]) >= wanted
        efforts.append(index.effort)
    assert efforts[0] < efforts[1]


def test_own_histories_are_of_the_catalogue_and_differ(tmp_path: Path) -> None:
    ranker = untrained(tmp_path / "model").ranker()
    made = own_histories(ranker, 50, 0)
    assert len({len(history) for history in made}) > 3
    assert len({tuple(history) for history in made}) > 30
    assert all(((history >= 0) & (history < 30)).all() for history in made)
    assert [h.tolist() for h in made] == [h.tolist() for h in own_histories(ranker, 50, 0)]


def test_the_least_effort_is_found_within_a_tenth() -> None:
    for needed in (1, 2, 3, 17, 100, 513, 999):
        found = least(lambda effort, needed=needed: effort >= needed, 1000)
        assert needed <= found <= needed * 1.12 + 1


def test_there_are_cells_for_any_catalogue() -> None:
    assert [cell_count(items) for items in (1, 7, 20, 1000, 1_000_000)] == [1, 1, 2, 125, 8192]


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    recommender = untrained(folder)
    write_index(folder, weights_of(folder), build(table_of(recommender), "flat"), {"why": "a test"})
    return folder


def test_the_index_is_part_of_the_model_directory(indexed: Path) -> None:
    loaded = Recommender.load(indexed)
    assert loaded._advisor is not None
    assert isinstance(loaded._advisor.ranker.search, IndexSearch)
    exact = Recommender.load(indexed, exact=True)
    assert loaded.recommend(["i1", "i2"]).ids == exact.recommend(["i1", "i2"]).ids
    assert exact.saved is not None
    assert exact.saved.index is None
    assert not isinstance(loaded.ranker().search, IndexSearch)  # evaluation looks at every item


def test_saving_keeps_the_index_of_these_weights(indexed: Path, tmp_path: Path) -> None:
    loaded = Recommender.load(indexed)
    for folder in (tmp_path / "copy", indexed):
        loaded.save(folder)
        again = Recommender.load(folder)
        assert again.saved is not None
        assert again.saved.index is not None
        assert again.saved.index.path.parent == folder
        assert again.recommend(["i1", "i2"]).ids == loaded.recommend(["i1", "i2"]).ids
    assert loaded.saved is not None
    with torch.no_grad():
        loaded.saved.model.items.weight.mul_(2)
    loaded.save(tmp_path / "copy")
    assert load_model(tmp_path / "copy").index is None


def test_wide_rows_are_gathered_in_parts(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Recommender.load(indexed)
    whole = loaded.recommend_many(histories(12))
    monkeypatch.setattr(answer, "GATHERED", 1)
    for one, other in zip(whole, loaded.recommend_many(histories(12)), strict=True):
        assert one.ids == other.ids
        assert [item.probability for item in one] == pytest.approx([item.probability for item in other], rel=1e-5)


def test_a_new_index_replaces_the_old_and_a_new_model_drops_it(indexed: Path) -> None:
    recommender = Recommender.load(indexed)
    before = set(indexed.glob("index-*"))
    write_index(indexed, weights_of(indexed), build(table_of(recommender), "ivf"), {})
    after = set(indexed.glob("index-*"))
    assert len(after) == 1
    assert before != after
    saved = load_model(indexed)
    assert saved.index is not None
    assert (saved.index.kind, saved.index.path) == ("ivf", after.pop())
    untrained(indexed, "softmax")
    assert load_model(indexed).index is None
    assert not list(indexed.glob("index-*"))


def test_a_damaged_index_or_one_of_other_weights_is_refused(indexed: Path, tmp_path: Path) -> None:
    from abaca.training.document import document_digest

    document = json.loads((indexed / "model.json").read_text())
    document["index"]["weights"] = "weights-000000000000.safetensors"
    document["sha256"] = document_digest(document)
    whole = (indexed / "model.json").read_text()
    (indexed / "model.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match="made for other weights; run `abaca index"):
        load_model(indexed)
    (indexed / "model.json").write_text(whole)
    (path,) = indexed.glob("index-*")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not what was saved"):
        load_model(indexed)


@pytest.mark.parametrize("output", ["repeatnet", "mos-mix:2"])
def test_what_an_index_cannot_serve_is_refused(tmp_path: Path, output: str) -> None:
    recommender = untrained(tmp_path / "model", output)
    assert recommender.saved is not None
    with pytest.raises(SpecError, match="exact search only"):
        make_index(recommender.saved, recommender.ranker(), "ivf", 0.9, [np.array([1])], lambda text: None)


def test_without_faiss_the_cure_is_named(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    recommender = Recommender.load(indexed)
    with pytest.raises(ModelError, match=r"pip install 'abaca\[index\]'"):
        recommender.recommend(["i1"])
    assert Recommender.load(indexed, exact=True).recommend(["i1"]).ids


def test_scores_of_targets_are_not_asked_of_an_index(tmp_path: Path) -> None:
    recommender = untrained(tmp_path / "model")
    scores = recommender.ranker().model.scores(Windows(torch.tensor([[1, 2]]), torch.tensor([[1]])))
    assert isinstance(scores, Logits)
    search = IndexSearch(build(table_of(recommender), "flat"), recommender.ranker().model.items.weight)
    none = torch.empty(1, 0, dtype=torch.long)
    from abaca.nn.answers import Question

    found = search(scores, Question(torch.tensor([3]), 5, torch.tensor([[1, 2]]), none))
    assert (found.rank.tolist(), found.ahead.tolist()) == ([31], [0])


def test_an_index_of_weights_that_were_replaced_meanwhile_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    recommender = untrained(folder)
    weights, index = weights_of(folder), build(table_of(recommender), "flat")
    untrained(folder, "softmax")  # a new model takes the folder while the index is made
    with pytest.raises(ModelError, match="other weights than when its index was begun"):
        write_index(folder, weights, index, {})
    assert load_model(folder).index is None
    assert not list(folder.glob("index*"))

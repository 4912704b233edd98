"""Evidence on a network's scores: the formula, one structure for every reader, no leak, saved and loaded."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch

from abaca.evaluation.evaluate import evaluate
from abaca.evidence.evidence import Weights
from abaca.evidence.likelihood import HABITS, START
from abaca.histories import Histories
from abaca.nn import ops
from abaca.nn.answers import Question
from abaca.nn.ops.loss import cross_entropy
from abaca.recommender import Recommender, load
from abaca.search.answer import IndexSearch
from abaca.search.index import build

from .samples import ASKED, SIZES, V, drawn, every_logit, evidence, expected_logits, ranker, weights

SPECS = ["softmax", "softmax+nodup", "softmax+CP+Mi", "softmax+CPR:4", "mos:3+CR:3", "mos-mix:2", "repeatnet"]


@pytest.mark.parametrize("form", ["plain", "native"])
@pytest.mark.parametrize("spec", SPECS)
def test_scores_are_those_of_the_formula(spec: str, form: Any) -> None:
    with ops.form(form):
        network, final = every_logit(ranker(spec, None)), every_logit(ranker(spec, evidence()))
    np.testing.assert_allclose(final.numpy(), expected_logits(network, weights()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", ["softmax", "softmax+CPR:4"])
def test_loss_rank_and_normaliser_agree(spec: str) -> None:
    model, histories = ranker(spec, evidence()), Histories.of(ASKED)
    targets = torch.arange(len(ASKED)) % V
    nothing = torch.empty(len(ASKED), 0).long()
    found = model.ask(histories, Question(targets, V, torch.arange(V).expand(len(ASKED), V), nothing))
    final = torch.empty(len(ASKED), V).scatter(1, found.items, found.logits)
    hit = final.gather(1, targets[:, None])
    assert torch.equal(found.rank, (final >= hit).sum(1))
    torch.testing.assert_close(found.mass, torch.ones(len(ASKED)), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        parts = [
            cross_entropy(evidence().apply(scores, histories.take(numbers)), targets[numbers])
            for numbers, scores in model.scored(histories)
        ]
    torch.testing.assert_close(sum(parts), (found.normaliser - hit.squeeze(1)).sum(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("spec", ["softmax", "softmax+CP+Mi", "softmax+CPR:4", "mos:3+CR:3"])
@pytest.mark.parametrize("n", [1, 5, 30])
def test_an_exact_index_gives_the_full_ranking(spec: str, n: int) -> None:
    full, indexed = ranker(spec, evidence()), ranker(spec, evidence())
    table = indexed.model.table.detach().numpy()
    indexed.search = IndexSearch(build(table, "flat"), indexed.model.table)
    count = len(ASKED)
    question = Question(torch.full((count,), -1), n, torch.empty(count, 0).long(), torch.tensor([[3]] * count))
    expected, found = (each.ask(Histories.of(ASKED), question) for each in (full, indexed))
    assert torch.equal(found.items, expected.items)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.normaliser, expected.normaliser, rtol=1e-5, atol=1e-5)


def log_of(rows: list[list[int]]) -> pyarrow.Table:
    flat = [(f"u{user}", f"i{item}", place) for user, row in enumerate(rows) for place, item in enumerate(row)]
    users, items, times = zip(*flat, strict=True)
    return pyarrow.table({"user": users, "item": items, "time": times})


def test_nothing_is_found_where_there_is_nothing_to_find() -> None:
    """Next items are random: no figure rises above chance, on the targets of the fit or on others."""
    rng = np.random.default_rng(5)
    rows = [rng.permutation(100)[:8].tolist() for _ in range(600)]  # no repeats, so that items left are equally likely
    recommender = Recommender("gru4rec", "softmax+habits+followers", epochs=3, dim=16, start="counts").fit(log_of(rows))
    chance = float((1 / np.log2(np.arange(1, 11) + 1)).sum() / 100 * 100 / 93)
    for split in ("valid", "test"):
        found = recommender.evaluate(targets=split)
        error = found.gains("ndcg@10").std() / np.sqrt(len(found.rank))
        assert found.mean("ndcg@10") < chance + 4 * error


def test_a_target_does_not_count_its_own_transition() -> None:
    """Held-out rows are counted for nobody: the model is the same whatever the test targets are."""
    rows = [[*row, *row[:3]] for row in drawn(6, 80, 12) if len(row) > 4]
    models = []
    for last in (1, 2):
        changed = [[*row[:-1], (row[-1] * last) % 20] for row in rows]
        options: dict[str, Any] = {"epochs": 1, "dim": 8, "start": "counts", "min_user": 5}
        models.append(Recommender("gru4rec", "softmax+CP+habits+followers", **options).fit(log_of(changed)))
    first, second = (model.saved.evidence for model in models if model.saved is not None)
    assert first is not None
    assert second is not None
    ids = [model.saved.catalogue.ids for model in models if model.saved is not None]
    assert sorted(ids[0]) == sorted(ids[1])
    assert ids[0] == ids[1]
    for name, counted in vars(first.transitions).items():
        assert np.array_equal(counted, vars(second.transitions)[name]), name
    assert models[0].sequences is not None
    assert first.transitions.counts.sum() == models[0].sequences.training().items.size  # no held-out row


def test_a_saved_model_answers_as_before(tmp_path: Path) -> None:
    rows = [[*row, *row[:3]] for row in drawn(7, 80, 12) if len(row) > 4]
    options: dict[str, Any] = {"epochs": 1, "dim": 8, "start": "counts"}
    recommender = Recommender("gru4rec", "softmax+CP+habits+followers", **options).fit(log_of(rows), folder=tmp_path)
    assert recommender.saved is not None
    assert recommender.saved.evidence is not None
    loaded = load(tmp_path)
    history = ["i1", "i2", "i1", "i3"]
    assert loaded.recommend(history).to_json() == recommender.recommend(history).to_json()
    assert recommender.sequences is not None
    ranks = [evaluate(each.ranker(), recommender.sequences).rank for each in (recommender, loaded)]
    assert np.array_equal(*ranks)
    refitted = recommender.fit(log_of(rows), refit=True)
    assert refitted.saved is not None
    assert refitted.saved.evidence is not None
    assert refitted.saved.evidence.weights == load(tmp_path).saved.evidence.weights  # type: ignore[union-attr]
    assert refitted.saved.evidence.transitions.counts.sum() > recommender.sequences.training().items.size


def test_neutral_evidence_changes_nothing() -> None:
    neutral = dataclasses.replace(evidence(), weights={"order": Weights(habits=(0.0,) * sum(SIZES))})
    torch.testing.assert_close(
        every_logit(ranker("softmax+CPR:4", neutral)), every_logit(ranker("softmax+CPR:4", None))
    )
    assert len(START) == HABITS

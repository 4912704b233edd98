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


@pytest.mark.parametrize("output", ["softmax+nodup+habits+followers", "softmax+nodup+followers"])
def test_items_that_a_network_excludes_stay_excluded(output: str, tmp_path: Path) -> None:
    """The window's items have a logit of −∞; histories are longer, so that evidence also speaks of other items."""
    rng = np.random.default_rng(3)
    rows = [(rng.integers(0, 30, 4).tolist() * 5)[: int(rng.integers(9, 20))] for _ in range(60)]
    fixed: dict[str, Any] = {"options": "fixed", "epochs": 1, "dim": 8, "window": 3}
    made = Recommender("gru4rec", output, **fixed).fit(log_of(rows), folder=tmp_path / "model")
    assert made.saved is not None
    assert made.saved.evidence is not None
    assert np.isfinite(made.saved.training["with_evidence"])
    history = [f"i{item}" for item in rows[0]]
    found = load(tmp_path / "model").recommend(history, n=30)
    assert found.ids
    assert not set(found.ids) & set(history[-3:])
    assert found.ids == made.recommend(history, n=30).ids


def test_a_log_in_nanoseconds_is_saved_and_loaded(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    day = 86_400 * 10**9
    rows = [
        (user, int(rng.integers(0, 20)), int(17e17 + day * (3 * place + rng.random())))
        for user in range(40)
        for place in range(9)
    ]
    users, items, times = zip(*rows, strict=True)
    log = pyarrow.table({"user": users, "item": items, "time": times})
    made = Recommender("gru4rec", "softmax+habits", options="fixed", epochs=1, dim=8).fit(
        log, folder=tmp_path / "model"
    )
    assert made.time_unit == "nanoseconds"
    assert made.saved is not None
    assert made.saved.evidence is not None
    assert made.saved.evidence.clock.gap > 1e13
    asked: dict[str, Any] = {"times": [17e17, 17e17 + day], "now": 17e17 + 5 * day}
    assert load(tmp_path / "model").recommend([1, 2], **asked).ids == made.recommend([1, 2], **asked).ids


def test_too_few_targets_for_evidence_are_told(caplog: pytest.LogCaptureFixture) -> None:
    made = Recommender("gru4rec", "softmax+followers", options="fixed", epochs=1, dim=8)
    made.fit(log_of([[1, 2, 3, 4, 5, 6]] * 5))
    assert made.saved is not None
    assert made.saved.evidence is None
    assert "it needs 20 validation targets, and there are 5" in caplog.text

"""Evidence on a network's scores: the formula, one structure for every reader, no leak, saved and loaded."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch

from abaca.evaluation.evaluate import evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.evidence.evidence import Evidence, Weights
from abaca.evidence.fit import (
    CUTOFF,
    HABITS,
    NODES,
    START,
    Problem,
    as_weights,
    choose_fade,
    fit,
    list_gains,
    loss,
    new_gains,
    penalty,
    problems,
)
from abaca.evidence.habits import EDGES, KINDS, Clock
from abaca.evidence.transitions import Transitions
from abaca.histories import Histories
from abaca.nn import ops
from abaca.nn.answers import Question
from abaca.nn.build import make_model
from abaca.nn.ops.loss import cross_entropy
from abaca.nn.outputs.spec import EVIDENCE
from abaca.recommender import Recommender, load
from abaca.search.answer import IndexSearch
from abaca.search.index import build

from . import formula

V, WINDOW, FADE = 60, 6, 0.5
SPECS = ["softmax", "softmax+nodup", "softmax+CP+Mi", "softmax+CPR:4", "mos:3+CR:3", "mos-mix:2", "repeatnet"]
SIZES = [len(EDGES[name]) + 1 for name in KINDS["order"]]


def drawn(seed: int, count: int, longest: int = 14, items: int = V) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, items, length).tolist() for length in rng.integers(1, longest, count)]


ROWS, ASKED = drawn(0, 40), drawn(1, 25, items=20)


def weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    return Weights(0.7, 0.4, 1.5, tuple(rng.normal(size=sum(SIZES)).tolist()), 0.8, 0.3, 5.0)


def evidence(parts: tuple[str, ...] = EVIDENCE) -> Evidence:
    counts = Transitions.count(Histories.of(ROWS), V)
    return Evidence(parts, WINDOW, Clock(0.0, False), counts, {"order": weights()}, fade=FADE)


def ranker(spec: str, given: Evidence | None) -> ModelRanker:
    torch.manual_seed(3)
    return ModelRanker(make_model("gru4rec", spec, V, dim=8, hidden=8).eval(), WINDOW, evidence=given)


def every_logit(of: ModelRanker) -> torch.Tensor:
    """All final logits (B, V) of the histories that are asked for."""
    count = len(ASKED)
    question = Question(torch.full((count,), -1), V, torch.empty(count, 0).long(), torch.empty(count, 0).long())
    found = of.ask(Histories.of(ASKED), question)
    return torch.empty(count, V).scatter(1, found.items, found.logits)


def expected_logits(network: torch.Tensor, given: Weights) -> np.ndarray:
    """The formula, item by item."""
    final = np.empty(network.shape)
    table = given.by_habit(KINDS["order"])
    for row, history in enumerate(ASKED):
        strength = formula.followers(ROWS, history, V, FADE)
        for item in range(V):
            gain = np.log1p(given.sharpness * strength[item])
            z = float(network[row, item])
            if item not in history:
                final[row, item] = given.scale * z + given.followers * gain
                continue
            values = formula.habits(history, item, WINDOW)
            bonus = sum(table[name][np.searchsorted(EDGES[name], value, "right")] for name, value in values.items())
            final[row, item] = given.own_scale * z + given.own + bonus + given.own_followers * gain
    return final


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


def random_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    count = 5
    rows = np.sort(np.concatenate([np.arange(count), rng.integers(0, count, 30)]))
    own = np.flatnonzero(rng.random(len(rows)) < 0.5)
    first = np.cumsum([0, *SIZES[:-1]])
    buckets = np.stack([at + rng.integers(0, size, len(own)) for at, size in zip(first, SIZES, strict=True)], axis=1)
    entry = np.array([np.flatnonzero(rows == 0)[0], -1, np.flatnonzero(rows == 2)[-1], -1, -1])
    strength = rng.random(len(rows)) * (rng.random(len(rows)) < 0.7)
    logits, rest, hit = rng.normal(size=len(rows)), rng.normal(size=(count, NODES)) / 9, rng.normal(size=count)
    best = np.sort(rng.normal(size=(count, CUTOFF + 1)))[:, ::-1]
    return Problem(KINDS["order"], rows, own, buckets, strength, logits, rest, entry, hit, best)


@pytest.mark.parametrize("parts", [("habits",), ("followers",), EVIDENCE])
def test_gradients_are_the_slopes_of_the_likelihood(parts: tuple[str, ...]) -> None:
    problem, theta = random_problem(0), np.random.default_rng(1).normal(size=HABITS + sum(SIZES)) / 3

    def slopes(of: Any) -> np.ndarray:
        steps = 1e-6 * np.eye(len(theta))
        return np.array([(of(theta + step)[0] - of(theta - step)[0]) / 2e-6 for step in steps])

    np.testing.assert_allclose(loss(problem, theta, parts)[1], slopes(lambda at: loss(problem, at, parts)), atol=1e-6)
    np.testing.assert_allclose(penalty(theta, SIZES)[1], slopes(lambda at: penalty(at, SIZES)), atol=1e-6)


def test_the_fitted_likelihood_is_that_of_the_ranker() -> None:
    """What the fit minimises, from a few scales of the catalogue, is what the model then predicts."""
    plain, histories = ranker("softmax+CP", None), Histories.of(ASKED)
    targets = np.arange(len(ASKED)) % 20
    fitted = fit(evidence(), plain.scored, histories, targets)
    improved, before = (float(_likelihood(ranker("softmax+CP", given), histories, targets)) for given in (fitted, None))
    assert improved < before
    found = fitted.weights["order"]
    worse = dataclasses.replace(found, own=found.own + 2.0)
    other = dataclasses.replace(fitted, weights={"order": worse})
    assert improved < float(_likelihood(ranker("softmax+CP", other), histories, targets))


def test_histories_fade_as_followers_rank_new_targets_best() -> None:
    """0 to 4 have one follower each, 10 to 19 a weaker one: an old item of the first counts if f is 0.5."""
    sure = [[item, item + 5] for item in range(5)] * 20
    weak = [[item, item + 20] for item in range(10, 20)] * 8 + [[item] for item in range(10, 20)] * 12
    transitions = Transitions.count(Histories.of(sure + weak), V)
    oldest = [[item, 10 + item, 12 + item, 14 + item] for item in range(5)]
    targets = np.arange(5) + 5
    assert choose_fade(transitions, Histories.of(oldest), targets) == 0.5
    assert choose_fade(transitions, Histories.of([row[::-1] for row in oldest]), targets) == 1.0
    assert choose_fade(transitions, Histories.of(oldest), np.arange(5)) == 1.0  # no new target


@pytest.mark.parametrize("ratio", [0.0, 2.0])
def test_the_order_of_new_items_is_judged_by_the_rank_among_them(ratio: float) -> None:
    plain, histories = ranker("softmax+CP", None), Histories.of(ASKED)
    asked = enumerate(ASKED)
    new = np.array([next(x % V for x in range(7 * row, 7 * row + V) if x % V not in history) for row, history in asked])
    problem = problems(evidence(), plain.scored, histories, new, ["order"])["order"]
    order = np.concatenate([numbers for numbers, _ in plain.scored(histories)])
    given = dataclasses.replace(weights(), scale=1.0, followers=ratio, sharpness=5.0)
    final = expected_logits(every_logit(plain), given)
    expected = []
    for row in order:
        others = np.delete(final[row], sorted({*ASKED[row], new[row]}))
        ahead = int((others >= final[row, new[row]]).sum())
        expected.append(1 / np.log2(ahead + 2) if ahead < CUTOFF else 0.0)
    assert 0 < np.count_nonzero(expected) < len(expected)
    np.testing.assert_allclose(new_gains(problem, ratio, 5.0), expected)


def test_lists_are_judged_by_the_rank_among_all_items() -> None:
    plain, histories = ranker("softmax+CP", None), Histories.of(ASKED)
    targets = np.array([row[0] if number % 2 else (row[0] + 31) % V for number, row in enumerate(ASKED)])
    problem = problems(evidence(), plain.scored, histories, targets, ["order"])["order"]
    order = np.concatenate([numbers for numbers, _ in plain.scored(histories)])
    theta = np.random.default_rng(1).normal(size=HABITS + sum(SIZES)) / 3
    final = expected_logits(every_logit(plain), as_weights(theta, EVIDENCE))
    rank = (final >= final[np.arange(len(ASKED)), targets][:, None]).sum(axis=1)[order]
    expected = np.where(rank <= CUTOFF, 1 / np.log2(rank + 1), 0.0)
    assert 0 < np.count_nonzero(expected) < len(expected)
    np.testing.assert_allclose(list_gains(problem, theta, EVIDENCE), expected)


def _likelihood(of: ModelRanker, histories: Histories, targets: np.ndarray) -> torch.Tensor:
    nothing = torch.empty(len(histories), 0).long()
    asked = torch.from_numpy(targets)[:, None]
    found = of.ask(histories, Question(asked.squeeze(1), 1, asked, nothing))
    return -found.mass.log().sum()


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

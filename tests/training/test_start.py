"""Start vectors against their formula, and models that begin with them."""

import numpy as np
import pytest
import torch

from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.histories import Histories
from abaca.nn.build import make_model
from abaca.nn.features import Described
from abaca.nn.item_columns import ItemFeatures
from abaca.options import TrainingOptions
from abaca.recommender import Recommender
from abaca.training import start
from abaca.training.start import cooccurrences, start_from_counts, start_vectors

ROWS = Histories.of([[0, 1, 2, 0, 3, 4, 0], [1, 1, 2], [5], [2, 0, 6, 1, 2, 3, 4, 0]])
V = 8  # item 7 never occurs, item 5 has no pair


def counted(rows: Histories, catalogue: int) -> np.ndarray:
    """N of the formula, by loops."""
    sums = np.zeros((catalogue, catalogue))
    for row in rows:
        for i, a in enumerate(row):
            for d in range(1, 6):
                if i + d < len(row):
                    sums[a, row[i + d]] += 1 / d
    return sums + sums.T


def test_pairs_are_counted_as_the_formula_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for pairs in (start.PAIRS, 15):  # at once, and three rows at a time
        monkeypatch.setattr(start, "PAIRS", pairs)
        keys, weights = cooccurrences(ROWS, V)
        found = np.zeros((V, V))
        found[keys // V, keys % V] = weights
        np.testing.assert_allclose(found + found.T, counted(ROWS, V))


def test_vectors_are_those_of_a_full_decomposition() -> None:
    """Inner products of the centred vectors equal those of U √|Λ| by numpy, up to the scale."""
    n = counted(ROWS, V)
    m = n.sum(axis=1) ** 0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nan_to_num(np.log(n * m.sum() ** 2 / (n.sum() * np.outer(m, m))), neginf=0)
    values, vectors = np.linalg.eigh(np.maximum(information, 0))
    paired = n.sum(axis=1) > 0
    first = np.argsort(-np.abs(values))[:3]
    expected = (vectors[:, first] * np.sqrt(np.abs(values[first])))[paired]
    expected = expected - expected.mean(axis=0)
    expected = 0.1 * expected / expected.std(ddof=1)
    table = start_vectors(*cooccurrences(ROWS, V), V, 3, torch.Generator().manual_seed(0)).double().numpy()
    np.testing.assert_allclose(table[paired] @ table[paired].T, expected @ expected.T, atol=2e-5)
    assert (table[~paired] != 0).all()


def test_a_seed_decides_and_no_pair_leaves_a_random_table() -> None:
    alone = Histories.of([[0], [1]])
    drawn = [start_vectors(*cooccurrences(alone, V), V, 4, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert 0.05 < drawn[0].std() < 0.2


@pytest.mark.parametrize("output", ["softmax+CPR:3+Mi", "mos-mix:2", "repeatnet"])
def test_every_item_table_begins_with_them(output: str) -> None:
    torch.manual_seed(0)
    model = make_model("gru4rec", output, V, dim=4, hidden=8)
    start_from_counts(model, ROWS, seed=0)
    keys, weights = cooccurrences(ROWS, V)
    expected = start_vectors(keys, weights, V, 4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.table.detach(), expected)
    for own in model.output.item_tables:
        assert 0.05 < own.weight.std() < 0.2
    for projection in model.output.item_projections:
        assert 0.02 < projection.weight.std() < 0.3
    assert bool(model.output.item_tables) == (output == "repeatnet")


def test_items_that_occur_together_begin_near_each_other() -> None:
    """Two groups of items that never meet."""
    rng = np.random.default_rng(0)
    rows = Histories.of([rng.integers(0, 10, 12) + 10 * (user % 2) for user in range(60)])
    table = start_vectors(*cooccurrences(rows, 20), 20, 4, torch.Generator().manual_seed(0))
    near = torch.nn.functional.cosine_similarity(table[:, None], table[None], dim=2)
    same = torch.arange(20)[:, None] // 10 == torch.arange(20)[None] // 10
    assert near[same].mean() > near[~same].mean() + 0.5


def test_training_reads_no_held_out_row(small: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vectors come from the rows before the validation target; a refit counts everything."""
    seen: list[int] = []
    monkeypatch.setattr("abaca.training.run.start_from_counts", lambda model, rows, seed: seen.append(len(rows.items)))
    fitted = Recommender("gru4rec", "softmax", dim=4, hidden=8, epochs=1, start="counts").fit(small)
    fitted.fit(small, refit=True)
    assert seen == [int((small.train_end - small.offsets[:-1]).sum()), len(small.items)]


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(SpecError, match="start 'zeros' is not one of counts, random"):
        TrainingOptions(start="zeros")


def test_features_explain_what_they_can_of_the_start_vectors() -> None:
    table = {"kind": [f"k{item % 3}" for item in range(V)], "size": [float(item) for item in range(V)]}
    found = ItemFeatures.of("kind,size", table, 7)
    described = Described(found, found.entries(table, V), 7)
    models = [make_model("gru4rec", "softmax", V, features, dim=4, hidden=4) for features in (None, described)]
    for model in models:
        start_from_counts(model, ROWS, seed=3)
    plain, other = (model.eval() for model in models)
    assert other.features is not None
    torch.testing.assert_close(other.table[:7], plain.table[:7])
    assert not other.items.weight[7].any()
    matrix = other.features.warm_matrices()[0].to_dense().detach()
    wanted = torch.linalg.solve(matrix.T @ matrix + torch.eye(matrix.shape[1]), matrix.T @ plain.table[:7])
    torch.testing.assert_close(other.features.weight, wanted, atol=1e-4, rtol=1e-3, check_stride=False)

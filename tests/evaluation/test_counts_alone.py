"""Counts alone: evidence without a network beats what it is made of, and is saved and loaded."""

from pathlib import Path

import numpy as np
import pyarrow
import torch

from abaca.data.synthetic import synthetic_log
from abaca.evaluation.baselines import CountsAlone, PersonalFrequency, Popularity
from abaca.evaluation.evaluate import evaluate
from abaca.recommender import Recommender, load


def fitted(log: pyarrow.Table) -> Recommender:
    return Recommender(baseline="counts alone").fit(log)


def test_it_beats_popularity_and_frequency_where_both_matter() -> None:
    recommender = fitted(synthetic_log("mixed", users=400, items=80, length=15, seed=3))
    sequences = recommender.sequences
    assert sequences is not None
    counts, *others = (
        evaluate(make().fit(sequences), sequences) for make in (CountsAlone, Popularity, PersonalFrequency)
    )
    assert counts.mean("ndcg@10") > max(other.mean("ndcg@10") for other in others)
    assert np.isfinite(counts.repeat_probability).all()


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    recommender = fitted(synthetic_log("mixed", users=100, items=40, length=12, seed=4))
    assert recommender.saved is not None
    assert recommender.sequences is not None
    recommender.save(tmp_path)
    before, after = recommender.saved.ranks, load(tmp_path).saved.ranks  # type: ignore[union-attr]
    assert isinstance(before, CountsAlone)
    assert isinstance(after, CountsAlone)
    assert before._evidence().weights == after._evidence().weights
    assert all(torch.equal(tensor, after.state()[name]) for name, tensor in before.state().items())
    ranks = [evaluate(each, recommender.sequences).rank for each in (before, after)]
    assert np.array_equal(*ranks)
    again = CountsAlone().fit(recommender.sequences, everything=True)
    assert again._evidence().weights == before._evidence().weights
    assert again.popularity.counts.sum() > before.popularity.counts.sum()

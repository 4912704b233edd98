"""Transitions that preparing counted are those that training uses; no Spark is started."""

from pathlib import Path

import numpy as np

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.synthetic import synthetic_log
from abaca.evidence.transitions import Transitions
from abaca.training.evidence import fit_evidence
from abaca.training.trainer import TrainingOptions
from models import untrained


def test_training_takes_the_transitions_of_the_folder(tmp_path: Path) -> None:
    made = Transitions(np.zeros(31, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64), np.arange(30))
    with read_log(synthetic_log("copy-after-repeat", users=8, items=10, length=9, seed=1)) as log:
        plain = prepare(log, tmp_path / "plain", options=PrepareOptions(min_user=1))
        counted = prepare(
            log, tmp_path / "counted", options=PrepareOptions(min_user=1), counting=lambda engine, training: vars(made)
        )
    assert plain.counted is None
    assert counted.fingerprint == plain.fingerprint
    counted.verify()
    saved = untrained(tmp_path / "model", "softmax+C+habits+followers").saved
    assert saved is not None
    for everything in (False, True):
        found, _ = fit_evidence(saved.model, counted, TrainingOptions(), saved.evidence, everything=everything)
        assert found is not None
        rows = counted.training(everything=everything)
        wanted = Transitions.count(rows, saved.model.catalogue) if everything else made
        for name, array in vars(wanted).items():
            np.testing.assert_array_equal(getattr(found.transitions, name), array)

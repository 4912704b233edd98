"""On logs with a known rule, a model that copies learns the rule, and plain softmax of the same size does not.

1,000 items, drawn anew for every user, and d = 16: one query of 16 numbers cannot name the items of a history, so that
plain softmax stays far from what is possible; CPR reads them from the history. Test NDCG@10 with GRU4Rec, as seen when
this was written (an expected score can be passed by luck):

    rule                best possible   softmax+CPR:20   softmax
    copy-after-repeat           0.557            0.564     0.100
    never-copy                  0.590            0.593     0.216
    copy-twice                  0.710            0.697     0.169
"""

from typing import Any, NamedTuple

import pytest

from abaca.data.sequences import Sequences
from abaca.data.synthetic import Rule, synthetic_log
from abaca.recommender import Recommender
from oracles import best_possible

ITEMS = 1000
DIM = 16
NEAR = 0.95
"""CPR reaches at least this share of the best possible score."""


class Case(NamedTuple):
    rule: Rule
    users: int
    epochs: int
    softmax_at_most: float
    """Share of the best possible score that plain softmax stays below."""


CASES = [
    Case("copy-after-repeat", users=2000, epochs=5, softmax_at_most=0.3),
    Case("never-copy", users=2000, epochs=12, softmax_at_most=0.5),
    Case("copy-twice", users=2000, epochs=5, softmax_at_most=0.5),
]
TRAINING: dict[str, Any] = {
    "lr": 0.02, "warmup": 50, "batch_targets": 800, "average": 0.0, "hidden": 64, "dropout": 0.0, "patience": 0,
    "options": "fixed",
}  # fmt: skip


def best(case: Case, sequences: Sequences) -> float:
    """What the best ranker can expect on the test targets."""
    ids = sequences.catalogue.ids
    users, positions = sequences.test
    histories = [
        [int(ids[item]) for item in sequences.history(user, position)]
        for user, position in zip(users.tolist(), positions.tolist(), strict=True)
    ]
    return best_possible(case.rule, histories, ITEMS)["ndcg"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.rule for case in CASES])
def test_cpr_learns_the_rule_and_softmax_does_not(case: Case) -> None:
    log = synthetic_log(case.rule, case.users, ITEMS, length=16, seed=1)
    models = {
        output: Recommender("gru4rec", output, dim=DIM, epochs=case.epochs, **TRAINING).fit(log)
        for output in ("softmax+CPR:20", "softmax")
    }
    cpr, softmax = (model.evaluate().mean("ndcg@10") for model in models.values())
    sequences = models["softmax"].sequences
    assert sequences is not None
    assert sequences.catalogue.size == ITEMS
    possible = best(case, sequences)
    said = f"{case.rule}: NDCG@10 of softmax+CPR:20 {cpr:.3f}, of softmax {softmax:.3f}, best possible {possible:.3f}"
    assert cpr >= NEAR * possible, said
    assert softmax <= case.softmax_at_most * possible, said

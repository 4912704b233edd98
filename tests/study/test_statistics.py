from pathlib import Path

import numpy as np
import pytest

from abaca.study.statistics import choose_users, repeats, repeats_before
from study.samples import HISTORIES, sequences_of


@pytest.fixture
def by_user(tmp_path: Path):
    sequences = sequences_of(HISTORIES, tmp_path)

    def pick(values: np.ndarray) -> dict[str, list[int]]:
        return {
            name: values[sequences.offsets[u] : sequences.offsets[u + 1]].astype(int).tolist()
            for u, name in enumerate(sequences.user_ids)
        }

    return sequences, pick


def test_an_item_that_the_user_had_before_is_a_repeat(by_user) -> None:
    sequences, pick = by_user
    assert pick(repeats(sequences)) == {"a": [0, 0, 1, 0, 1], "b": [0, 0, 0], "c": [0, 1]}


def test_repeats_before_count_the_history_only(by_user) -> None:
    sequences, pick = by_user
    assert pick(repeats_before(repeats(sequences), sequences)) == {"a": [0, 0, 0, 1, 1], "b": [0, 0, 0], "c": [0, 0]}


def test_users_are_chosen_by_their_share_of_repeats(tmp_path: Path) -> None:
    histories = {
        "loyal": "m m m m m",  # 3 of 4 earlier ones are repeats, the target is a repeat
        "wanders": "a b c d e",  # no repeat, the target is new
        "between": "m a m b m",  # 1 of 4, the target is a repeat
        "short": "m m m",  # too short
    }
    sequences = sequences_of(histories, tmp_path)
    chosen = choose_users(sequences, sequences.test, least=4)
    assert {c.kind: sequences.user_ids[c.user] for c in chosen} == {
        "copy": "loyal",
        "explore": "wanders",
    }
    assert {c.kind: c.share for c in chosen} == {"copy": 0.75, "explore": 0.0}
    assert all(c.position == sequences.offsets[c.user] + 4 for c in chosen)


def test_the_first_test_target_of_a_user_is_taken(tmp_path: Path) -> None:
    sequences = sequences_of({"u": "a b a b a"}, tmp_path)
    every = type(sequences.test)(np.array([0, 0]), np.array([3, 4]))
    assert choose_users(sequences, every, least=1)[0].position == 3


def test_a_kind_without_candidates_is_left_out(tmp_path: Path) -> None:
    sequences = sequences_of({"u": "a a a a"}, tmp_path)
    assert [c.kind for c in choose_users(sequences, sequences.test, least=1)] == ["copy"]

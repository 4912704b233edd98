"""Contenders take turns, and are compared round by round."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pytest

from abaca.bench.measure import Contender, Measurement, Spent, compared, measure, peak_bytes, rounds, timed
from abaca.errors import SpecError

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Memory:
    """Contenders that hold so many megabytes."""

    megabytes: tuple[int, ...] = (1, 200)
    title = "memory"

    def references(self, name: str) -> Mapping[str, str]:
        return {"the small": "1"}

    def contenders(self) -> Mapping[str, Contender]:
        return {str(size): partial(timed, partial(fill, size), size) for size in self.megabytes}


def fill(megabytes: int) -> bytes:
    return b"x" * (megabytes * MEGABYTE)


def nothing(done: int, total: int) -> None:
    """Progress nobody looks at."""


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []

    def run(name: str) -> Spent:
        turns.append(name)
        return Spent(float(len(turns)), 0.0, 1)

    spent = rounds({name: partial(run, name) for name in "ab"}, 2, lambda done: None)
    assert turns == list("ababab")
    assert [run.cpu for run in spent["a"]] == [3, 5]
    assert [run.cpu for run in spent["b"]] == [4, 6]


def test_a_ratio_is_the_median_over_rounds_of_cpu_time_per_target() -> None:
    spent = {
        "slow": [Spent(4.0, 9.0, 2), Spent(30.0, 9.0, 3), Spent(6.0, 9.0, 1)],
        "fast": [Spent(1.0, 9.0, 1), Spent(1.0, 9.0, 1), Spent(2.0, 9.0, 1)],
    }
    slow, fast = compared(spent, lambda name: {"other": "fast", "nobody": "absent"})
    assert slow.ratios == {"other": 3.0}  # of 2, 10 and 3
    assert fast.ratios == {"other": 1.0}
    assert slow.targets_per_second == pytest.approx(1 / 6)


def test_measurements_are_plain_data_in_milliseconds_and_megabytes() -> None:
    found = Measurement("a", (Spent(0.001, 0.003, 10), Spent(0.003, 0.005, 10)), {"b": 2.0}, 3_000_000)
    plain = found.to_json()
    assert {key: plain[key] for key in ("name", "cpu_ms", "wall_ms", "peak_mb", "cpu_to_b")} == {
        "name": "a", "cpu_ms": 2.0, "wall_ms": 4.0, "peak_mb": 3.0, "cpu_to_b": 2.0,
    }  # fmt: skip
    assert plain["runs_cpu_ms"] == [1.0, 3.0]
    assert plain["targets_per_cpu_second"] == pytest.approx(5000)


def test_progress_reaches_its_total_and_only_the_chosen_run() -> None:
    seen: list[tuple[int, int]] = []
    found = measure(Memory(), ["1"], 5, False, lambda done, total: seen.append((done, total)))
    assert [one.name for one in found] == ["1"]
    assert found[0].peak_bytes is None
    assert seen == [(done, 6) for done in range(1, 7)]


def test_peak_memory_is_that_of_the_contender_alone() -> None:
    small, large = (peak_bytes(Memory(), name) for name in ("1", "200"))
    assert large - small == pytest.approx(199 * MEGABYTE, rel=0.2)


def test_too_few_repetitions_and_unknown_names_are_refused() -> None:
    with pytest.raises(SpecError, match="at least 5"):
        measure(Memory(), [], 4, False, nothing)
    with pytest.raises(SpecError, match="no contender 7; available: 1, 200"):
        measure(Memory(), ["7"], 5, False, nothing)

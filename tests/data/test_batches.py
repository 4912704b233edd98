"""Windows and batches: every training target once, in an order that (seed, epoch) decides."""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abaca.data import batches
from abaca.data.batches import (
    Batch,
    Epochs,
    Replay,
    draw_windows,
    last_windows,
    make_batch,
    order_batches,
)
from abaca.histories import Histories
from abaca.types import PAD

LENGTHS = st.lists(st.integers(0, 40), max_size=12)


def epochs(lengths: Sequence[int], targets: int, overlap: int, batch_targets: int = 20, seed: int = 0) -> Epochs:
    """Users of these lengths; each row is its own item, so that an item says where it stands."""
    ends = np.cumsum(np.array(lengths, dtype=np.int64))
    begins = ends - np.array(lengths, dtype=np.int64)
    items = np.arange(ends[-1] if len(ends) else 0, dtype=np.int32)
    return Epochs(items, 10.0 * items, begins, ends, targets, overlap, batch_targets, seed)


def trained(batches: Sequence[Batch]) -> list[int]:
    return sorted(int(item) for batch in batches for item in batch.targets.flat if item != PAD)


def equal(one: Batch, other: Batch) -> bool:
    parts = [(*batch.windows, batch.targets) for batch in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(*parts, strict=True))


def test_a_replay_has_every_new_target_and_a_share_of_the_other_windows() -> None:
    plain = epochs([30] * 40, targets=3, overlap=2)
    is_new = np.arange(len(plain.items)) % 30 >= 27
    for share, least, most in ((0.0, 0, 40 * 4), (0.5, 350, 650), (1.0, 1040, 1040)):
        found = set(trained(list(plain._replace(replay=Replay(is_new, share)).batches(0))))
        assert found >= set(np.flatnonzero(is_new).tolist())
        assert least <= len(found - set(np.flatnonzero(is_new).tolist())) <= most


def test_targets_ahead_are_a_share_of_later_items_of_the_same_window() -> None:
    """Each row is its own item, and a window is a whole user: the target says how far ahead it is."""
    made = epochs([26] * 400, targets=25, overlap=0)._replace(ahead=0.4)
    places, apart = [], []
    for batch in made.batches(0):
        (_, positions, _, now, _), targets, *_ = batch
        assert (now == 10 * targets).all(), "the moment is that of the target"
        assert (targets // 26 == batch.windows.items[:, :1] // 26).all(), "of the same user"
        places.append(positions)
        apart.append(targets - np.take_along_axis(batch.windows.items, positions, 1) - 1)
    early = np.concatenate(apart)[np.concatenate(places) < 25 - batches.FARTHEST]
    weight = 1 / np.arange(2, 5)
    wanted = [0.6, *(0.4 * weight / weight.sum())]
    assert np.allclose(np.bincount(early, minlength=4) / len(early), wanted, atol=0.02)
    assert np.concatenate(apart)[np.concatenate(places) == 24].max() == 0, "the last has nothing after it"


def test_targets_ahead_are_the_same_after_a_resume_and_in_several_processes() -> None:
    made = epochs([9, 30, 4, 17, 22], targets=6, overlap=3, batch_targets=12)._replace(ahead=0.5)
    whole = list(made.batches(1))
    assert all(map(equal, made.batches(1, skip=2), whole[2:]))
    shares = [list(made.batches(1, rank=rank, size=3)) for rank in range(3)]
    assert trained([batch for share in shares for batch in share]) == trained(whole)
    for batch, first in zip(whole, shares[0], strict=True):
        assert first.step is not None
        assert set(batch.targets[batch.targets != PAD]) <= set(first.step.items)


def test_a_target_ahead_is_of_the_same_type() -> None:
    types = np.arange(2000).astype(np.uint8) % 2
    made = epochs([20] * 100, targets=19, overlap=0)._replace(ahead=0.9, types=types)
    apart = [
        batch.targets - np.take_along_axis(batch.windows.items, batch.windows.positions, 1) - 1
        for batch in made.batches(0)
    ]
    assert set(np.concatenate(apart).flat) == {0, 2}


@given(LENGTHS, st.integers(1, 12), st.integers(0, 12), st.integers(1, 50), st.integers(0, 3))
def test_every_target_once_per_epoch(lengths: list[int], targets: int, overlap: int, size: int, epoch: int) -> None:
    made = epochs(lengths, targets, overlap, size)
    wanted = [row for b, e in zip(made.begin, made.end, strict=True) for row in range(b + 1, e)]
    batches = list(made.batches(epoch))
    assert trained(batches) == wanted
    assert made.steps(epoch) == len(batches)


@given(LENGTHS, st.integers(1, 12), st.integers(0, 12))
def test_windows_keep_to_their_sizes(lengths: list[int], targets: int, overlap: int) -> None:
    made = epochs(lengths, targets, overlap)
    for batch in made.batches(0):
        for items, positions, wanted in zip(*batch.windows[:2], batch.targets, strict=True):
            places = positions[positions != PAD]
            inputs = items[items != PAD]
            assert 1 <= len(places) <= targets
            assert places[0] <= overlap  # leading inputs without loss
            assert places.tolist() == list(range(places[0], len(inputs)))  # from there on every input has a target
            assert inputs.tolist() == list(range(inputs[0], inputs[0] + len(inputs)))
            assert wanted[wanted != PAD].tolist() == (items[places] + 1).tolist()
            user = np.searchsorted(made.end, inputs[0], side="right")
            assert made.begin[user] <= inputs[0] <= inputs[-1] + 1 < made.end[user]
            assert places[0] == overlap or inputs[0] == made.begin[user]  # fewer only where the history begins


def test_the_papers_protocol_shows_each_target_its_50_latest_items() -> None:
    made = epochs([120, 30], targets=1, overlap=49)
    seen = {}
    for batch in made.batches(0):
        for items, positions, targets in zip(*batch.windows[:2], batch.targets, strict=True):
            assert positions.tolist() == [(items != PAD).sum() - 1]
            seen[int(targets[0])] = items[items != PAD].tolist()
    assert len(seen) == 119 + 29
    for target, inputs in seen.items():
        begin = 0 if target < 120 else 120
        assert inputs == list(range(max(begin, target - 50), target))


def test_a_target_beyond_the_first_of_its_window_sees_all_between() -> None:
    made = epochs([30], targets=7, overlap=3)
    windows = draw_windows(made.begin, made.end, 7, 3, np.random.default_rng(0))
    assert windows.end[:-1].tolist() == windows.first[1:].tolist()
    assert windows.start.tolist() == np.maximum(0, windows.first - 4).tolist()


def test_boundaries_are_redrawn_each_epoch() -> None:
    made = epochs([100], targets=10, overlap=0)

    def boundaries(epoch: int) -> tuple[int, ...]:
        return tuple(sorted(int(row[0]) for batch in made.batches(epoch) for row in batch.targets))

    drawn = {boundaries(epoch) for epoch in range(40)}
    assert len(drawn) == 10  # every offset of a cut into tens turns up
    assert all(np.diff(found).max() <= 10 for found in drawn)


def test_a_history_that_fits_one_window_is_not_cut() -> None:
    made = epochs([11, 5, 2], targets=10, overlap=0)
    for epoch in range(5):
        assert sorted(len(row[row != PAD]) for batch in made.batches(epoch) for row in batch.targets) == [1, 4, 10]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = [5, 30, 17, 9, 40, 3] * 4
    one, again = epochs(lengths, 6, 4, seed=3), epochs(lengths, 6, 4, seed=3)
    assert len(list(one.batches(5))) > 10
    list(one.batches(0))  # reading another epoch first changes nothing
    assert all(equal(a, b) for a, b in zip(one.batches(2), again.batches(2), strict=True))
    first, other_epoch, other_seed = (
        [batch.targets.tolist() for batch in made.batches(epoch)]
        for made, epoch in ((one, 2), (one, 3), (epochs(lengths, 6, 4, seed=4), 2))
    )
    assert first != other_epoch
    assert first != other_seed


@given(st.integers(0, 40))
def test_skip_goes_on_at_the_same_batch(skip: int) -> None:
    made = epochs([5, 30, 17, 9, 40, 3] * 4, 6, 4)
    whole = list(made.batches(1))
    rest = list(made.batches(1, skip=skip))
    assert len(rest) == max(0, len(whole) - skip)
    assert all(equal(a, b) for a, b in zip(whole[skip:], rest, strict=True))


def test_a_batch_holds_about_as_many_targets_as_asked() -> None:
    made = epochs([26] * 100, targets=10, overlap=5, batch_targets=60)
    sizes = [int((batch.targets != PAD).sum()) for batch in made.batches(0)]
    assert max(sizes) < 60 + 10  # less than one window more
    assert np.mean(sizes) > 50


def test_short_histories_waste_little_padding() -> None:
    """Lengths from 3 to 51, most of them short: under 8 % of what goes through the encoder is padding."""
    lengths = np.minimum(np.random.default_rng(0).geometric(0.1, 5000) + 2, 51)
    made = epochs(lengths.tolist(), targets=50, overlap=0, batch_targets=800)
    cells = sum(batch.windows.items.size for batch in made.batches(0))
    padding = sum(int((batch.windows.items == PAD).sum()) for batch in made.batches(0))
    assert padding / cells < 0.08
    unsorted = 1 - (lengths - 1).mean() / 50  # what windows of mixed lengths would waste
    assert unsorted > 0.7


def test_lengths_are_mixed_over_the_epoch() -> None:
    """Sorting by length must not make an epoch go from short to long."""
    lengths = np.random.default_rng(0).integers(3, 51, 4000)
    made = epochs(lengths.tolist(), targets=50, overlap=0, batch_targets=400)
    widths = np.array([batch.windows.items.shape[1] for batch in made.batches(0)])
    assert abs(np.corrcoef(np.arange(len(widths)), widths)[0, 1]) < 0.2


def test_golden_batch() -> None:
    """Users 7 8 7 9 and 3 4: one window each, the shorter one padded."""
    items = np.array([7, 8, 7, 9, 3, 4], dtype=np.int32)
    windows = draw_windows(np.array([0, 4]), np.array([4, 6]), 3, 2, np.random.default_rng(0))
    batch = make_batch(items, None, windows)
    assert batch.windows.items.tolist() == [[7, 8, 7], [3, PAD, PAD]]
    assert batch.windows.positions.tolist() == [[0, 1, 2], [0, PAD, PAD]]
    assert batch.targets.tolist() == [[8, 7, 9], [4, PAD, PAD]]
    assert [part.dtype for part in (*batch.windows[:2], batch.targets)] == [np.int64] * 3
    assert batch.windows[2:] == (None, None, None)
    assert batch.weights is None


def test_times_are_those_of_the_inputs_and_of_the_targets() -> None:
    """The moment of a prediction is when its target happened, never later."""
    for batch in epochs([7, 3, 12], targets=3, overlap=2).batches(0):
        (items, positions, times, now, _), targets, *_ = batch
        assert (times[items != PAD] == 10 * items[items != PAD]).all()
        assert (now[positions != PAD] == 10 * targets[positions != PAD]).all()


def test_golden_overlap() -> None:
    """Of 1 … 6 with t = 2, m = 1 and the first window of one target: 2 · 3 4 · 5 6."""
    rng = np.random.default_rng(next(s for s in range(99) if np.random.default_rng(s).integers(1, 3) == 1))
    windows = draw_windows(np.array([0]), np.array([6]), 2, 1, rng)
    batch = make_batch(np.arange(1, 7, dtype=np.int32), None, windows)
    assert batch.windows.items.tolist() == [[1, PAD, PAD], [1, 2, 3], [3, 4, 5]]
    assert batch.windows.positions.tolist() == [[0, PAD], [1, 2], [1, 2]]
    assert batch.targets.tolist() == [[2, PAD], [3, 4], [5, 6]]


@pytest.mark.parametrize("lengths", [[], [0], [1, 1, 0]])
def test_nothing_to_train_on_is_no_batch(lengths: list[int]) -> None:
    assert list(epochs(lengths, 5, 5).batches(0)) == []
    empty = draw_windows(np.empty(0, np.int64), np.empty(0, np.int64), 5, 5, np.random.default_rng(0))
    assert order_batches(empty, 10, np.random.default_rng(0)) == []


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=12), st.integers(1, 6), st.integers(1, 5))
def test_last_windows_hold_the_latest_items_of_each_history(histories: list[list[int]], window: int, size: int) -> None:
    answered = {}
    times, now = [[10.0 * item for item in history] for history in histories], range(len(histories))
    for numbers, windows in last_windows(Histories.of(histories, times, now), window, size):
        assert 1 <= len(numbers) <= size
        assert windows.now[:, 0].tolist() == numbers.tolist()
        for number, row, (last,), when in zip(numbers.tolist(), *windows[:3], strict=True):
            answered[number] = row[: last + 1].tolist()
            assert (row[last + 1 :] == PAD).all()
            assert (when[: last + 1] == 10 * row[: last + 1]).all()
    assert answered == {number: history[-window:] for number, history in enumerate(histories) if history}


def test_last_windows_put_equal_lengths_together() -> None:
    histories = Histories.of([np.zeros(length) for length in [9, 2, 9, 2, 5, 5]])
    assert [windows.items.shape for _, windows in last_windows(histories, 50, 2)] == [(2, 2), (2, 5), (2, 9)]
    assert list(last_windows(Histories.of([]), 5, 4)) == []


@given(LENGTHS, st.integers(1, 12), st.integers(0, 12), st.integers(1, 50), st.integers(2, 4))
def test_processes_share_every_batch_out(lengths: list[int], targets: int, overlap: int, batch: int, size: int) -> None:
    """No target is in two processes or in none, and each process knows the whole step's number of targets and items."""
    made = epochs(lengths, targets, overlap, batch)
    shares = [list(made.batches(1, rank=rank, size=size)) for rank in range(size)]
    for whole, *parts in zip(made.batches(1), *shares, strict=True):
        assert trained(parts) == trained([whole])
        assert {part.total for part in parts} == {whole.total} == {len(trained([whole]))}
        assert {part.weight for part in parts} == {whole.weight}
        items = np.union1d(whole.windows.items[whole.windows.items != PAD], whole.targets[whole.targets != PAD])
        for part in parts:
            assert part.step is not None
            assert np.array_equal(np.unique(part.step.items), items)
        sizes = [len(part.targets) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_a_process_without_windows_has_an_empty_batch() -> None:
    second = next(epochs([5], targets=6, overlap=2).batches(0, rank=1, size=2))
    assert second.targets.shape == (0, 0)
    assert second.windows.items.shape == (0, 0)
    assert second.total == 4


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of three users, and blocks of about twenty windows."""
    monkeypatch.setattr(batches, "SEGMENT", 3)
    monkeypatch.setattr(batches, "BLOCK", 20)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_hold_every_target_once_and_resume_anywhere() -> None:
    lengths = np.random.default_rng(3).integers(0, 30, 100).tolist()
    made = epochs(lengths, targets=5, overlap=3, batch_targets=12)
    assert len(made._blocks(0)) > 10
    wanted = [row for b, e in zip(made.begin, made.end, strict=True) for row in range(b + 1, e)]
    whole = list(made.batches(2))
    assert trained(whole) == wanted
    assert made.steps(2) == len(whole)
    for skip in (0, 1, 17, len(whole) - 1, len(whole)):
        rest = list(made.batches(2, skip=skip))
        assert len(rest) == len(whole) - skip
        assert all(equal(one, other) for one, other in zip(rest, whole[skip:], strict=True))


@pytest.mark.usefixtures("small_blocks")
def test_blocks_have_users_from_everywhere_and_differ_by_epoch() -> None:
    made = epochs([10] * 300, targets=5, overlap=3)
    first, second = made._blocks(0), made._blocks(1)
    assert np.array_equal(np.sort(np.concatenate(first)), np.arange(100))
    assert [part.tolist() for part in first] != [part.tolist() for part in second]
    assert np.mean([np.ptp(part) for part in first]) > 30  # of 100 segments


def test_memory_for_an_epoch_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many users: the arrays of a block, and the same peak."""
    monkeypatch.setattr(batches, "BLOCK", 1 << 13)

    def peak(users: int) -> int:
        made = epochs([4] * users, targets=25, overlap=25, batch_targets=1000)
        next(iter(made.batches(0)))  # numpy's own first allocations
        tracemalloc.start()
        for _ in made.batches(0):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(1 << 16) < 1.3 * peak(1 << 14)

"""The native ranking against the plain form, which answers from the same numbers in float64."""

import pytest
import torch
from torch import Tensor

from abaca.nn import fast, native
from abaca.nn.logits import COPY, Answer, Level, Logits, Overrides, Question, answer, rank_targets

from .cases import CASES, Case, as_leaves, settled


def question_of(case: Case, n: int = 10, banned: int = 0, only: int | None = None) -> Question:
    generator = torch.Generator().manual_seed(case.seed + 2)

    def lists(width: int) -> Tensor:
        drawn = torch.rand(case.rows, case.catalogue + width, generator=generator).argsort(dim=1)[:, :width]
        return drawn.clamp_max(case.catalogue)  # V is padding

    targets = case.targets().masked_fill(torch.arange(case.rows) % 5 == 4, -1)
    return Question(targets, n, lists(4), lists(banned), None if only is None else lists(only))


def take(question: Question, rows: Tensor) -> Question:
    only = None if question.only is None else question.only[rows]
    return Question(question.targets[rows], question.n, question.mass_of[rows], question.banned[rows], only)


def assert_same(logits: Logits, question: Question) -> None:
    rows = settled(logits) if logits.rows else torch.ones(0, dtype=torch.bool)
    assert int((~rows).sum()) <= 1  # near ties are rare
    logits, question = logits.take(rows), take(question, rows)
    got, expected = answer(logits, question), answer(as_leaves(logits, torch.float64), question)
    assert torch.equal(got.rank, expected.rank)
    finite = expected.logits.isfinite()  # items that may not be recommended come last, in any order
    assert torch.equal(got.logits.isfinite(), finite)
    assert torch.equal(got.items[finite], expected.items[finite])
    assert torch.equal(got.partitions[finite], expected.partitions[finite])
    assert [x.dtype for x in (got.rank, got.items, got.partitions)] == [torch.int64, torch.int64, torch.int8]
    for ours, theirs in (
        (got.logits, expected.logits),
        (got.normaliser, expected.normaliser),
        (got.mass, expected.mass),
    ):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=2e-5)


with_rows = {name: case for name, case in CASES.items() if case.rows}


@pytest.mark.parametrize("case", with_rows.values(), ids=with_rows.keys())
@pytest.mark.parametrize("n", [1, 10])
def test_equals_the_plain_form(case: Case, n: int) -> None:
    assert_same(case.logits(), question_of(case, n))


@pytest.mark.parametrize("n", [200, 1003, 5000])
def test_long_lists(n: int) -> None:
    case = Case(levels=(50, 20, 7))
    assert_same(case.logits(), question_of(case, n))


@pytest.mark.parametrize(("banned", "only"), [(5, None), (1000, None), (0, 30), (7, 30), (0, 3), (0, 0)])
def test_items_that_may_not_be_recommended(banned: int, only: int | None) -> None:
    case = Case(levels=(50, 7))
    assert_same(case.logits(), question_of(case, 10, banned, only))


def test_excluded_histories_come_last() -> None:
    case = Case(catalogue=40, slots=9)
    logits = case.logits()
    overrides = logits.overrides._replace(values=torch.full_like(logits.overrides.values, -torch.inf))
    assert_same(logits._replace(overrides=overrides), question_of(case, 40))


def hand_made(values: list[float], logits: list[float]) -> Logits:
    """One row: the table is the logits, the history overrides items 0, 1, …."""
    ids = torch.arange(len(values))[None]
    overrides = Overrides(ids, torch.tensor([0]), torch.tensor([len(values)]), torch.tensor([values]))
    return Logits(torch.ones(1, 1, 1), torch.tensor(logits)[:, None], (Level(1, torch.tensor([[0.5]])),), overrides)


def ask(logits: Logits, target: int, n: int) -> Answer:
    none = torch.empty(1, 0, dtype=torch.long)
    return answer(logits, Question(torch.tensor([target]), n, torch.tensor([[0]]), none))


def test_a_row_by_hand() -> None:
    # item 4 is the best of the base and is halved; item 0 belongs to the history
    found = ask(hand_made([3.0], [9.0, 2.0, 2.0, 1.0, 8.0]), target=2, n=5)
    assert found.rank.tolist() == [4]  # a tie counts against the target; 9.0 was the top-1, then overridden
    assert found.items.tolist() == [[4, 0, 1, 2, 3]]
    assert found.partitions.tolist() == [[0, COPY, 0, 0, 0]]
    assert found.mass.item() == pytest.approx(torch.tensor([8.0, 3, 2, 2, 1]).softmax(0)[1].item(), rel=1e-6)


def test_ties_stand_in_the_order_of_the_items() -> None:
    found = ask(hand_made([], [1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 9.0]), target=0, n=6)
    assert found.items.tolist() == [[6, 1, 2, 3, 4, 0]]
    assert found.rank.tolist() == [7]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_threads_change_nothing(workers: int) -> None:
    case = Case(rows=700, levels=(50, 20, 7))
    torch.set_num_threads(1)
    alone = answer(case.logits(), question_of(case))
    torch.set_num_threads(workers)
    together = answer(case.logits(), question_of(case))
    assert torch.equal(alone.items, together.items)
    assert torch.equal(alone.rank, together.rank)
    again = answer(case.logits(), question_of(case))
    assert all(torch.equal(a, b) for a, b in zip(together, again, strict=True))


def test_what_is_no_number_ranks_last() -> None:
    case = Case(levels=(20,))
    logits = case.logits()
    logits.table[:] = torch.nan
    found = answer(logits, question_of(case))
    targets = question_of(case).targets
    assert torch.equal(found.rank, torch.where(targets >= 0, case.catalogue, case.catalogue + 1))
    assert found.normaliser.isnan().all()
    assert (found.items >= 0).all()
    assert (found.items < case.catalogue).all()


def test_no_rows() -> None:
    case = Case(rows=0, levels=(10,))
    found = answer(case.logits(), question_of(case, 3))
    assert found.items.shape == found.logits.shape == found.partitions.shape == (0, 3)
    assert found.rank.shape == found.normaliser.shape == found.mass.shape == (0,)


def test_the_native_form_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the plain form was asked")

    case = Case()
    monkeypatch.setattr("abaca.nn.logits.answer_tile", refuse)
    assert len(answer(case.logits(), question_of(case)).rank) == case.rows
    monkeypatch.setenv(native.SWITCH, "0")
    with pytest.raises(AssertionError, match="plain form"):
        answer(case.logits(), question_of(case))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("most", [1, 10, 2000])
def test_ranks_up_to_a_cutoff(case: Case, most: int) -> None:
    logits, targets = case.logits(), case.targets()
    rows = settled(logits) if logits.rows else torch.ones(0, dtype=torch.bool)
    logits, targets = logits.take(rows), targets[rows]
    found, expected = (rank_targets(one, targets, most) for one in (logits, as_leaves(logits, torch.float64)))
    assert found.rank.tolist() == expected.rank.tolist()
    torch.testing.assert_close(found.logit.double(), expected.logit, rtol=2e-5, atol=2e-5)


def test_a_target_that_is_surely_beaten_is_not_searched_for() -> None:
    """One that more base logits exceed than levels and history could take; a history's item may still win."""
    table = torch.arange(100.0).view(100, 1)  # item 99 scores highest
    values = torch.tensor([[1000.0, 0.0]]).repeat(3, 1)
    overrides = Overrides(torch.tensor([[0, 98]]), torch.zeros(3, dtype=torch.long), torch.full((3,), 2), values)
    logits = Logits(torch.ones(3, 1, 1), table, (Level(4, -torch.ones(3, 1)),), overrides)
    found = rank_targets(logits, torch.tensor([80, 0, 90]), 5)
    assert found.rank.tolist() == [101, 1, 101]
    assert rank_targets(logits, torch.tensor([80, 0, 90]), 100).rank.tolist() == [17, 1, 7]


def test_logits_that_are_no_numbers_miss() -> None:
    logits = Case(levels=(20,)).logits()
    logits.queries[3] = torch.nan
    found = rank_targets(logits, Case().targets(), 1003)
    assert found.rank[3] == 1004
    assert found.rank.max() == 1004
    assert (found.rank == 1004).sum() == 1


MANY = {
    "base only": Case(rows=300, catalogue=3000, slots=0),
    "one level": Case(rows=300, catalogue=3000, slots=60, levels=(40,)),
    "levels": Case(rows=300, catalogue=3000, slots=60, levels=(50, 20, 7)),
    "three queries": Case(rows=300, catalogue=3000, slots=60, levels=(20,), bases=3),
}


@pytest.mark.parametrize("case", MANY.values(), ids=MANY.keys())
@pytest.mark.parametrize("threads", [1, 2])
def test_targets_that_the_first_items_beat_are_not_ranked(
    case: Case, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    logits = case.logits()
    logits.table[: case.catalogue // 3] *= 2.0  # most targets are beaten by some of the first items
    logits = logits.take(settled(logits))
    rows, none = torch.arange(logits.rows), torch.empty(logits.rows, 0, dtype=torch.long)
    best = answer(logits, Question(torch.full_like(rows, -1), 40, none, none)).items
    targets = torch.where(rows % 3 == 0, best[rows, rows % 40], case.targets()[: logits.rows])
    if case.slots:
        held = logits.overrides.ids[logits.overrides.owner, 0]
        targets = torch.where((rows % 7 == 1) & (held < case.catalogue), held, targets)
    ranked = []
    rank = fast._rank_targets
    monkeypatch.setattr(fast, "_rank_targets", lambda *given: ranked.append(len(given[1])) or rank(*given))
    for most in (1, 10):
        found = rank_targets(logits, targets, most)
        expected = rank_targets(as_leaves(logits, torch.float64), targets, most)
        assert found.rank.tolist() == expected.rank.tolist()
        torch.testing.assert_close(found.logit.double(), expected.logit, rtol=2e-5, atol=2e-5)
        assert (found.rank <= most).any()
    assert 0 < ranked[0] < ranked[1] < logits.rows


def test_the_first_items_beat_nobody_by_what_is_not_sure() -> None:
    """A level lowers the first items below the target; ties, the target and the history do not count twice."""
    table = torch.linspace(2.0, 1.0, 400)[:, None].repeat(1, 2)  # 16 items are looked at first
    table[:, 1] = -table[:, 0]
    zero = torch.zeros(1, dtype=torch.long)
    nothing = Overrides(torch.empty(1, 0, dtype=torch.long), zero, zero, torch.empty(1, 0))
    lowered = Logits(torch.tensor([[[1.0, 0.0]]]), table, (Level(30, torch.tensor([[0.0, 1.0]])),), nothing)
    assert rank_targets(lowered, torch.tensor([30]), 3).rank.tolist() == [1]
    assert rank_targets(lowered, torch.tensor([34]), 3).rank.tolist() == [401]
    flat = Logits(torch.ones(1, 1, 1), torch.ones(400, 1), (), nothing)
    assert rank_targets(flat, torch.tensor([5]), 3).rank.tolist() == [401]
    steep = Logits(torch.ones(1, 1, 1), torch.arange(400.0, 0.0, -1.0)[:, None], (), nothing)
    assert rank_targets(steep, torch.arange(1) + 2, 3).rank.tolist() == [3]
    held = Overrides(torch.tensor([[0, 1, 2]]), zero, torch.tensor([3]), torch.full((1, 3), -1.0))
    assert rank_targets(steep._replace(overrides=held), torch.tensor([5]), 3).rank.tolist() == [3]
    assert rank_targets(steep._replace(overrides=held), torch.tensor([1]), 399).rank.tolist() == [401]
    won = held._replace(ids=torch.tensor([[0, 1, 300]]), values=torch.tensor([[0.5, 0.5, 9000.0]]))
    assert rank_targets(steep._replace(overrides=won), torch.tensor([300]), 3).rank.tolist() == [1]


def test_a_target_does_not_beat_itself() -> None:
    """Its logit may be beyond all numbers, or the small rest of large products that another order rounds otherwise."""
    zero, none = torch.zeros(1, dtype=torch.long), torch.empty(1, 0, dtype=torch.long)
    nothing, target = Overrides(none, zero, zero, torch.empty(1, 0)), torch.tensor([3])
    table = torch.ones(400, 1)
    table[3] = 1e20
    assert rank_targets(Logits(torch.full((1, 1, 1), 1e20), table, (), nothing), target, 1).rank.tolist() == [1]
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        half, other = 300 * torch.randn(32, generator=generator), torch.randn(32, generator=generator)
        query = torch.cat([half, half])
        table = -query.sign().repeat(400, 1)
        table[3] = torch.cat([other, -other])
        assert rank_targets(Logits(query[None, None], table, (), nothing), target, 1).rank.tolist() == [1]

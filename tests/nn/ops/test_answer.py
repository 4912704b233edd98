"""The native ranking against the plain form, which answers from the same numbers in float64."""

import pytest
import torch
from torch import Tensor

from abaca.nn import ops
from abaca.nn.answers import COPY, Answer, Question, answer
from abaca.nn.logits import Additions, Level, Logits, Overrides

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
    assert torch.equal(got.ahead, expected.ahead)
    finite = expected.logits.isfinite()  # items that may not be recommended come last, in any order
    assert torch.equal(got.logits.isfinite(), finite)
    assert torch.equal(got.items[finite], expected.items[finite])
    assert torch.equal(got.partitions[finite], expected.partitions[finite])
    assert [x.dtype for x in (got.rank, got.ahead, got.items, got.partitions)] == [*[torch.int64] * 3, torch.int8]
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
    assert found.ahead.tolist() == [1]
    assert found.rank.tolist() == [4]  # a tie counts against the target; 9.0 was the top-1, then overridden
    assert found.items.tolist() == [[4, 0, 1, 2, 3]]
    assert found.partitions.tolist() == [[0, COPY, 0, 0, 0]]
    assert found.mass.item() == pytest.approx(torch.tensor([8.0, 3, 2, 2, 1]).softmax(0)[1].item(), rel=1e-6)


def test_additions_move_items_before_and_behind_the_target() -> None:
    # 3, 2, 2, 1, 8 become 1.5, 2, 2, 2.5, 8; the last slot is empty
    ids, factor, bonus = torch.tensor([[0, 3, 5]]), torch.tensor([[0.5, 1.0, 1.0]]), torch.tensor([[0.0, 1.5, 0.0]])
    logits = hand_made([3.0], [9.0, 2.0, 2.0, 1.0, 8.0])._replace(additions=Additions(ids, factor, bonus))
    found = ask(logits, target=2, n=5)
    assert found.rank.tolist() == [4]
    assert found.ahead.tolist() == [0]  # item 0 is behind now
    assert found.items.tolist() == [[4, 3, 1, 2, 0]]
    assert found.logits.tolist() == [[8.0, 2.5, 2.0, 2.0, 1.5]]
    assert ask(logits, target=0, n=1).ahead.tolist() == [0]


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
    given = question_of(case).mass_of
    others = ((given < case.catalogue) & (given != targets[:, None])).sum(1)
    assert torch.equal(found.ahead, torch.where(targets >= 0, others, 0))
    assert (found.items >= 0).all()
    assert (found.items < case.catalogue).all()


def test_no_rows() -> None:
    case = Case(rows=0, levels=(10,))
    found = answer(case.logits(), question_of(case, 3))
    assert found.items.shape == found.logits.shape == found.partitions.shape == (0, 3)
    assert found.rank.shape == found.normaliser.shape == found.mass.shape == found.ahead.shape == (0,)


def test_the_native_form_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the plain form was called")

    case = Case()
    monkeypatch.setattr("abaca.nn.answers.answer_tile", refuse)
    assert len(answer(case.logits(), question_of(case)).rank) == case.rows
    with ops.form("plain"), pytest.raises(AssertionError, match="plain form"):
        answer(case.logits(), question_of(case))

"""What can be asked of logits, against brute force over all of them: every encoder × every output layer."""

import pytest
import torch
from torch import Tensor

from abaca.nn.answers import Answer, Question, answer
from abaca.nn.logits import Level, Logits, Overrides, Scores
from abaca.nn.ops.loss import cross_entropy

from . import formula
from .cases import CASES, ENCODERS, PLAIN_SPECS, SPECS, final_logits, model_of, question, rows_of

each_spec = pytest.mark.parametrize("spec", SPECS)
each_encoder = pytest.mark.parametrize("encoder", ENCODERS)

BATCH = CASES["repeats"].batch
V = CASES["repeats"].catalogue
ROWS = rows_of(BATCH)
TARGETS = torch.tensor([target for _, _, target in ROWS])


def scores_of(encoder: str, spec: str) -> Scores:
    return model_of(encoder, spec).scores(BATCH.windows)


def brute_rank(row: Tensor, target: int) -> int:
    """One plus the other items that score higher or equal."""
    return 1 + sum(x != target and row[x].item() >= row[target].item() for x in range(len(row)))


def check_best(found: Answer, logits: Tensor, n: int) -> None:
    """The n best of `logits` (N, V), best first, each with its own logit."""
    expected = logits.sort(dim=1, descending=True).values[:, :n]
    assert torch.equal(found.logits, expected)
    assert torch.equal(logits.gather(1, found.items), expected)
    assert all(len(set(row)) == len(row) for row in found.items.tolist())


@each_spec
@each_encoder
def test_best_items_rank_and_normaliser(encoder: str, spec: str) -> None:
    scores = scores_of(encoder, spec)
    logits = final_logits(scores)
    found = answer(scores, question(len(ROWS), n=5, targets=TARGETS))
    check_best(found, logits, 5)
    assert found.rank.tolist() == [brute_rank(row, t) for row, t in zip(logits, TARGETS.tolist(), strict=True)]
    normaliser = torch.stack([torch.log(torch.exp(row).sum()) for row in logits])
    torch.testing.assert_close(found.normaliser, normaliser, rtol=1e-11, atol=1e-11)


@each_spec
@each_encoder
def test_probabilities_add_up(encoder: str, spec: str) -> None:
    scores = scores_of(encoder, spec)
    everything = torch.arange(V).repeat(len(ROWS), 1)
    found = answer(scores, question(len(ROWS), n=V, mass_of=everything))
    ones = torch.ones(len(ROWS), dtype=torch.float64)
    torch.testing.assert_close(found.mass, ones, rtol=1e-11, atol=0)
    torch.testing.assert_close((found.logits - found.normaliser[:, None]).exp().sum(1), ones, rtol=1e-11, atol=0)


@each_spec
@each_encoder
def test_mass_of_the_history(encoder: str, spec: str) -> None:
    """The predicted probability of a repeat, against the formula."""
    model = model_of(encoder, spec)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    histories = [sorted(set(window[: at + 1])) for window, at, _ in ROWS]
    padded = torch.tensor([history + [V] * (5 - len(history)) for history in histories])
    found = answer(model.scores(BATCH.windows), question(len(ROWS), mass_of=padded)).mass
    expected = []
    for history, states, _ in formula.rows(weights, encoder, BATCH):
        log_p = formula.log_probabilities(weights, spec, history, states)
        expected.append(0.0 if "nodup" in spec else sum(log_p[x].exp().item() for x in set(history)))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-11)


def brute_ahead(row: Tensor, target: int, given: set[int]) -> int:
    """The given items, the target aside, that score higher or equal."""
    return sum(x != target and row[x].item() >= row[target].item() for x in given)


@each_spec
@each_encoder
def test_items_of_the_history_ahead_of_the_target(encoder: str, spec: str) -> None:
    scores = scores_of(encoder, spec)
    histories = [set(window[: at + 1]) for window, at, _ in ROWS]
    padded = torch.tensor([[*history, *[V] * (5 - len(history))] for history in histories])
    found = answer(scores, question(len(ROWS), targets=TARGETS, mass_of=padded)).ahead
    rows = zip(final_logits(scores), TARGETS.tolist(), histories, strict=True)
    assert found.tolist() == [brute_ahead(*row) for row in rows]
    assert answer(scores, question(len(ROWS), mass_of=padded)).ahead.eq(0).all(), "no target"


@each_spec
@each_encoder
def test_partitions(encoder: str, spec: str) -> None:
    """Every item is said to come from whoever scored it last in the formula."""
    model = model_of(encoder, spec)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    found = answer(model.scores(BATCH.windows), question(len(ROWS), n=V))
    rows = formula.rows(weights, encoder, BATCH)
    for (history, states, _), items, codes in zip(rows, found.items.tolist(), found.partitions.tolist(), strict=True):
        expected = formula.partitions_of(weights, spec, history, states)
        assert dict(zip(items, codes, strict=True)) == dict(enumerate(expected))


@each_spec
@each_encoder
def test_banned_and_only(encoder: str, spec: str) -> None:
    """Lists change who may be among the best, and nothing else."""
    scores = scores_of(encoder, spec)
    logits = final_logits(scores)
    free = answer(scores, question(len(ROWS), n=V, targets=TARGETS))
    banned = torch.cat([free.items[:, :2], torch.full((len(ROWS), 1), V)], dim=1)  # the favourites
    only = torch.cat([free.items[:, 1:6:2], torch.full((len(ROWS), 2), V)], dim=1)  # numbers 2, 4, 6

    without = answer(scores, question(len(ROWS), n=4, targets=TARGETS, banned=banned))
    check_best(without, logits.scatter(1, banned[:, :2], -torch.inf), 4)
    allowed = torch.full_like(logits, -torch.inf).scatter(1, only[:, :3], free.logits[:, 1:6:2])
    among = answer(scores, question(len(ROWS), n=3, targets=TARGETS, only=only))
    check_best(among, allowed, 3)
    assert torch.equal(among.items, only[:, :3])
    both = answer(scores, question(len(ROWS), n=2, targets=TARGETS, banned=banned, only=only))
    assert torch.equal(both.items, only[:, 1:3])
    for other in (without, among, both):
        assert torch.equal(other.rank, free.rank)
        assert torch.equal(other.normaliser, free.normaliser)


@pytest.mark.parametrize("rows_at_once", [1, 5])
@each_spec
@each_encoder
def test_tile_size_does_not_matter(encoder: str, spec: str, rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(encoder, spec)
    queries = formula.read(spec).queries

    def everything() -> list[Tensor]:
        loss = model.loss(BATCH.windows, BATCH.targets)
        gradients = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
        found = answer(model.scores(BATCH.windows), question(len(ROWS), targets=TARGETS))
        return [loss.detach(), *gradients, *found]

    whole = everything()
    monkeypatch.setattr("abaca.nn.logits.TILE_ELEMENTS", rows_at_once * V * queries + 1)
    assert sum(1 for _ in model.scores(BATCH.windows).tiles()) == -(-len(ROWS) // rows_at_once)
    torch.testing.assert_close(everything(), whole, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("spec", PLAIN_SPECS)
@each_encoder
def test_nodup_ranks_new_items_only(encoder: str, spec: str) -> None:
    """History items come last, with probability 0; the others keep their order and their logits."""
    plain, found = (
        answer(scores_of(encoder, name), question(len(ROWS), n=V, targets=TARGETS)) for name in (spec, f"{spec}+nodup")
    )
    for i, (window, at, target) in enumerate(ROWS):
        history = set(window[: at + 1])
        new = V - len(history)
        expected = [item for item in plain.items[i].tolist() if item not in history]
        assert found.items[i, :new].tolist() == expected
        assert set(found.items[i, new:].tolist()) == history
        assert found.logits[i, new:].eq(-torch.inf).all()
        assert found.rank[i].item() == (V if target in history else 1 + expected.index(target))


@each_spec
@each_encoder
def test_more_than_the_catalogue(encoder: str, spec: str) -> None:
    found = answer(scores_of(encoder, spec), question(len(ROWS), n=V + 7))
    assert [sorted(row) for row in found.items.tolist()] == [list(range(V))] * len(ROWS)
    assert found.rank.eq(V + 1).all()  # without a target


@pytest.mark.parametrize("spec", ["softmax", "softmax+CPR:3+Mi", "mos:3+CP", "mos-mix:3"])
@each_encoder
def test_a_constant_score_earns_the_last_rank(encoder: str, spec: str) -> None:
    model = model_of(encoder, spec)
    for weight in model.parameters():
        torch.nn.init.zeros_(weight)
    found = answer(model.scores(BATCH.windows), question(len(ROWS), targets=TARGETS))
    assert found.rank.eq(V).all()


def test_a_score_that_is_not_a_number_earns_the_last_rank() -> None:
    model = model_of("gru4rec", "softmax")
    torch.nn.init.constant_(model.items.weight, torch.nan)
    some = torch.tensor([[0, 5, V]]).expand(len(ROWS), -1)
    found = answer(model.scores(BATCH.windows), question(len(ROWS), targets=TARGETS, mass_of=some))
    assert found.rank.eq(V).all()
    assert found.ahead.tolist() == [2 - (target in (0, 5)) for target in TARGETS.tolist()]


# Logits made by hand, of whole numbers, so that sums are exact and ties are ties.


def whole_numbers(queries: int, levels: int, seed: int) -> Logits:
    """Six rows of two histories with many ties: items 0…9 and 10…19 have the same vectors."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randint(-2, 3, shape, generator=generator, dtype=torch.float64)

    ids = torch.tensor([[4, 17, 20, 0], [9, 2, 3, 20]])
    overrides = Overrides(ids, torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([1, 2, 4, 3, 0, 1]), draw(6, 4))
    reranked = tuple(Level(k, draw(6, 3)) for k in (12, 7, 3)[:levels])
    return Logits(draw(6, queries, 3), draw(10, 3).repeat(2, 1), reranked, overrides)


@pytest.mark.parametrize("levels", [0, 1, 3])
@pytest.mark.parametrize("queries", [1, 2])
def test_ties_count_against_the_target(queries: int, levels: int) -> None:
    scores = whole_numbers(queries, levels, seed=levels)
    logits = final_logits(scores)
    tied = 0
    for target in range(20):
        targets = torch.full((6,), target)
        some = torch.tensor([[3, 13, 4, 20, 9, 19]]).expand(6, -1)
        found = answer(scores, question(6, n=20, targets=targets, mass_of=some))
        check_best(found, logits, 20)
        expected = [brute_rank(row, target) for row in logits]
        assert found.rank.tolist() == expected
        assert found.ahead.tolist() == [brute_ahead(row, target, {3, 13, 4, 9, 19}) for row in logits]
        strict = [1 + int((row > row[target]).sum()) for row in logits]
        tied += sum(a != b for a, b in zip(expected, strict, strict=True))
    assert tied > 50


def test_overrides_reach_only_so_far() -> None:
    """Row n is overridden by the first reach[n] slots, the rest keeps the product; V marks an empty slot."""
    scores = whole_numbers(1, 0, seed=3)
    ids, owner, reach, values = scores.overrides
    for n, row in enumerate(final_logits(scores)):
        expected = {x: (scores.queries[n, 0] @ scores.table[x]).item() for x in range(20)}
        for slot in range(int(reach[n])):
            expected[int(ids[owner[n], slot])] = values[n, slot].item()
        expected.pop(20, None)
        assert dict(enumerate(row.tolist())) == expected


def test_take_keeps_the_rows_asked_for() -> None:
    scores = whole_numbers(2, 3, seed=5)
    rows = torch.tensor([5, 0, 3, 3])
    assert torch.equal(final_logits(scores.take(rows)), final_logits(scores)[rows])


def test_cross_entropy_weighs_its_rows() -> None:
    scores = whole_numbers(2, 1, seed=1)
    targets, weights = torch.tensor([4, 1, 0, 9, 11, 19]), torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25]).double()
    hit = final_logits(scores).log_softmax(dim=1).gather(1, targets[:, None]).squeeze(1)
    torch.testing.assert_close(cross_entropy(scores, targets, weights), -(hit * weights).sum())


def test_a_question_of_no_rows() -> None:
    none = whole_numbers(1, 1, seed=0).take(torch.empty(0, dtype=torch.long))
    nothing = torch.empty(0, 0, dtype=torch.long)
    found = answer(none, Question(torch.empty(0, dtype=torch.long), 3, nothing, nothing))
    assert found.items.shape == (0, 3)
    assert found.rank.shape == found.normaliser.shape == found.mass.shape == found.ahead.shape == (0,)

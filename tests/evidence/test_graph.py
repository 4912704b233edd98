"""Evidence as torch operations on rectangles equals evidence as arrays, for everything that may be known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from abaca.evidence.evidence import Evidence, Weights
from abaca.evidence.graph import KNOWN, EvidenceGraph, latest
from abaca.evidence.habits import EDGES, KINDS, MOST_ITEMS, Clock, habits_of
from abaca.evidence.transitions import Transitions
from abaca.histories import EventTypes, Histories, Windows
from abaca.nn.logits import Logits, Overrides
from abaca.nn.outputs.spec import EVIDENCE

V, WINDOW = MOST_ITEMS + 40, 6
CLOCKS = {"order": Clock(0.0, False), "times": Clock(3600.0, False), "now": Clock(3600.0, True)}
RNG = np.random.default_rng(0)
ROWS = [RNG.integers(0, 60, length).tolist() for length in RNG.integers(2, 30, 60)]
ASKED = [
    [3], [5, 5], [1, 2, 1, 2, 1], [*range(5), 0, 7, 7], RNG.integers(0, 9, 150).tolist(),
    [*range(MOST_ITEMS + 30), 0, 4],
]  # fmt: skip
TIMES = [1e9 + np.cumsum(RNG.choice([0, 600, 3600, 7200, 86_400, 90_000], len(row))) for row in ASKED]
NOW = [float(times[-1] + wait) for times, wait in zip(TIMES, [0, 3600, -50, 86_400, 1e6, 7], strict=True)]


def evidence(kind: str, parts: tuple[str, ...] = EVIDENCE, types: EventTypes | None = None) -> Evidence:
    """Random numbers of this kind and those before it."""
    weights = {}
    for place, name in enumerate(list(KINDS)[: 1 + list(KINDS).index(kind)]):
        rng, size = np.random.default_rng(place), sum(len(EDGES[habit]) + 1 for habit in habits_of(name, types))
        habits = tuple(rng.normal(size=size).tolist()) if "habits" in parts else ()
        weights[name] = Weights(0.7 + 0.1 * place, 0.4, 1.5 - place, habits, 0.8, 0.3 * place, 5.0)
    counts = Transitions.count(Histories.of(ROWS), V)
    return Evidence(parts, WINDOW, CLOCKS[kind], counts, weights, types, fade=0.5)


def scores() -> Logits:
    rows = len(ASKED)
    queries, table = (torch.from_numpy(RNG.normal(size=shape)).float() for shape in ((rows, 1, 4), (V, 4)))
    nothing = torch.empty(rows, 0)
    return Logits(queries, table, (), Overrides(nothing.long(), torch.arange(rows), torch.zeros(rows), nothing))


def rectangle(level: list[int], given: EvidenceGraph) -> Windows[Any]:
    """The histories, padded; of each what its level of KNOWN says, NaN otherwise."""
    shape = len(ASKED), max(map(len, ASKED)) + 3
    items, times, now = np.full(shape, -1), np.full(shape, np.nan), np.full((len(ASKED), 1), np.nan)
    for row, known in enumerate(level):
        items[row, : len(ASKED[row])] = ASKED[row]
        if known > 0:
            times[row, : len(ASKED[row])] = TIMES[row]
        if known > 1:
            now[row] = NOW[row]
    positions = np.array([[len(history) - 1] for history in ASKED])
    read = (times if given.reads_times else None, now if given.reads_now else None)
    return Windows(items, positions, *read).map(torch.from_numpy)


def ragged(row: int, level: int) -> Histories:
    """One history, with what its level of KNOWN says."""
    times, now = TIMES[row : row + 1], NOW[row : row + 1]
    return Histories.of(ASKED[row : row + 1], times if level > 0 else None, now if level > 1 else None)


@pytest.mark.parametrize("parts", [("habits",), ("followers",), EVIDENCE], ids="+".join)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_evidence(kind: str, parts: tuple[str, ...]) -> None:
    given, base = evidence(kind, parts), scores()
    graph = EvidenceGraph(given)
    most = list(KINDS).index(kind)
    for level in ([0] * 6, [most] * 6, [row % (most + 1) for row in range(6)]):
        found, owned = graph(base, rectangle(level, graph))
        final = found.tile().logits
        for row, known in enumerate(level):
            expected = given.apply(base.take(torch.tensor([row])), ragged(row, known))
            assert isinstance(expected, Logits)
            torch.testing.assert_close(final[row : row + 1], expected.tile().logits, rtol=1e-5, atol=1e-5)
            assert sorted(set(owned[row].tolist()) - {V}) == sorted(set(ASKED[row]))
            assert (owned[row] < V).sum() == len(set(ASKED[row]))  # each once


@pytest.mark.parametrize("kind", KINDS)
def test_types_are_those_of_the_evidence(kind: str) -> None:
    given, base = evidence(kind, types=EventTypes(("buy", "cart", "view"), (0, 1), 1)), scores()
    graph, level = EvidenceGraph(given), [row % (1 + list(KINDS).index(kind)) for row in range(6)]
    drawn = [RNG.integers(0, 3, len(history)) for history in ASKED]
    windows = rectangle(level, graph)
    types = torch.zeros_like(windows.items)
    for row, one in enumerate(drawn):
        types[row, : len(one)] = torch.from_numpy(one)
    final = graph(base, windows._replace(types=types))[0].tile().logits
    untyped = evidence(kind)
    for row, known in enumerate(level):
        history = replace(ragged(row, known), types=drawn[row])
        expected = given.apply(base.take(torch.tensor([row])), history)
        assert isinstance(expected, Logits)
        torch.testing.assert_close(final[row : row + 1], expected.tile().logits, rtol=1e-5, atol=1e-5)
        other = untyped.apply(base.take(torch.tensor([row])), history)
        assert isinstance(other, Logits)
        assert not torch.allclose(other.tile().logits, expected.tile().logits)


@pytest.mark.parametrize(
    ("kind", "times", "now"), [("order", False, False), ("times", True, False), ("now", True, True)]
)
def test_a_graph_reads_what_its_numbers_were_fitted_for(kind: str, times: bool, now: bool) -> None:
    given = evidence(kind)
    graph = EvidenceGraph(given)
    assert (graph.reads_times, graph.reads_now) == (times, now)
    assert len(KNOWN) == len(KINDS)


def test_an_item_without_followers_and_an_empty_log_add_nothing() -> None:
    nobody = Transitions.count(Histories.of([[0]]), V)
    given = Evidence(("followers",), WINDOW, CLOCKS["order"], nobody, {"order": Weights()})
    graph, base = EvidenceGraph(given), scores()
    found, _ = graph(base, rectangle([0] * 6, graph))
    assert torch.equal(found.tile().logits, base.tile().logits)


def test_the_network_reads_the_last_items() -> None:
    whole = torch.tensor([[1, 2, 3, 4, 5], [6, 7, -1, -1, -1], [1, 2, 3, -1, -1]])
    for window in (2, 3, 5, 9):
        found = latest(Windows(whole, (whole >= 0).sum(1, keepdim=True) - 1), window)
        for row, history in enumerate(([1, 2, 3, 4, 5], [6, 7], [1, 2, 3])):
            kept = history[-window:]
            assert found.positions[row].item() == len(kept) - 1
            assert found.items[row, : len(kept)].tolist() == kept
            assert (found.items[row, len(kept) :] == -1).all()

"""Ranks up to a cutoff are those of the full ranking: every encoder × every output layer, every item as a target."""

import pytest
import torch

from abaca.histories import Windows
from abaca.nn import shortlist
from abaca.nn.logits import answer, rank_targets
from abaca.nn.outputs.encoded import pick

from .cases import CASES, ENCODERS, SPECS, final_logits, model_of, question

each_spec = pytest.mark.parametrize("spec", SPECS)
each_encoder = pytest.mark.parametrize("encoder", ENCODERS)
ITEMS = CASES["repeats"].batch.items
LAST = (ITEMS >= 0).sum(dim=1, keepdim=True) - 1
V = CASES["repeats"].catalogue


@each_spec
@each_encoder
@pytest.mark.parametrize("most", [1, 4, V, 3 * V])
def test_ranks_are_those_of_the_full_ranking(encoder: str, spec: str, most: int) -> None:
    model = model_of(encoder, spec)
    windows, last = ITEMS.repeat_interleave(V, dim=0), LAST.repeat_interleave(V, dim=0)
    targets = torch.arange(V).repeat(len(ITEMS))
    full = answer(model.scores(Windows(windows, last)), question(len(windows), n=0, targets=targets)).rank
    assert model.ranks(windows, last, targets, most).tolist() == full.where(full <= most, V + 1).tolist()


def test_the_history_is_scored_only_where_it_can_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = model_of("gru4rec", "softmax+CPR:3+Mi"), list[int]()
    reaching = shortlist.reaching
    monkeypatch.setattr(shortlist, "reaching", lambda *given: asked.extend(given[3].tolist()) or reaching(*given))
    targets = torch.tensor([next(x for x in range(V) if x not in row) for row in ITEMS.tolist()])
    encoded = model.encode(Windows(ITEMS, LAST))
    outside = rank_targets(model.output.outside(encoded, model.output.mix.at(encoded.states, LAST)), targets, V).rank
    near = (outside <= 4).nonzero().squeeze(1).tolist()
    assert 0 < len(near) < len(ITEMS)
    model.ranks(ITEMS, LAST, targets, 4)
    assert asked == near


@each_spec
def test_ranks_of_targets_and_their_logits(spec: str) -> None:
    scores = model_of("sasrec", spec).scores(Windows(ITEMS, LAST))
    targets = torch.tensor([11, 3, 5, 7, 0])
    found, logits = rank_targets(scores, targets, 6), final_logits(scores)
    for row, target in enumerate(targets.tolist()):
        rank = int((logits[row] >= logits[row, target]).sum())
        assert found.rank[row] == (rank if rank <= 6 else V + 1)
        assert found.logit[row] == (logits[row, target] if rank <= 6 else -torch.inf)


@pytest.mark.parametrize("spec", ["softmax", "softmax+Mi"])
@each_encoder
def test_queries_of_some_positions_alone(encoder: str, spec: str) -> None:
    mix, states = model_of(encoder, spec).output.mix, model_of(encoder, spec).encode(Windows(ITEMS, LAST)).states
    positions = torch.tensor([[0, 6, 1], [3, -1, 0], [2, 1, 4], [0, 0, -1], [5, 4, 3]])
    with torch.no_grad():
        alone = mix.at(states, positions)
    torch.testing.assert_close(alone, pick(mix(states), positions), rtol=1e-12, atol=1e-12)

"""Where targets stand on a shortlist: ranks up to a cutoff, which is all that a metric at that cutoff reads.

Outside the history most targets are beaten by enough items already, whatever the history scores. It is scored only for
the others, and its items that reach the target are counted. So Mi and the pointer, which read every position of a
window, work on few windows. A target that is itself in the history is ranked in full.
"""

import torch
from torch import Tensor

from abaca.nn.logits import rank_targets
from abaca.nn.outputs import Encoded, Output, Softmax
from abaca.nn.reaching import reaching


@torch.no_grad()
def ranks(output: Output, encoded: Encoded, targets: Tensor, most: int) -> Tensor:
    """Rank of each window's target (B,), predicted at its last position (B, 1); V + 1 beyond `most`."""
    if not isinstance(output, Softmax) or output.copy is None or output.spec.nodup:
        return rank_targets(output.scores(encoded), targets, most).rank
    repeat = (encoded.items == targets[:, None]).any(dim=1)
    found = torch.empty_like(targets)
    for chosen, rank in ((repeat, _in_full), (~repeat, _outside_first)):
        which = chosen.nonzero().squeeze(1)
        if len(which) == len(found):
            return rank(output, encoded, targets, most)
        if len(which):
            found[which] = rank(output, encoded.take(which), targets[which], most)
    return found


def _in_full(output: Softmax, encoded: Encoded, targets: Tensor, most: int) -> Tensor:
    return rank_targets(output.logits(encoded), targets, most).rank


def _outside_first(output: Softmax, encoded: Encoded, targets: Tensor, most: int) -> Tensor:
    """For targets that are not in the history: their ranks outside it, plus what reaches them from inside."""
    at, catalogue = output.mix.at(encoded.states, encoded.positions), encoded.table.shape[0]
    rank, logit = rank_targets(output.outside(encoded, at), targets, most)
    near = (rank <= most).nonzero().squeeze(1)
    if len(near):
        total = rank[near] + reaching(output, encoded, at, near, logit[near])
        rank[near] = total.where(total <= most, catalogue + 1)
    return rank

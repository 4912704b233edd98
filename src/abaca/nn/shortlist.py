"""Where targets stand on a shortlist: ranks up to a cutoff, which is all that a metric at that cutoff reads.

Outside the history most targets are beaten by enough items already, whatever the history scores. It is scored only for
the others, and its items that reach the target are counted. So Mi and the pointer, which read every position of a
window, work on few windows. A target that is itself in the history is ranked in full.
"""

import torch
from torch import Tensor

from abaca.nn import native
from abaca.nn.frame import can_read, shared_out
from abaca.nn.logits import rank_targets
from abaca.nn.outputs import Encoded, Output, Softmax
from abaca.nn.outputs.mix import Mi
from abaca.nn.outputs.project import project
from abaca.nn.product import panels_of


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


def reaching(output: Softmax, encoded: Encoded, at: Tensor, windows: Tensor, logits: Tensor) -> Tensor:
    """How many items of some windows' histories (n,) score at least as high as these logits (n,).

    `at` are the queries of the last positions of all windows (B, 1, Q).
    """
    if can_read(encoded.states, encoded.table, logits) and native.mode() == "avx2":
        return _reaching(output, encoded, at.squeeze(1)[windows], windows, logits)
    ids, values = output.history(encoded.take(windows))
    return (~(values.squeeze(1) < logits[:, None]) & (ids < encoded.table.shape[0])).sum(dim=1)


def _reaching(output: Softmax, encoded: Encoded, at: Tensor, windows: Tensor, logits: Tensor) -> Tensor:
    """The native form: one window after another, read where it lies. Queries (n, Q)."""
    assert output.copy is not None
    items, positions = encoded.items.long().contiguous(), encoded.positions.long().contiguous()
    states, table = encoded.states.contiguous(), encoded.table.contiguous()
    copying, *pointed = project(output.copy.readers, at)
    _, pointing, offset = output.copy.pointer(at, pointed[0]) if pointed else (None, None, None)
    panels = bias = None
    if pointed and isinstance(output.mix, Mi):
        panels, bias = panels_of(output.mix.turned), output.mix.linear.bias
    kept = items, positions, states, table, panels, bias, windows, copying, pointing, offset, logits
    sizes = items.shape[1], table.shape[1], states[0, 0].numel(), at.shape[1] if pointed else 0
    struct = native.ReachingStruct(*sizes, *(None if part is None else part.data_ptr() for part in kept), False)
    found = torch.empty_like(windows)

    def work(first: int, count: int, memory: Tensor) -> None:
        native.function("abaca_reaching")(struct, first, count, memory.data_ptr(), found.data_ptr())

    shared_out(len(windows), 2 * native.function("abaca_reaching_words")(struct), work)
    return found

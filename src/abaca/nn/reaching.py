"""How many items of a history reach the logit of a target that is not among them.

With Mi and a pointer most of the work are the queries of all positions of a window. Whoever has learned to exclude the
history needs little of them. An item's logit holds Σ_i u_i · GELU(y_i), u from the prediction, y from the item's
position, and GELU never falls below −0.17: a part i of which the prediction wants little (u_i ≤ 0) adds at most
0.17 · |u_i|, whatever y_i is. So a first look hears only the parts that some prediction wants much of; of a further one
that is wanted, y_i is at most the length of its weights times that of the states. What cannot reach the target even so
need not be looked at again.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from abaca.nn import native
from abaca.nn.fast import SLACK
from abaca.nn.frame import can_read, shared_out
from abaca.nn.outputs import Encoded, Softmax
from abaca.nn.outputs.mix import POSITIONS, Mi
from abaca.nn.outputs.project import project
from abaca.nn.product import PANEL, panels_of

LOWEST = 0.17
"""GELU is nowhere below −0.17 (its minimum is −0.16997)."""

LEFT_OUT = 0.01
"""Share of what all predictions want that a first look may leave out."""

TRIED = 16
"""One in so many windows is tried first: where the first look settles less than half of them, it is left out."""


def reaching(output: Softmax, encoded: Encoded, at: Tensor, windows: Tensor, logits: Tensor) -> Tensor:
    """How many items of some windows' histories (n,) score at least as high as these logits (n,).

    `at` are the queries of the last positions of all windows (B, 1, Q).
    """
    if not can_read(encoded.states, encoded.table, logits) or native.mode() != "avx2":
        ids, values = output.history(encoded.take(windows))
        return (~(values.squeeze(1) < logits[:, None]) & (ids < encoded.table.shape[0])).sum(dim=1)
    assert output.copy is not None
    copying, *pointed = project(output.copy.readers, at.squeeze(1)[windows])
    if not pointed:
        return _count(encoded, Asked(windows, copying, None, None, logits), None)
    _, pointing, offset = output.copy.pointer(at, pointed[0])
    asked = Asked(windows, copying, pointing, offset, logits)
    if not isinstance(output.mix, Mi):
        return _count(encoded, asked, None)
    return _two_looks(encoded, asked, output.mix)


class Asked(NamedTuple):
    """The windows that are asked about, and with what their items are scored."""

    windows: Tensor  # (n,)
    copying: Tensor  # (n, D)
    pointing: Tensor | None  # (n, Q)
    offset: Tensor | None  # (n,)
    logits: Tensor  # (n,) the targets'
    unheard: Tensor | None = None  # (n,) what parts of Mi that are not heard add, by the length of the states

    def of(self, rows: Tensor) -> "Asked":
        """Only these."""
        parts = (None if part is None else part[rows] for part in self)
        return Asked(*parts)  # type: ignore[arg-type]


class Heard(NamedTuple):
    """Some parts of Mi, all of them or those that matter most."""

    panels: Tensor
    bias: Tensor  # (parts,)

    @classmethod
    def of(cls, mix: Mi, parts: Tensor) -> "Heard":
        turned = mix.turned.view(POSITIONS, len(mix.linear.bias), -1)
        return cls(panels_of(turned[:, parts].flatten(0, 1)), mix.linear.bias[parts].contiguous())


def _two_looks(encoded: Encoded, asked: Asked, mix: Mi) -> Tensor:
    """A first look at all windows, if it settles most of those that are tried; a whole one at what is left."""
    found = torch.ones_like(asked.windows)
    first = _first_look(asked, mix)
    if first is not None:
        rough, heard = first
        tried = torch.arange(0, len(found), TRIED)
        found[tried] = _count(encoded, rough.of(tried), heard)
        if int((found[tried] > 0).sum()) * 2 <= len(tried):
            found = _count(encoded, rough, heard)  # those that were tried once more: few
    left = found.nonzero().squeeze(1)
    if len(left):
        every = torch.arange(len(mix.linear.bias))
        found[left] = _count(encoded, asked.of(left), Heard.of(mix, every))
    return found


def _first_look(asked: Asked, mix: Mi) -> tuple[Asked, Heard] | None:
    """What counts, for the parts that matter most, no item too few; None where all matter."""
    assert asked.pointing is not None
    assert asked.offset is not None
    bias, lengths = mix.linear.bias, mix.linear.weight.norm(dim=1)  # (D,)
    state, part = asked.pointing.chunk(2, dim=1)  # what is wanted of a state and of each part of Mi
    much = part.clamp_min(0) * lengths  # (n, D)
    most, order = much.sum(dim=0).sort(descending=True)
    within = most.cumsum(0) < (1 - LEFT_OUT) * most.sum()
    count = -(-(int(within.sum()) + 1) // PANEL) * PANEL
    if count >= len(bias):
        return None
    heard, other = order[:count], order[count:]
    extra = part[:, other].clamp_min(0) @ bias[other].clamp_min(0) - LOWEST * part[:, other].clamp_max(0).sum(dim=1)
    slack = SLACK * (1 + asked.logits.abs())
    rough = Asked(
        asked.windows,
        asked.copying,
        torch.cat([state, part[:, heard]], dim=1),
        asked.offset + extra + slack,
        asked.logits,
        much[:, other].sum(dim=1),
    )
    return rough, Heard.of(mix, heard)


def _count(encoded: Encoded, asked: Asked, heard: Heard | None) -> Tensor:
    """The native form: one window after another, read where it lies."""
    items, positions = encoded.items.long().contiguous(), encoded.positions.long().contiguous()
    states, table = encoded.states.contiguous(), encoded.table.contiguous()
    panels, bias = heard or (None, None)
    windows, copying, pointing, offset, logits, unheard = (None if x is None else x.contiguous() for x in asked)
    kept = items, positions, states, table, panels, bias, windows, copying, pointing, offset, unheard, logits
    wide = 0 if pointing is None else pointing.shape[1]
    sizes = items.shape[1], table.shape[1], states[0, 0].numel(), wide, 0 if bias is None else len(bias)
    struct = native.ReachingStruct(*sizes, *(None if part is None else part.data_ptr() for part in kept), False)
    found = torch.empty_like(asked.windows)

    def work(first: int, count: int, memory: Tensor) -> None:
        native.function("abaca_reaching")(struct, first, count, memory.data_ptr(), found.data_ptr())

    shared_out(len(found), 2 * native.function("abaca_reaching_words")(struct), work)
    return found

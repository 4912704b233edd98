"""The answer to a `Question` by the native library: rank, best items, normaliser, given items.

The plain form is `abaca.nn.answers.answer_tile`, which also states what each field holds. Here torch multiplies and one
call does the rest of a tile of rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from abaca.nn.logits import Logits
from abaca.nn.ops.library import QuestionStruct, function
from abaca.nn.ops.packed import BaseTiles, PackedLogits, check_range, deal
from abaca.nn.ops.threads import in_parallel


def native(
    logits: Logits, targets: Tensor, n: int, mass_of: Tensor, banned: Tensor, only: Tensor | None
) -> tuple[Tensor, ...]:
    """The fields of `Answer` for the fields of `Question`."""
    packed, n = PackedLogits(logits), min(n, logits.catalogue)
    check_range(targets.clamp_min(0), packed.catalogue - 1, "targets")
    targets = targets.long().contiguous()
    allowed = targets[:, None][:, :0] if only is None else only
    lists = [check_range(ids, packed.catalogue, "ids").long().contiguous() for ids in (mass_of, banned, allowed)]
    found = (
        torch.empty(packed.rows, dtype=torch.int64),
        torch.empty(packed.rows, n, dtype=torch.int64),
        torch.empty(packed.rows, n),
        torch.empty(packed.rows, n, dtype=torch.int8),
        torch.empty(packed.rows),
        torch.empty(packed.rows),
        torch.empty(packed.rows, dtype=torch.int64),
    )
    widths = lists[0].shape[1], lists[1].shape[1], -1 if only is None else allowed.shape[1]
    struct = QuestionStruct(n, *widths, *(tensor.data_ptr() for tensor in (targets, *lists, *found)))
    shares = deal(packed, torch.get_num_threads())
    in_parallel(len(shares), lambda worker: _work(packed, struct, shares[worker]))
    return found


def _work(packed: PackedLogits, struct: QuestionStruct, tiles: Sequence[slice]) -> None:
    """One worker's tiles."""
    if not tiles:
        return
    base = BaseTiles(packed, tiles, with_gradients=False)
    memory = torch.zeros(function("abaca_answer_bytes")(packed.struct, struct), dtype=torch.uint8)
    for rows in tiles:
        tile = base.logits(rows)
        where = rows.start, len(tile), tile.data_ptr(), tile.stride(0), memory.data_ptr()
        function("abaca_answer_rows")(packed.struct, struct, *where)

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

Fields = tuple[Tensor, int, Tensor, Tensor, Tensor | None]
"""The fields of a `Question`: targets, n, mass_of, banned, only."""


def native(
    logits: Logits, targets: Tensor, n: int, mass_of: Tensor, banned: Tensor, only: Tensor | None
) -> tuple[Tensor, ...]:
    """The fields of `Answer` for the fields of `Question`."""
    return native_each(logits, [(targets, n, mass_of, banned, only)])[0]


def native_each(logits: Logits, questions: Sequence[Fields]) -> list[tuple[Tensor, ...]]:
    """The fields of `Answer` for each question about the same rows, whose products are computed once."""
    packed = PackedLogits(logits)
    asked = [_Asked(packed, *question) for question in questions]
    shares = deal(packed, torch.get_num_threads())
    in_parallel(len(shares), lambda worker: _work(packed, [each.struct for each in asked], shares[worker]))
    return [each.found for each in asked]


class _Asked:
    """A question in memory that the library reads, and the memory of its answer."""

    def __init__(
        self, packed: PackedLogits, targets: Tensor, n: int, mass_of: Tensor, banned: Tensor, only: Tensor | None
    ) -> None:
        n = min(n, packed.catalogue)
        check_range(targets.clamp_min(0), packed.catalogue - 1, "targets")
        self.targets = targets = targets.long().contiguous()
        allowed = targets[:, None][:, :0] if only is None else only
        self.lists = [
            check_range(ids, packed.catalogue, "ids").long().contiguous() for ids in (mass_of, banned, allowed)
        ]
        self.found = (
            torch.empty(packed.rows, dtype=torch.int64),
            torch.empty(packed.rows, n, dtype=torch.int64),
            torch.empty(packed.rows, n),
            torch.empty(packed.rows, n, dtype=torch.int8),
            torch.empty(packed.rows),
            torch.empty(packed.rows),
            torch.empty(packed.rows, dtype=torch.int64),
        )
        widths = self.lists[0].shape[1], self.lists[1].shape[1], -1 if only is None else allowed.shape[1]
        parts = (targets, *self.lists, *self.found)
        self.struct = QuestionStruct(n, *widths, *(tensor.data_ptr() for tensor in parts))


def _work(packed: PackedLogits, structs: list[QuestionStruct], tiles: Sequence[slice]) -> None:
    """One worker's tiles; the library overwrites a tile, so each question but the last reads a copy."""
    if not tiles:
        return
    base = BaseTiles(packed, tiles, with_gradients=False)
    spare = torch.empty_like(base.first) if len(structs) > 1 else base.first
    bytes = max(function("abaca_answer_bytes")(packed.struct, struct) for struct in structs)
    memory = torch.zeros(bytes, dtype=torch.uint8)
    for rows in tiles:
        tile = base.logits(rows)
        for struct in structs:
            given = tile if struct is structs[-1] else spare[: len(tile)].copy_(tile)
            where = rows.start, len(tile), given.data_ptr(), given.stride(0), memory.data_ptr()
            function("abaca_answer_rows")(packed.struct, struct, *where)

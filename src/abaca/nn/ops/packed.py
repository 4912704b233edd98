"""Logits and their loss as the native library reads them."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from abaca.nn.logits import Logits
from abaca.nn.ops.library import LogitsStruct, LossStruct, is_portable, native_supports

LONGEST_ROW = 1 << 19
"""Rows of more items than this are cheaper in tiles of items."""


def fits(logits: Logits) -> bool:
    """Whether native code supports these logits; several base queries need whole rows."""
    longest = 1 << 31 if logits.queries.shape[1] == 1 else LONGEST_ROW
    return native_supports(*logits.inputs) and logits.catalogue < longest


class PackedLogits:
    """Logits in contiguous arrays, and the structure that points to them."""

    def __init__(self, logits: Logits) -> None:
        ids, history_of_row, visible, values = logits.overrides
        self.catalogue = logits.catalogue
        self.bases = [query.contiguous() for query in logits.queries.detach().unbind(1)]  # each (N, D)
        self.table = logits.table.detach().contiguous()  # (V, D)
        self.values = values.detach().contiguous()  # (N, K)
        self.levels = [level.query.detach().contiguous() for level in logits.levels]  # each (N, D)
        self.ids = check_range(ids, self.catalogue, "ids").long().contiguous()  # (B, K)
        self.history_of_row = check_range(history_of_row, len(ids) - 1, "history_of_row").long().contiguous()  # (N,)
        self.visible = visible.long().contiguous()  # (N,)
        self.sizes = [min(level.k, self.catalogue) for level in logits.levels]
        self.struct = LogitsStruct(
            self.catalogue,
            self.table.shape[1],
            ids.shape[1],
            len(self.levels),
            self.table.data_ptr(),
            *(index.data_ptr() for index in (self.ids, self.history_of_row, self.visible)),
            self.values.data_ptr(),
            (ctypes.c_int64 * len(self.sizes))(*self.sizes),
            pointers(self.levels),
            is_portable(),
        )

    @property
    def queries(self) -> Tensor:
        """The base queries where each row has one (N, D)."""
        (only,) = self.bases
        return only

    @property
    def rows(self) -> int:
        return self.bases[0].shape[0]


class PackedLoss:
    """Targets, weights and losses of the rows, and the gradients where they are needed."""

    def __init__(self, packed: PackedLogits, targets: Tensor, weights: Tensor, with_gradients: bool) -> None:
        if len(targets) != packed.rows or len(weights) != packed.rows:
            raise ValueError(f"got {len(targets)} targets and {len(weights)} weights, expected {packed.rows}")
        self.targets = check_range(targets, packed.catalogue - 1, "targets").long().contiguous()
        self.weights = weights.detach().to(torch.float32).contiguous()
        self.losses = torch.empty(packed.rows, dtype=torch.float64)
        self.with_gradients = with_gradients
        self.struct = LossStruct(self.targets.data_ptr(), self.weights.data_ptr(), self.losses.data_ptr())
        if with_gradients:
            self.scale = torch.empty(packed.rows)
            self.values = torch.empty_like(packed.values)
            self.levels = [torch.empty_like(level) for level in packed.levels]
            self.struct.scale = self.scale.data_ptr()
            self.struct.grad_values = self.values.data_ptr()
            self.struct.grad_queries = pointers(self.levels)


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def check_range(index: Tensor, highest: int, name: str) -> Tensor:
    """Refuse an index with which the library would read outside of an array."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) > highest):
        raise ValueError(f"got {name} from {int(index.min())} to {int(index.max())}, expected 0 to {highest}")
    return index

"""Products of many rows with one matrix: by a native kernel that reads it in panels, or by torch.

torch's library clears what it is about to write and rearranges both factors at every call. Where the matrix serves many
rows that is a fifth to a third of the time: here it is rearranged once, and rows are multiplied as they stand.
"""

import torch
from torch import Tensor

from abaca.nn import native
from abaca.nn.frame import can_read, library

PANEL = 16
"""Columns of a panel: what is made has room for whole panels."""

MOST_BYTES = 16 << 20
"""A larger matrix is not rearranged: that would take as much memory again."""

FEWEST_ROWS = 32
"""Fewer rows do not pay for it."""


class Product:
    """left (n, K) → left · matrix^T (n, N), again and again; `rows` is how many there will be in all.

    Where there is room for fewer columns, these are made.
    """

    def __init__(self, matrix: Tensor, rows: int) -> None:
        self.matrix = matrix
        self.panels: Tensor | None = None
        pays = rows >= FEWEST_ROWS and 4 * matrix.numel() <= MOST_BYTES
        if pays and can_read(matrix) and native.mode() == "avx2":
            self.panels = panels_of(matrix)

    def __call__(self, left: Tensor, out: Tensor) -> Tensor:
        """Into `out` (n, N), whose rows lie at least a multiple of `PANEL` floats apart that N fits into."""
        if self.panels is None:
            return torch.mm(left, self.matrix[: out.shape[1]].T, out=out)
        left = left.contiguous()
        factors = left.data_ptr(), *left.shape, self.panels.data_ptr(), out.shape[1]
        library().abaca_multiply(*factors, out.data_ptr(), out.stride(0), False)
        return out


def panels_of(matrix: Tensor) -> Tensor:
    """A matrix (N, K) as the kernel reads it: `PANEL` of its rows at a time, side by side."""
    matrix = matrix.contiguous()
    panels = torch.empty(library().abaca_panels_floats(*matrix.shape))
    library().abaca_panels(matrix.data_ptr(), *matrix.shape, panels.data_ptr())
    return panels


def room(rows: int, columns: int) -> Tensor:
    """Memory for a product (rows, columns)."""
    return torch.empty(rows, -(-columns // PANEL) * PANEL)[:, :columns]

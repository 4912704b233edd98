"""The bucket of a time: ⌊log2(time + 1.5)⌋, so 0, 1 … 2, 3 … 6, 7 … 14 and so on; the last one is a time not known.

Whole numbers are never at an edge. The native form reads the exponent of the number instead of a logarithm.
"""

import torch
from torch import Tensor

from abaca.nn.ops.library import function, native_supports

UNKNOWN = 41
"""The bucket of a time that is not known; those before it double in width."""
KINDS = UNKNOWN + 1


def bucket(gap: Tensor) -> Tensor:
    """The bucket of each time; NaN is a time that is not known."""
    known = torch.log2(gap.clamp_min(0) + 1.5).clamp_max(UNKNOWN - 1)
    return known.where(~gap.isnan(), UNKNOWN).long()


def buckets_between(times: Tensor) -> Tensor:
    """Times (B, L), float64 → buckets of the time from each position to each earlier one (B, L, L).

    In the native form they are bytes, and those of later positions mean nothing.
    """
    if times.dtype != torch.float64 or not native_supports(times.new_empty(0, dtype=torch.float32)):
        return bucket(times.unsqueeze(2) - times.unsqueeze(1))
    times = times.contiguous()
    batch, length = times.shape
    between = torch.zeros(batch, length, length, dtype=torch.uint8)
    function("abaca_buckets")(times.data_ptr(), batch, length, UNKNOWN, between.data_ptr())
    return between

"""Triton kernels: the log-sum-exp of a row's base logits over the unclaimed items, and its gradients.

A program owns a block of rows (or of items), walks a share of the items (or rows) and writes what it found to a place
of its own; torch adds up the shares. Nothing is added by atomics, so the same run gives the same bits. Logits are made
block by block and forgotten; the gradients make them again.
"""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

VARYING = ("rows", "catalogue", "claims", "share")
"""Numbers that change from batch to batch: kernels are not specialised for them."""


@triton.jit(do_not_specialize=VARYING)
def sum_forward(
    queries, table, claimed, sums, rows, catalogue, claims, share, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """`sums` (rows, shares): log-sum-exp of a row's logits over the unclaimed items of a share."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = _vectors(queries, row, rows, DIM, WIDTH)
    begin = tl.program_id(1) * share
    place = _seek(claimed, row, rows, claims, begin)
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, tl.minimum(begin + share, catalogue), BLOCK):
        z, place = _logits(q, table, claimed, row, place, start, rows, catalogue, claims, DIM, WIDTH, BLOCK)
        before = highest
        highest = tl.maximum(highest, tl.max(z, axis=1))
        reference = tl.where(highest == -float("inf"), 0.0, highest)  # −∞ as long as everything was claimed
        total = total * tl.exp(before - reference) + tl.sum(tl.exp(z - reference[:, None]), axis=1)
    tl.store(sums + row.to(tl.int64) * tl.num_programs(1) + tl.program_id(1), highest + tl.log(total), mask=row < rows)


@triton.jit(do_not_specialize=VARYING)
def sum_backward_queries(
    queries, table, claimed, sums, upstream, gradient, rows, catalogue, claims, share, DIM: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`gradient` (shares, rows, D): what each share of the items gives the queries."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = _vectors(queries, row, rows, DIM, WIDTH)
    begin = tl.program_id(1) * share
    place = _seek(claimed, row, rows, claims, begin)
    found = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(begin, tl.minimum(begin + share, catalogue), BLOCK):
        z, place = _logits(q, table, claimed, row, place, start, rows, catalogue, claims, DIM, WIDTH, BLOCK)
        p = _shares(z, sums, upstream, row, rows)
        e = _vectors(table, start + tl.arange(0, BLOCK), catalogue, DIM, WIDTH)
        found += tl.dot(p, e, input_precision="ieee")
    _store(gradient, found, row, rows, DIM, WIDTH)


@triton.jit(do_not_specialize=VARYING)
def sum_backward_table(
    queries, table, claimed, sums, upstream, gradient, rows, catalogue, claims, share, DIM: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`gradient` (shares, V, D): what each share of the rows gives the item table."""
    start = tl.program_id(0) * BLOCK
    begin = tl.program_id(1) * share
    found = tl.zeros((BLOCK, WIDTH), tl.float32)
    for first in range(begin, tl.minimum(begin + share, rows), BLOCK):
        row = first + tl.arange(0, BLOCK)
        q = _vectors(queries, row, rows, DIM, WIDTH)
        place = _seek(claimed, row, rows, claims, start)
        z, place = _logits(q, table, claimed, row, place, start, rows, catalogue, claims, DIM, WIDTH, BLOCK)
        p = _shares(z, sums, upstream, row, rows)
        found += tl.dot(tl.trans(p), q, input_precision="ieee")
    _store(gradient, found, start + tl.arange(0, BLOCK), catalogue, DIM, WIDTH)


@triton.jit
def _vectors(matrix, index, count, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of a matrix (count, D), zeros outside of it."""
    dim = tl.arange(0, WIDTH)
    inside = (index[:, None] < count) & (dim[None, :] < DIM)
    return tl.load(matrix + index[:, None].to(tl.int64) * DIM + dim[None, :], mask=inside, other=0.0)


@triton.jit
def _store(matrix, found, index, count, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Write rows of this program's share of a gradient (shares, count, D)."""
    dim = tl.arange(0, WIDTH)
    inside = (index[:, None] < count) & (dim[None, :] < DIM)
    line = tl.program_id(1).to(tl.int64) * count + index
    tl.store(matrix + line[:, None] * DIM + dim[None, :], found, mask=inside)


@triton.jit
def _seek(claimed, row, rows, claims, start):
    """Where each row's sorted list of claimed items reaches `start`."""
    low = tl.zeros_like(row)
    high = tl.where(row < rows, claims, 0)
    while tl.max(high - low, axis=0) > 0:
        middle = (low + high) // 2
        item = tl.load(claimed + row.to(tl.int64) * claims + middle, mask=low < high, other=start)
        before = (low < high) & (item < start)
        high = tl.where(before, high, middle)
        low = tl.where(before, middle + 1, low)
    return low


@triton.jit
def _logits(
    q, table, claimed, row, place, start, rows, catalogue, claims, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Logits of a block of rows and items, −∞ where the item is claimed or there is none; the lists' next places."""
    column = start + tl.arange(0, BLOCK)
    e = _vectors(table, column, catalogue, DIM, WIDTH)
    z = tl.dot(q, tl.trans(e), input_precision="ieee")
    z = tl.where(column[None, :] < catalogue, z, -float("inf"))
    end = tl.minimum(start + BLOCK, catalogue)
    listed = claimed + row.to(tl.int64) * claims
    item = tl.load(listed + place, mask=(place < claims) & (row < rows), other=end)
    while tl.min(item, axis=0) < end:
        z = tl.where(column[None, :] == item[:, None], -float("inf"), z)
        place += (item < end).to(tl.int32)
        item = tl.load(listed + place, mask=(place < claims) & (row < rows), other=end)
    return z, place


@triton.jit
def _shares(z, sums, upstream, row, rows):
    """Each item's part in its row's log-sum-exp, times the row's gradient."""
    total = tl.load(sums + row, mask=row < rows, other=0.0)
    weight = tl.load(upstream + row, mask=row < rows, other=0.0)
    return tl.where(z == -float("inf"), 0.0, weight[:, None] * tl.exp(z - total[:, None]))

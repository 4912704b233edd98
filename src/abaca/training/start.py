"""Start vectors: the item table begins where counting ends.

Items that stand near each other in training rows get similar vectors. With S[a, b] = Σ 1/d over all pairs of rows of
one user that stand d ≤ 5 positions apart, N = S + Sᵀ, and m the row sums of N to the power 0.75:

    M[a, b] = max(0, log(N[a, b] · (Σ m)² / (Σ N · m_a · m_b)))                 sparse, symmetric
    table   = U √|Λ|  of the D eigenvalues Λ of M largest in size, centred, scaled to a standard deviation of 0.1

An item without pairs, and a dimension that M does not fill, is drawn from N(0, 0.1). Where items have features, these
explain what they can: with A the entries of warm items, and e the rows of the item table,

    W = argmin |table − A W|² + |W|²,  e = table − A W                         by conjugate gradients
"""

import warnings

import numpy as np
import torch
from torch import Tensor

from abaca.histories import Floats, Histories, Ints
from abaca.nn.model import Model

DISTANCE = 5
POWER = 0.75
DEVIATION = 0.1
SOLVED = 50
"""Rounds of conjugate gradients."""
ROUNDS = 6
"""Multiplications of the subspace by M."""
SPARE = 16
"""Further dimensions of the subspace, so that the last ones asked for are exact enough."""
PAIRS = 1 << 24
"""Pairs that are counted together: about 400 MB with the sort."""


@torch.no_grad()
@torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]  # sparse products have no bfloat16
def start_from_counts(model: Model, rows: Histories, seed: int) -> None:
    """Set every item table of a fresh model, and the projections that are multiplied with it, from training rows."""
    keys, weights = cooccurrences(rows, model.catalogue)
    generator = torch.Generator().manual_seed(seed)
    tables = [model.items, *model.output.item_tables]
    for table in tables:
        catalogue, dim = table.weight.shape
        table.weight.copy_(start_vectors(keys, weights, catalogue, dim, generator))
    if model.features is not None:
        model.features.weight.copy_(ridge(*model.features.warm_matrices(), model.items.weight[: model.warm]))
        model.items.weight[: model.warm] -= model.features.of_warm()
    model.forget_cold()
    for projection in model.output.item_projections:
        projection.weight.copy_(DEVIATION * torch.randn(projection.weight.shape, generator=generator))


def ridge(matrix: Tensor, transposed: Tensor, wanted: Tensor) -> Tensor:
    """The W (F, D) that minimises |wanted − matrix W|² + |W|², each column by conjugate gradients."""
    residual = transposed @ wanted
    found, direction = torch.zeros_like(residual), residual.clone()
    squares = (residual**2).sum(dim=0)
    enough = 1e-8 * squares.max()
    for _ in range(SOLVED):
        if squares.max() <= enough:
            break
        moved = transposed @ (matrix @ direction) + direction
        step = squares / (direction * moved).sum(dim=0).clamp_min(1e-30)
        found += step * direction
        residual -= step * moved
        squares, before = (residual**2).sum(dim=0), squares
        direction = residual + squares / before.clamp_min(1e-30) * direction
    return found


def start_vectors(keys: Ints, weights: Floats, catalogue: int, dim: int, generator: torch.Generator) -> Tensor:
    """The item table (V, D) of counted pairs."""
    table = DEVIATION * torch.randn(catalogue, dim, generator=generator)
    if not len(keys):
        return table
    matrix, paired = _information(keys, weights, catalogue)
    vectors = _leading_vectors(matrix, dim, generator)  # (V, k)
    vectors = vectors - vectors[paired].mean(dim=0)
    table[paired, : vectors.shape[1]] = DEVIATION * (vectors / vectors[paired].std().clamp_min(1e-12))[paired]
    return table


def cooccurrences(rows: Histories, catalogue: int) -> tuple[Ints, Floats]:
    """Pairs of items as keys a · V + b, a ≤ b, ascending, with S[a, b] + S[b, a], halved where a = b."""
    keys: Ints = np.zeros(0, np.int64)
    weights: Floats = np.zeros(0)
    ends = np.repeat(rows.offsets[1:], rows.lengths)
    for start in range(0, len(rows.items), PAIRS // DISTANCE):
        place = np.arange(start, min(start + PAIRS // DISTANCE, len(rows.items)))
        found, shares = [keys], [weights]
        for distance in range(1, DISTANCE + 1):
            here = place[place + distance < ends[place]]
            pair = rows.items[here], rows.items[here + distance]
            found.append(np.minimum(*pair) * catalogue + np.maximum(*pair))
            shares.append(np.full(len(here), 1 / distance))
        keys, at = np.unique(np.concatenate(found), return_inverse=True)
        weights = np.bincount(at, np.concatenate(shares), minlength=len(keys)).astype(np.float64)
    return keys, weights


def _information(keys: Ints, weights: Floats, catalogue: int) -> tuple[Tensor, Tensor]:
    """M as a sparse matrix (V, V), and which items have pairs (V,)."""
    first, second = np.divmod(keys, catalogue)
    apart = first != second
    rows, columns = np.concatenate([first, second[apart]]), np.concatenate([second, first[apart]])
    counts = np.concatenate([np.where(apart, weights, 2 * weights), weights[apart]])  # N
    sums = np.bincount(rows, counts, minlength=catalogue)
    smooth = sums**POWER
    information = np.log(counts * smooth.sum() ** 2 / (counts.sum() * smooth[rows] * smooth[columns]))
    kept = np.flatnonzero(information > 0)
    kept = kept[np.lexsort((columns[kept], rows[kept]))]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=catalogue))])
    values = torch.from_numpy(information[kept]).float()
    places = torch.from_numpy(starts), torch.from_numpy(columns[kept])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its sparse matrices beta
        return torch.sparse_csr_tensor(*places, values, size=(catalogue, catalogue)), torch.from_numpy(sums > 0)


def _leading_vectors(matrix: Tensor, dim: int, generator: torch.Generator) -> Tensor:
    """U √|Λ| (V, k) of a symmetric matrix, by subspace iteration; k is D, or V where that is less."""
    basis = torch.randn(len(matrix), min(dim + SPARE, len(matrix)), generator=generator)
    for _ in range(ROUNDS):
        basis = torch.linalg.qr(matrix @ basis).Q
    values, vectors = torch.linalg.eigh(basis.T @ (matrix @ basis))
    largest = values.abs().argsort(descending=True)[:dim]
    found: Tensor = (basis @ vectors[:, largest]) * values[largest].abs().sqrt()
    return found

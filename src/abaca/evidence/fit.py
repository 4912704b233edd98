"""The fit of evidence: likelihood of held-out targets under a frozen network.

A network's logits are needed once: those of the items that evidence speaks of, and of all others the log-sum-exp at a
few scales. In between it is a polynomial in the scale. The penalty is a prior: small numbers, and neighbouring buckets
alike. Its strength is the one with the best likelihood when each half of the targets is predicted from the other. How
soon histories fade is chosen before it: the f whose followers alone rank new targets best.

Most of the likelihood is lost on targets that no list reaches. So a / T and s, which order the items outside the
history, are those with the highest NDCG of new targets among these items. The other numbers are then fitted again:
temperatures, and the share of repeats, are those of highest likelihood. This is kept if it gains more than one standard
error of NDCG in the whole list.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from abaca.evidence.evidence import MOST_FOLLOWERS, Claims, Evidence, Weights
from abaca.evidence.habits import EDGES, KINDS, MOST_ITEMS
from abaca.evidence.transitions import Transitions
from abaca.histories import Bools, Floats, Histories, Ints
from abaca.nn.logits import Scores

MOST_TARGETS = 20_000
"""Targets that are enough for a fit; of more, a fixed sample is taken."""
MOST_ENTRIES = 2_000_000
"""Items that a fit reads at most, over all targets: long histories need fewer targets."""
LOWEST, HIGHEST, NODES = 0.2, 1.6, 7
"""Range of T, and the number of scales at which the rest of the catalogue is read."""
STRENGTHS = (1.0, 10.0, 100.0)
"""Of the penalty."""
FEWER_TARGETS = 3_000
"""Targets that are enough to choose the strength: with more of them it matters less."""
FADES = (1.0, 0.75, 0.5, 0.25)
"""Values of f that are tried."""
ROUNDS = 100
"""Iterations of L-BFGS at most."""
CUTOFF = 10
"""Of the NDCG that orders items outside the history."""
RATIOS = (0.05, 0.15, 0.3, 0.6, 0.9, 1.3, 1.8, 2.7, 4.0)
SHARPNESSES = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""Values of a / T and of s that are tried."""

Scored = Callable[[Histories], Iterator[tuple[Ints, Scores]]]
"""The network's scores of some histories: their numbers, and a row of scores each."""

T, A, OWN, FOLLOWERS, OWN_FOLLOWERS, SHARPNESS, HABITS = range(7)
"""Places in the vector of free numbers: T by a tanh, log A, β, log a / T, a', log s, and then b."""
START = (0.0, 0.0, 0.0, -1.0, 0.0, 2.0)


class Problem(NamedTuple):
    """What the likelihood of N held-out targets reads; an entry is an item that evidence speaks of."""

    habits: tuple[str, ...]
    rows: Ints  # (P,) the target's row of each entry, ascending; each row has entries
    own: Ints  # (O,) the entries that are of the history
    codes: Ints  # (O, F)
    strength: Floats  # (P,)
    logits: Floats  # (P,) the network's
    rest: Floats  # (N, NODES) coefficients of the log-sum-exp of all other items, by the scale
    entry: Ints  # (N,) the entry that is the target; negative where it is none
    hit: Floats  # (N,) the network's logit of the target
    best: Floats  # (N, CUTOFF + 1) the highest logits of all other items

    def take(self, chosen: Bools) -> "Problem":
        """Only the targets of a mask (N,)."""
        kept = chosen[self.rows]
        row, entry = np.cumsum(chosen) - 1, np.cumsum(kept) - 1
        at, mine = self.entry[chosen], kept[self.own]
        return Problem(
            self.habits, row[self.rows[kept]], entry[self.own[mine]], self.codes[mine], self.strength[kept],
            self.logits[kept], self.rest[chosen], np.where(at >= 0, entry[at], -1), self.hit[chosen],
            self.best[chosen],
        )  # fmt: skip


class Held(NamedTuple):
    """Held-out targets as a fit reads them, for each kind of habits that their histories allow."""

    numbers: Ints  # (N,) which targets they are, of those that were given
    problems: dict[str, Problem]
    fade: float = 1.0

    def take(self, chosen: Bools) -> "Held":
        """Only the targets of a mask (N,)."""
        taken = {kind: problem.take(chosen) for kind, problem in self.problems.items()}
        return Held(self.numbers[chosen], taken, self.fade)


def fit(evidence: Evidence, scored: Scored, histories: Histories, targets: Ints) -> Evidence:
    """Evidence with numbers fitted on held-out targets."""
    return fitted(evidence, held(evidence, scored, histories, targets))


def held(evidence: Evidence, scored: Scored, histories: Histories, targets: Ints, seed: int = 0) -> Held:
    """What a fit reads of held-out targets, in one pass over the network; of many targets a sample is enough."""
    per_target = MOST_FOLLOWERS + np.minimum(histories.lengths, MOST_ITEMS).mean() if len(histories) else 1
    enough, numbers = min(MOST_TARGETS, int(MOST_ENTRIES / per_target)), np.arange(len(targets))
    if len(targets) > enough:
        numbers = np.sort(np.random.default_rng(seed).choice(len(targets), enough, replace=False))
        histories, targets = histories.take(numbers), targets[numbers]
    kinds = list(KINDS)[: 1 + list(KINDS).index(evidence.clock.kind(histories))]
    if "followers" in evidence.parts:
        evidence = replace(evidence, fade=choose_fade(evidence.transitions, histories, targets))
    return Held(numbers, problems(evidence, scored, histories, targets, kinds), evidence.fade)


def choose_fade(transitions: Transitions, histories: Histories, targets: Ints) -> float:
    """The f whose followers rank new targets best; 1 unless another is better by more than a standard error."""
    few = np.arange(min(len(targets), FEWER_TARGETS))
    histories, targets = histories.take(few), targets[few]
    gains = [_follower_gains(transitions, histories, targets, fade) for fade in FADES]
    more = [gain - gains[0] for gain in gains]
    sure = [gain.mean() if gain.mean() > gain.std() / np.sqrt(len(few)) else 0.0 for gain in more]
    return FADES[int(np.argmax(sure))] if len(few) else FADES[0]


def _follower_gains(transitions: Transitions, histories: Histories, targets: Ints, fade: float) -> Floats:
    """1 / log2(1 + rank) of new targets (N,) among the followers outside their histories; 0 for other targets."""
    catalogue = len(transitions.counts)
    found = transitions.after(histories, MOST_FOLLOWERS, fade)
    owned = np.repeat(np.arange(len(histories)), histories.lengths) * catalogue + histories.items
    new = ~np.isin(found.rows * catalogue + found.items, owned)
    rows, items, strength = (part[new] for part in found)
    wanted = items == targets[rows]
    hit = np.full(len(histories), np.inf)
    hit[rows[wanted]] = strength[wanted]
    rank = np.bincount(rows, strength >= hit[rows], minlength=len(histories))
    return np.asarray((rank > 0) / np.log2(np.maximum(rank, 1) + 1.0))


def fitted(evidence: Evidence, targets: Held) -> Evidence:
    """Evidence with numbers that suit held-out targets, for each kind of habits."""
    parts, order = evidence.parts, targets.problems["order"]
    strength = choose_strength(order, parts)
    theta, followers = maximise(order, parts, strength), None
    if "followers" in parts:
        theta, followers = choose_followers(order, parts, strength, theta)
    near = theta[: HABITS + sum(len(EDGES[name]) + 1 for name in KINDS["order"])]
    weights = {"order": theta} | {
        kind: maximise(problem, parts, strength, followers, near)
        for kind, problem in targets.problems.items()
        if kind != "order"
    }
    numbers = {kind: as_weights(found, parts) for kind, found in weights.items()}
    return replace(evidence, weights=numbers, fade=targets.fade)


def problems(
    evidence: Evidence, scored: Scored, histories: Histories, targets: Ints, kinds: list[str]
) -> dict[str, Problem]:
    """What each kind of fit reads, in one pass over the network."""
    parts: dict[str, list[Problem]] = {kind: [] for kind in kinds}
    for numbers, scores in scored(histories):
        batch = histories.take(numbers)
        followers = evidence.followers(batch)
        claims = {kind: evidence.claims(batch, kind, followers) for kind in kinds}
        read = _read(scores, claims[kinds[0]], targets[numbers])
        for kind, found in claims.items():
            own = np.flatnonzero(found.own)
            habits = evidence.habits(kind)
            parts[kind].append(Problem(habits, found.rows, own, found.codes[own], found.strength, *read))
    return {kind: _joined(part) for kind, part in parts.items()}


def nodes() -> Floats:
    """The scales at which the rest of the catalogue is read (NODES,): Chebyshev's, in [−1, 1]."""
    return np.asarray(np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES))


def _read(scores: Scores, claims: Claims, targets: Ints) -> tuple[Floats, Floats, Ints, Floats, Floats]:
    """Logits of the entries (P,), the rest's coefficients (N, NODES), the target's entry and logit, the rest's best."""
    logits, hit = np.empty(len(claims.rows)), np.empty(scores.rows)
    sums, best = np.empty((scores.rows, NODES)), np.full((scores.rows, CUTOFF + 1), -np.inf)
    scales = (LOWEST + HIGHEST) / 2 + (HIGHEST - LOWEST) / 2 * nodes()
    for tile in scores.tiles():
        final = tile.logits[:, :-1].cpu()
        first = tile.rows.start or 0
        inside = slice(*np.searchsorted(claims.rows, [first, first + len(final)]))
        at = torch.from_numpy(claims.rows[inside] - first), torch.from_numpy(claims.items[inside])
        logits[inside] = final[at].numpy()
        hit[tile.rows] = final.numpy()[np.arange(len(final)), targets[tile.rows]]
        others = final.index_put(at, torch.tensor(-torch.inf))
        most = min(CUTOFF + 1, others.shape[1])
        best[tile.rows, :most] = others.topk(most, dim=1).values.numpy()
        for node, scale in enumerate(scales.tolist()):
            sums[tile.rows, node] = (others * scale).logsumexp(dim=1).numpy()
    powers = np.linalg.inv(np.vander(nodes(), increasing=True))  # values → coefficients
    is_target = np.flatnonzero(claims.items == targets[claims.rows])
    entry = np.full(scores.rows, -1)
    entry[claims.rows[is_target]] = is_target
    return logits, np.maximum(sums, -1e4) @ powers.T, entry, hit, best


def _joined(parts: list[Problem]) -> Problem:
    """Several batches as one problem."""
    row, place, moved = 0, 0, []
    for part in parts:
        entry = np.where(part.entry >= 0, part.entry + place, -1)
        moved.append(part._replace(rows=part.rows + row, own=part.own + place, entry=entry))
        row, place = row + len(part.hit), place + len(part.rows)
    columns = zip(*(part[1:] for part in moved), strict=True)
    return Problem(parts[0].habits, *(np.concatenate(column) for column in columns))


def choose_strength(problem: Problem, parts: tuple[str, ...]) -> float:
    """The strength of the penalty under which each half of the targets predicts the other half best."""
    number = np.arange(len(problem.hit))
    halves = [problem.take((number % 2 == turn) & (number < FEWER_TARGETS)) for turn in (0, 1)]
    across: list[float] = []
    fitted = [start_of(part) for part in halves]
    for strength in STRENGTHS:
        fitted = [maximise(part, parts, strength, start=start) for part, start in zip(halves, fitted, strict=True)]
        across.append(sum(loss(other, theta, parts)[0] for theta, other in zip(fitted, halves[::-1], strict=True)))
    return STRENGTHS[int(np.argmin(across))]


def choose_followers(
    problem: Problem, parts: tuple[str, ...], strength: float, likely: Floats
) -> tuple[Floats, tuple[float, float] | None]:
    """The numbers under the log a / T and log s that order new targets best, with these two.

    If whole lists do not gain by them, the likeliest numbers, and None.
    """
    is_own = np.zeros(len(problem.rows), dtype=bool)
    is_own[problem.own] = True
    new = (problem.entry < 0) | ~is_own[problem.entry]
    if not new.any():
        return likely, None
    kept = problem.take(new)
    pairs = [(ratio, sharpness) for ratio in RATIOS for sharpness in SHARPNESSES]
    best = max(pairs, key=lambda pair: float(new_gains(kept, *pair).mean()))
    found = float(np.log(best[0])), float(np.log(best[1]))
    ranked = maximise(problem, parts, strength, found, likely)
    more = list_gains(problem, ranked, parts) - list_gains(problem, likely, parts)
    return (ranked, found) if more.mean() > more.std() / np.sqrt(len(more)) else (likely, None)


def new_gains(problem: Problem, ratio: float, sharpness: float) -> Floats:
    """The NDCG of new targets (N,) among the items outside their histories."""
    final = problem.logits + ratio * np.log1p(sharpness * problem.strength)
    final[problem.own] = -np.inf
    return _gains(problem, final, 1.0)


def list_gains(problem: Problem, theta: Floats, parts: tuple[str, ...]) -> Floats:
    """The NDCG of targets (N,) among all items."""
    return _gains(problem, _final(problem, theta, parts)[0], _scale(theta))


def _gains(problem: Problem, final: Floats, scale: float) -> Floats:
    """The NDCG of targets (N,) from the final logits of entries, and the scale of all others."""
    hit = np.where(problem.entry >= 0, final[problem.entry], scale * problem.hit)
    rank = np.bincount(problem.rows, final >= hit[problem.rows], minlength=len(hit))
    rank += (scale * problem.best >= hit[:, None]).sum(axis=1)  # the target itself is an entry, or one of the others
    return np.where(rank <= CUTOFF, 1 / np.log2(np.maximum(rank, 1) + 1), 0.0)


def _sizes(problem: Problem) -> list[int]:
    """The number of buckets of each habit."""
    return [len(EDGES[name]) + 1 for name in problem.habits]


def start_of(problem: Problem) -> Floats:
    """The numbers at which a fit begins."""
    return np.array([*START, *[0.0] * sum(_sizes(problem))])


def maximise(
    problem: Problem,
    parts: tuple[str, ...],
    strength: float,
    followers: tuple[float, float] | None = None,
    start: Floats | None = None,
) -> Floats:
    """The numbers with the highest penalised likelihood, with given log a / T and log s if there are some.

    `start` has numbers that are near them; those of further habits begin at 0.
    """
    theta, sizes = torch.from_numpy(start_of(problem)), _sizes(problem)
    if start is not None:
        theta[: len(start)] = torch.from_numpy(start)
    fixed = [] if followers is None else [FOLLOWERS, SHARPNESS]
    theta[fixed] = torch.tensor(followers or (), dtype=torch.float64)
    theta.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [theta], max_iter=ROUNDS, history_size=30, tolerance_change=1e-5, line_search_fn="strong_wolfe"
    )
    targets = max(1, len(problem.hit))

    def closure() -> float:
        at = theta.detach().numpy()
        total, slope = loss(problem, at, parts)
        more, steeper = penalty(at, sizes)
        theta.grad = torch.from_numpy((slope + strength * steeper) / targets)
        theta.grad[fixed] = 0
        return (total + strength * more) / targets

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return theta.detach().numpy()


def as_weights(theta: Floats, parts: tuple[str, ...]) -> Weights:
    """The numbers by name; those of a part that is not read are neutral."""
    scale, own_scale = float(_scale(theta)), float(np.exp(theta[A]))
    found = Weights(scale, scale)
    if "habits" in parts:
        found = replace(found, own_scale=own_scale, own=float(theta[OWN]), habits=tuple(theta[HABITS:].tolist()))
    if "followers" in parts:
        own = float(theta[OWN_FOLLOWERS]) if "habits" in parts else 0.0
        found = replace(
            found,
            followers=scale * float(np.exp(theta[FOLLOWERS])),
            own_followers=own,
            sharpness=float(np.exp(theta[SHARPNESS])),
        )
    return found


def _scale(theta: Floats) -> float:
    return float((LOWEST + HIGHEST) / 2 + (HIGHEST - LOWEST) / 2 * np.tanh(theta[T]))


def loss(problem: Problem, theta: Floats, parts: tuple[str, ...]) -> tuple[float, Floats]:
    """Sum of −log P(target), and its gradient."""
    scaled = np.tanh(theta[T])
    final, gain = _final(problem, theta, parts)
    rest = problem.rest @ scaled ** np.arange(NODES)  # (N,)
    starts = np.searchsorted(problem.rows, np.arange(len(rest)))
    shift = np.maximum(rest, np.maximum.reduceat(final, starts))
    share, others = np.exp(final - shift[problem.rows]), np.exp(rest - shift)
    total = np.add.reduceat(share, starts) + others
    listed = problem.entry >= 0
    hit = np.where(listed, final[problem.entry], _scale(theta) * problem.hit)
    value = float((np.log(total) + shift - hit).sum())
    share /= total[problem.rows]  # the gradient of each entry's logit
    share[problem.entry[listed]] -= 1
    slope = _gradient(problem, theta, parts, share, gain)
    bend = problem.rest[:, 1:] @ (np.arange(1, NODES) * scaled ** np.arange(NODES - 1))  # of the rest, by tanh
    half = (HIGHEST - LOWEST) / 2
    slope[T] += (others / total * bend).sum() - half * problem.hit[~listed].sum()
    slope[T] *= 1 - scaled**2
    return value, slope


def _final(problem: Problem, theta: Floats, parts: tuple[str, ...]) -> tuple[Floats, Floats]:
    """The final logits of the entries (P,), and log(1 + s r)."""
    gain = np.log1p(np.exp(theta[SHARPNESS]) * problem.strength)
    final, own = _scale(theta) * problem.logits, problem.own
    if "habits" in parts:
        final[own] = np.exp(theta[A]) * problem.logits[own] + theta[OWN]
        final[own] += theta[HABITS:][problem.codes].sum(axis=1)
    if "followers" in parts:
        weight = np.full(len(final), _scale(theta) * np.exp(theta[FOLLOWERS]))
        weight[own] = theta[OWN_FOLLOWERS] if "habits" in parts else 0.0
        final += weight * gain
    return final, gain


def _gradient(problem: Problem, theta: Floats, parts: tuple[str, ...], share: Floats, gain: Floats) -> Floats:
    """The gradient of the free numbers, that of T by tanh, from the gradient of the entries' logits."""
    slope, own = np.zeros_like(theta), problem.own
    mine, product, turned = share[own], share * problem.logits, share * gain
    slope[T] = (HIGHEST - LOWEST) / 2 * product.sum()
    if "habits" in parts:
        slope[T] -= (HIGHEST - LOWEST) / 2 * product[own].sum()
        slope[A], slope[OWN] = np.exp(theta[A]) * product[own].sum(), mine.sum()
        for column in problem.codes.T:
            slope[HABITS:] += np.bincount(column, mine, minlength=len(theta) - HABITS)
    if "followers" in parts:
        ratio, s = np.exp(theta[FOLLOWERS]), np.exp(theta[SHARPNESS])
        a = _scale(theta) * ratio
        own_a = theta[OWN_FOLLOWERS] if "habits" in parts else 0.0
        slope[FOLLOWERS] = a * (turned.sum() - turned[own].sum())
        slope[T] += (HIGHEST - LOWEST) / 2 * ratio * (turned.sum() - turned[own].sum())
        slope[OWN_FOLLOWERS] = turned[own].sum() if "habits" in parts else 0.0
        bend = share * s * problem.strength / (1 + s * problem.strength)
        slope[SHARPNESS] = a * (bend.sum() - bend[own].sum()) + own_a * bend[own].sum()
    return slope


def penalty(theta: Floats, sizes: list[int]) -> tuple[float, Floats]:
    """Σ 0.01 (θ − start)² + Σ (0.1 b² + (b_k − b_{k − 1})²), and its gradient."""
    slope = np.zeros_like(theta)
    apart = theta[:HABITS] - np.asarray(START)
    slope[:HABITS] = 0.02 * apart
    total = 0.01 * float((apart**2).sum())
    first = HABITS
    for size in sizes:
        row, steps = theta[first : first + size], np.diff(theta[first : first + size])
        total += 0.1 * float((row**2).sum()) + float((steps**2).sum())
        slope[first : first + size] = 0.2 * row
        slope[first + 1 : first + size] += 2 * steps
        slope[first : first + size - 1] -= 2 * steps
        first += size
    return total, slope
